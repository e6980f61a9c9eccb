//! What a StatefulSet must be.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use wheelhouse_meta::validation as names;

use crate::apps::workload;
use crate::core::pod::template;
use crate::core::pod::validate::one_of;
use crate::prelude::*;

pub fn create(object: &StatefulSet, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec_path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    self::spec(&spec, cx, &spec_path, &mut errors);
    if let Some(service) = spec.service_name.as_ref().filter(|n| !n.is_empty()) {
        validation::texts(names::dns1123_label(service), service, &spec_path.child("serviceName"), &mut errors);
    }
    errors
}

fn spec(spec: &StatefulSetSpec, cx: &RequestContext<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    match text(&spec.pod_management_policy) {
        "" => errors.push(FieldError::required(&path.child("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        other => errors.push(FieldError::invalid(&path.child("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'")),
    }
    strategy(&spec.update_strategy.clone().unwrap_or_default(), &path.child("updateStrategy"), errors);
    if let Some(retention) = &spec.persistent_volume_claim_retention_policy {
        let path = path.child("persistentVolumeClaimRetentionPolicy");
        one_of(text(&retention.when_deleted), &["Retain", "Delete"], &path.child("whenDeleted"), errors);
        one_of(text(&retention.when_scaled), &["Retain", "Delete"], &path.child("whenScaled"), errors);
    }
    let counts = [("replicas", spec.replicas), ("minReadySeconds", spec.min_ready_seconds), ("revisionHistoryLimit", spec.revision_history_limit)];
    validation::nonnegative(&counts, path, errors);
    if let Some(start) = spec.ordinals.as_ref().and_then(|o| o.start) {
        errors.extend(names::nonnegative(i64::from(start), &path.child("ordinals").child("start")));
    }
    if workload::selector(&spec.selector, "statefulset", cx, &path.child("selector"), errors) {
        let here = path.child("template");
        let labels = spec.template.metadata.as_ref().and_then(|m| m.labels.clone());
        let unset = workload::selector_is_unset(cx);
        if unset || (!validation::selects_all(&spec.selector) && !validation::selects(&spec.selector, &labels)) {
            template::mismatch(&labels, &here, errors);
        }
        template::validate(&with_claims(spec), &here, errors);
        workload::always_restarted(&spec.template, &here, errors);
        if spec.template.spec.as_ref().is_some_and(|s| s.active_deadline_seconds.is_some()) {
            let why = "activeDeadlineSeconds in StatefulSet is not Supported";
            errors.push(FieldError::forbidden(&here.child("spec").child("activeDeadlineSeconds"), why));
        }
    }
}

/// The template as its pods will have it: each claim is a volume of the same name.
fn with_claims(spec: &StatefulSetSpec) -> PodTemplateSpec {
    let mut template = spec.template.clone();
    let claims = items(&spec.volume_claim_templates).iter().filter_map(|c| c.metadata.name.clone());
    let claims: Vec<String> = claims.collect();
    if claims.is_empty() {
        return template;
    }
    let volumes = template.spec.get_or_insert_default().volumes.get_or_insert_default();
    volumes.retain(|v| !claims.contains(&v.name));
    volumes.extend(claims.into_iter().map(|name| Volume {
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name: name.clone(), read_only: None }),
        name,
        ..Volume::default()
    }));
    template
}

fn strategy(strategy: &StatefulSetUpdateStrategy, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("rollingUpdate");
    match (text(&strategy.type_), &strategy.rolling_update) {
        ("", _) => errors.push(FieldError::required(path, "")),
        ("OnDelete", Some(rolling)) => {
            let shown = validation::untagged(rolling, "io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy");
            errors.push(FieldError::invalid(&here, shown, "only allowed for updateStrategy 'RollingUpdate'"));
        }
        ("RollingUpdate", Some(rolling)) => {
            validation::nonnegative(&[("partition", rolling.partition)], &here, errors);
            if let Some(unavailable) = &rolling.max_unavailable {
                let here = here.child("maxUnavailable");
                validation::count_or_percent(unavailable, &here, errors);
                let zero = matches!(unavailable, IntOrString::Int(0)) || validation::percent_of(unavailable) == Some(0);
                if zero {
                    errors.push(FieldError::invalid(&here, validation::shown(unavailable), "cannot be 0"));
                }
                validation::at_most_all(unavailable, &here, errors);
            }
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => {
            let shown = validation::untagged(strategy, "io.k8s.api.apps.v1.StatefulSetUpdateStrategy");
            errors.push(FieldError::invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
}

pub fn update(new: &StatefulSet, old: &StatefulSet, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let (new, old) = (new.spec.clone().unwrap_or_default(), old.spec.clone().unwrap_or_default());
    spec(&new, cx, &path, &mut errors);
    let fixed = StatefulSetSpec {
        replicas: old.replicas,
        ordinals: old.ordinals.clone(),
        template: old.template.clone(),
        update_strategy: old.update_strategy.clone(),
        revision_history_limit: old.revision_history_limit,
        persistent_volume_claim_retention_policy: old.persistent_volume_claim_retention_policy.clone(),
        min_ready_seconds: old.min_ready_seconds,
        ..new
    };
    if fixed != old {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                   'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden(&path, why));
    }
    errors
}

pub fn status(object: &StatefulSet) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = object.status.clone().unwrap_or_default();
    let parts = [
        ("readyReplicas", status.ready_replicas),
        ("currentReplicas", status.current_replicas),
        ("updatedReplicas", status.updated_replicas),
        ("availableReplicas", status.available_replicas),
    ];
    workload::replica_counts(status.replicas, status.ready_replicas, status.available_replicas, &parts, &mut errors);
    errors
}
