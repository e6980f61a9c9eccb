//! What a DaemonSet must be.

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::apps::workload;
use crate::core::pod::template;
use crate::prelude::*;

pub fn create(object: &DaemonSet) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    let (selector, here) = (&spec.selector, path.child("template"));
    validation::label_selector(selector, &path.child("selector"), &mut errors);
    let labels = spec.template.metadata.as_ref().and_then(|m| m.labels.clone());
    if !validation::selects(selector, &labels) {
        template::mismatch(&labels, &here, &mut errors);
    }
    if validation::selects_all(selector) {
        let shown = validation::ordered(selector, validation::LABEL_SELECTOR);
        errors.push(FieldError::invalid(&path.child("selector"), shown, "empty selector is invalid for daemonset"));
    }
    template::validate(&spec.template, &here, &mut errors);
    workload::always_restarted(&spec.template, &here, &mut errors);
    if spec.template.spec.as_ref().is_some_and(|s| s.active_deadline_seconds.is_some()) {
        let why = "activeDeadlineSeconds in DaemonSet is not Supported";
        errors.push(FieldError::forbidden(&here.child("spec").child("activeDeadlineSeconds"), why));
    }
    strategy(&spec.update_strategy.clone().unwrap_or_default(), &path.child("updateStrategy"), &mut errors);
    let counts = [("minReadySeconds", spec.min_ready_seconds), ("revisionHistoryLimit", spec.revision_history_limit)];
    validation::nonnegative(&counts, &path, &mut errors);
    errors
}

fn strategy(strategy: &DaemonSetUpdateStrategy, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("rollingUpdate");
    match (text(&strategy.type_), &strategy.rolling_update) {
        ("OnDelete", _) => {}
        ("RollingUpdate", None) => errors.push(FieldError::required(&here, "")),
        ("RollingUpdate", Some(rolling)) => rolling_update(rolling, &here, errors),
        _ => {
            let shown = validation::untagged(strategy, "io.k8s.api.apps.v1.DaemonSetUpdateStrategy");
            errors.push(FieldError::not_supported(path, shown, &["RollingUpdate", "OnDelete"]));
        }
    }
}

fn rolling_update(rolling: &RollingUpdateDaemonSet, path: &Path<'_>, errors: &mut ErrorList) {
    let zero = IntOrString::Int(0);
    let unavailable = rolling.max_unavailable.as_ref().unwrap_or(&zero);
    let surge = rolling.max_surge.as_ref().unwrap_or(&zero);
    let (unavailable_path, surge_path) = (path.child("maxUnavailable"), path.child("maxSurge"));
    validation::count_or_percent(unavailable, &unavailable_path, errors);
    validation::count_or_percent(surge, &surge_path, errors);
    validation::at_most_all(unavailable, &unavailable_path, errors);
    validation::at_most_all(surge, &surge_path, errors);
    let some = |value: &IntOrString| match value {
        IntOrString::Int(number) => *number != 0,
        text => validation::percent_of(text).unwrap_or_default() != 0,
    };
    match (some(unavailable), some(surge)) {
        (true, true) => {
            errors.push(FieldError::invalid(&surge_path, validation::shown(surge), "may not be set when maxUnavailable is non-zero"));
        }
        (false, false) => errors.push(FieldError::required(&unavailable_path, "cannot be 0 when maxSurge is 0")),
        _ => {}
    }
}

pub fn update(new: &DaemonSet, old: &DaemonSet, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = create(new);
    if let (Some(new), Some(old)) = (&new.spec, &old.spec) {
        workload::selector_is_unchanged(&new.selector, &old.selector, cx, &Path::new("spec").child("selector"), &mut errors);
    }
    errors
}

pub fn status(object: &DaemonSet) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = object.status.clone().unwrap_or_default();
    let counts = [
        ("currentNumberScheduled", Some(status.current_number_scheduled)),
        ("numberMisscheduled", Some(status.number_misscheduled)),
        ("desiredNumberScheduled", Some(status.desired_number_scheduled)),
        ("numberReady", Some(status.number_ready)),
        ("updatedNumberScheduled", status.updated_number_scheduled),
        ("numberAvailable", status.number_available),
        ("numberUnavailable", status.number_unavailable),
        ("collisionCount", status.collision_count),
    ];
    validation::nonnegative(&counts, &Path::new("status"), &mut errors);
    errors
}
