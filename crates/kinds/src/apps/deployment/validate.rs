//! What a Deployment must be.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::apps::workload;
use crate::prelude::*;

pub fn create(object: &Deployment, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    validation::nonnegative(&[("replicas", spec.replicas)], &path, &mut errors);
    if workload::selector(&spec.selector, "deployment", cx, &path.child("selector"), &mut errors) {
        workload::replicated_template(&spec.template, &spec.selector, cx, &path.child("template"), &mut errors);
    }
    strategy(&spec.strategy.clone().unwrap_or_default(), &path.child("strategy"), &mut errors);
    validation::nonnegative(
        &[("minReadySeconds", spec.min_ready_seconds), ("revisionHistoryLimit", spec.revision_history_limit)],
        &path,
        &mut errors,
    );
    if let Some(seconds) = spec.progress_deadline_seconds {
        validation::nonnegative(&[("progressDeadlineSeconds", Some(seconds))], &path, &mut errors);
        if seconds <= spec.min_ready_seconds.unwrap_or_default() {
            errors.push(FieldError::invalid(&path.child("progressDeadlineSeconds"), seconds, "must be greater than minReadySeconds"));
        }
    }
    errors
}

fn strategy(strategy: &DeploymentStrategy, path: &Path<'_>, errors: &mut ErrorList) {
    let rolling = path.child("rollingUpdate");
    match (text(&strategy.type_), &strategy.rolling_update) {
        ("Recreate", None) => {}
        ("Recreate", Some(_)) => {
            errors.push(FieldError::forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'"));
        }
        ("RollingUpdate", None) => errors.push(FieldError::required(&rolling, "this should be defaulted and never be nil")),
        ("RollingUpdate", Some(update)) => rolling_update(update, &rolling, errors),
        _ => {
            let shown = validation::untagged(strategy, "io.k8s.api.apps.v1.DeploymentStrategy");
            errors.push(FieldError::not_supported(path, shown, &["Recreate", "RollingUpdate"]));
        }
    }
}

fn rolling_update(update: &RollingUpdateDeployment, path: &Path<'_>, errors: &mut ErrorList) {
    let zero = IntOrString::Int(0);
    let (unavailable, surge) = (update.max_unavailable.as_ref().unwrap_or(&zero), update.max_surge.as_ref().unwrap_or(&zero));
    let unavailable_path = path.child("maxUnavailable");
    validation::count_or_percent(unavailable, &unavailable_path, errors);
    validation::count_or_percent(surge, &path.child("maxSurge"), errors);
    if is_zero(unavailable) && is_zero(surge) {
        errors.push(FieldError::invalid(&unavailable_path, validation::shown(unavailable), "may not be 0 when `maxSurge` is 0"));
    }
    validation::at_most_all(unavailable, &unavailable_path, errors);
}

/// Zero, or no number at all.
fn is_zero(value: &IntOrString) -> bool {
    match value {
        IntOrString::Int(number) => *number == 0,
        text => validation::percent_of(text).unwrap_or_default() == 0,
    }
}

pub fn update(new: &Deployment, old: &Deployment, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = create(new, cx);
    if let (Some(new), Some(old)) = (&new.spec, &old.spec) {
        workload::selector_is_unchanged(&new.selector, &old.selector, cx, &Path::new("spec").child("selector"), &mut errors);
    }
    errors
}

pub fn status(new: &Deployment, old: &Deployment) -> ErrorList {
    let mut errors = ErrorList::new();
    let (new, old) = (new.status.clone().unwrap_or_default(), old.status.clone().unwrap_or_default());
    let path = Path::new("status");
    let parts = [("updatedReplicas", new.updated_replicas), ("readyReplicas", new.ready_replicas), ("availableReplicas", new.available_replicas)];
    workload::replica_counts(new.replicas.unwrap_or_default(), new.ready_replicas, new.available_replicas, &parts, &mut errors);
    let further = [("unavailableReplicas", new.unavailable_replicas), ("collisionCount", new.collision_count)];
    validation::nonnegative(&further, &path, &mut errors);
    if let Some(count) = new.observed_generation {
        errors.extend(wheelhouse_meta::validation::nonnegative(count, &path.child("observedGeneration")));
    }
    // Names of ReplicaSets would come round again.
    match (new.collision_count, old.collision_count) {
        (None, Some(_)) => errors.push(FieldError::invalid(&path.child("collisionCount"), BadValue::Null, "cannot be decremented")),
        (Some(new), Some(old)) if new < old => {
            errors.push(FieldError::invalid(&path.child("collisionCount"), new, "cannot be decremented"));
        }
        _ => {}
    }
    errors
}
