//! What the kinds that keep pods from a template have in common.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use wheelhouse_meta::LabelSelector as Matcher;

use crate::core::pod::template;
use crate::prelude::*;

/// Where the selector lies, which must be told from an empty one when it is unset.
pub const SELECTOR: &str = "/spec/selector";

/// Whether the body had no selector at all.
pub fn selector_is_unset(cx: &RequestContext<'_>) -> bool {
    cx.raw.is_some_and(|raw| raw.pointer(SELECTOR).is_none_or(Value::is_null))
}

/// The selector alone. `of` names the kind in the complaint about an empty one. `false` when no template can be compared with it.
pub fn selector(selector: &LabelSelector, of: &str, cx: &RequestContext<'_>, path: &Path<'_>, errors: &mut ErrorList) -> bool {
    if selector_is_unset(cx) {
        errors.push(FieldError::required(path, ""));
        return true;
    }
    let shown = || validation::ordered(selector, validation::LABEL_SELECTOR);
    validation::label_selector(selector, path, errors);
    if validation::selects_all(selector) {
        errors.push(FieldError::invalid(path, shown(), format!("empty selector is invalid for {of}")));
    }
    let sound = serde_json::to_value(selector).is_ok_and(|v| Matcher::from_object(Some(&v)).is_ok());
    if !sound {
        errors.push(FieldError::invalid(path, shown(), "invalid label selector"));
    }
    sound
}

/// The template of pods that are replaced whenever they end.
pub fn replicated_template(pods: &PodTemplateSpec, selector: &LabelSelector, cx: &RequestContext<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let labels = pods.metadata.as_ref().and_then(|m| m.labels.clone());
    if selector_is_unset(cx) || (!validation::selects_all(selector) && !validation::selects(selector, &labels)) {
        template::mismatch(&labels, path, errors);
    }
    template::validate(pods, path, errors);
    always_restarted(pods, path, errors);
    if pods.spec.as_ref().is_some_and(|s| s.active_deadline_seconds.is_some()) {
        let why = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(FieldError::forbidden(&path.child("spec").child("activeDeadlineSeconds"), why));
    }
}

pub fn always_restarted(pods: &PodTemplateSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let policy = pods.spec.as_ref().map(|s| text(&s.restart_policy)).unwrap_or_default();
    if policy != "Always" {
        errors.push(FieldError::not_supported(&path.child("spec").child("restartPolicy"), policy, &["Always"]));
    }
}

/// The selector never changes: pods would be orphaned.
pub fn selector_is_unchanged(new: &LabelSelector, old: &LabelSelector, cx: &RequestContext<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    if new != old {
        let shown = if selector_is_unset(cx) { BadValue::Null } else { validation::ordered(new, validation::LABEL_SELECTOR) };
        errors.push(FieldError::immutable(path, shown));
    }
}

/// Counts in a status: none negative, none above the total, and none available that is not ready.
pub fn replica_counts(total: i32, ready: Option<i32>, available: Option<i32>, parts: &[(&str, Option<i32>)], errors: &mut ErrorList) {
    let path = Path::new("status");
    validation::nonnegative(&[("replicas", Some(total))], &path, errors);
    validation::nonnegative(parts, &path, errors);
    for (field, count) in parts {
        let count = count.unwrap_or_default();
        if count > total {
            errors.push(FieldError::invalid(&path.child(field), count, "cannot be greater than status.replicas"));
        }
    }
    let (ready, available) = (ready.unwrap_or_default(), available.unwrap_or_default());
    if available > ready {
        errors.push(FieldError::invalid(&path.child("availableReplicas"), available, "cannot be greater than readyReplicas"));
    }
}

/// A number or a percentage of `total`. Surges round up and unavailability down, so that together they never allow nothing.
pub fn resolve(value: Option<&IntOrString>, total: i32, round_up: bool) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let scaled = percent * i64::from(total);
            let rounded = if round_up { scaled.div_euclid(100) + i64::from(scaled.rem_euclid(100) > 0) } else { scaled.div_euclid(100) };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

/// The columns about the template.
pub const CONTAINERS: Column = table::wide("Containers", "Names of its pods' containers.");
pub const IMAGES: Column = table::wide("Images", "Images of its pods' containers.");
pub const SELECTOR_COLUMN: Column = table::wide("Selector", "Which pods are its own.");

pub fn containers_and_images(template: Option<&PodTemplateSpec>) -> (Value, Value) {
    let containers = template.and_then(|t| t.spec.as_ref()).map(|s| s.containers.as_slice()).unwrap_or_default();
    let names: Vec<&str> = containers.iter().map(|c| c.name.as_str()).collect();
    let images: Vec<&str> = containers.iter().map(|c| text(&c.image)).collect();
    (names.join(",").into(), images.join(",").into())
}

pub fn selector_cell(selector: Option<&LabelSelector>) -> Value {
    let matcher = selector.and_then(|s| serde_json::to_value(s).ok()).map(|v| Matcher::from_object(Some(&v)));
    match matcher {
        Some(Ok(matcher)) => match matcher.to_string() {
            shown if shown.is_empty() => "<none>".into(),
            shown => shown.into(),
        },
        Some(Err(_)) => "<error>".into(),
        None => "<none>".into(),
    }
}
