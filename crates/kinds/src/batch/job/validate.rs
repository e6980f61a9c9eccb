//! What a Job must be.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use wheelhouse_meta::validation as names;

use super::strategy::{CONTROLLER_UID, pod_labels};
use super::{failure_policy, success_policy};
use crate::core::pod::template;
use crate::core::pod::validate::one_of;
use crate::prelude::*;

/// What an indexed job may have at once, and may see fail.
const MAX_INDEXED_PARALLELISM: i32 = 100_000;
const MAX_FAILED_INDEXES: i32 = 100_000;
/// In bytes.
const MAX_MANAGED_BY: usize = 63;

const TEMPLATE: &str = "io.k8s.api.core.v1.PodTemplateSpec";

pub fn create(object: &Job) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let job = object.spec.clone().unwrap_or_default();
    generated_selector(object, &job, &path, &mut errors);
    with_selector(&job, &path, &mut errors);
    if text(&job.completion_mode) == "Indexed"
        && let Some(last) = job.completions.filter(|c| *c > 0)
    {
        // The last pod has the longest name.
        let pod = format!("{}-{}", text(&object.metadata.name), last - 1);
        for _ in names::dns1123_label(&pod) {
            let why = format!("will not able to create pod with invalid DNS label: {pod}");
            errors.push(FieldError::invalid(&Path::new("metadata").child("name"), text(&object.metadata.name), why));
        }
    }
    errors
}

/// A selector that the job was to make itself must be the one that it makes.
fn generated_selector(object: &Job, job: &JobSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(selector) = job.selector.as_ref().filter(|_| job.manual_selector != Some(true)) else { return };
    let of_pods = job.template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    let here = path.child("template");
    let here = here.child("metadata");
    let here = here.child("labels");
    for (key, expected) in pod_labels(object) {
        match of_pods.get(key) {
            None => errors.push(FieldError::required(&here, format!("must be '{expected}'"))),
            Some(value) if *value != expected => {
                errors.push(FieldError::invalid(&here.key(key), value, format!("must be '{expected}'")));
            }
            Some(_) => {}
        }
    }
    let own =
        LabelSelector { match_labels: Some([(CONTROLLER_UID.to_owned(), text(&object.metadata.uid).to_owned())].into()), match_expressions: None };
    if *selector != own {
        let shown = validation::ordered(selector, validation::LABEL_SELECTOR);
        errors.push(FieldError::invalid(&path.child("selector"), shown, "`selector` not auto-generated"));
    }
}

fn with_selector(job: &JobSpec, path: &Path<'_>, errors: &mut ErrorList) {
    spec(job, path, errors);
    let labels = job.template.metadata.as_ref().and_then(|m| m.labels.clone());
    let matches = match &job.selector {
        None => {
            errors.push(FieldError::required(&path.child("selector"), ""));
            false
        }
        Some(selector) => {
            validation::label_selector(selector, &path.child("selector"), errors);
            validation::selects(selector, &labels)
        }
    };
    if !matches {
        template::mismatch(&labels, &path.child("template"), errors);
    }
}

/// Shared with CronJob, whose jobs have no selector yet.
pub fn spec(job: &JobSpec, path: &Path<'_>, errors: &mut ErrorList) {
    validation::nonnegative(&[("parallelism", job.parallelism), ("completions", job.completions)], path, errors);
    if let Some(seconds) = job.active_deadline_seconds {
        errors.extend(names::nonnegative(seconds, &path.child("activeDeadlineSeconds")));
    }
    let counts = [
        ("backoffLimit", job.backoff_limit),
        ("ttlSecondsAfterFinished", job.ttl_seconds_after_finished),
        ("backoffLimitPerIndex", job.backoff_limit_per_index),
        ("maxFailedIndexes", job.max_failed_indexes),
    ];
    validation::nonnegative(&counts, path, errors);
    if let Some(most) = job.max_failed_indexes.filter(|m| *m > MAX_FAILED_INDEXES) {
        let why = format!("must be less than or equal to {MAX_FAILED_INDEXES}");
        errors.push(FieldError::invalid(&path.child("maxFailedIndexes"), most, why));
    }
    if let Some(manager) = &job.managed_by {
        managed_by(manager, &path.child("managedBy"), errors);
    }
    completion_mode(job, path, errors);
    if let Some(policy) = &job.pod_failure_policy {
        failure_policy::validate(job, policy, &path.child("podFailurePolicy"), errors);
    }
    if let Some(policy) = &job.success_policy {
        let path = path.child("successPolicy");
        if text(&job.completion_mode) == "Indexed" {
            success_policy::validate(job, policy, &path, errors);
        } else {
            let shown = validation::untagged(policy, "io.k8s.api.batch.v1.SuccessPolicy");
            errors.push(FieldError::invalid(&path, shown, "requires indexed completion mode"));
        }
    }
    if let Some(policy) = &job.pod_replacement_policy {
        let allowed: &[&str] = if job.pod_failure_policy.is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        one_of(policy, allowed, &path.child("podReplacementPolicy"), errors);
    }
    let here = path.child("template");
    template::validate(&job.template, &here, errors);
    let here = here.child("spec");
    let here = here.child("restartPolicy");
    match job.template.spec.as_ref().map(|s| text(&s.restart_policy)).unwrap_or_default() {
        "Never" => {}
        "OnFailure" if job.pod_failure_policy.is_none() => {}
        "OnFailure" => {
            errors.push(FieldError::invalid(&here, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified"));
        }
        _ => errors.push(FieldError::required(&here, "valid values: \"OnFailure\", \"Never\"")),
    }
}

fn completion_mode(job: &JobSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let mode = job.completion_mode.as_deref();
    if let Some(mode) = mode {
        one_of(mode, &["NonIndexed", "Indexed"], &path.child("completionMode"), errors);
    }
    if mode == Some("Indexed") {
        if job.completions.is_none() {
            errors.push(FieldError::required(&path.child("completions"), "when completion mode is Indexed"));
        }
        if let Some(parallelism) = job.parallelism.filter(|p| *p > MAX_INDEXED_PARALLELISM) {
            let why = format!("must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is Indexed");
            errors.push(FieldError::invalid(&path.child("parallelism"), parallelism, why));
        }
        if let (Some(completions), Some(failed)) = (job.completions, job.max_failed_indexes)
            && failed > completions
        {
            errors.push(FieldError::invalid(&path.child("maxFailedIndexes"), failed, "must be less than or equal to completions"));
        }
    }
    if matches!(mode, None | Some("NonIndexed")) {
        for (field, value) in [("backoffLimitPerIndex", job.backoff_limit_per_index), ("maxFailedIndexes", job.max_failed_indexes)] {
            if let Some(value) = value {
                errors.push(FieldError::invalid(&path.child(field), value, "requires indexed completion mode"));
            }
        }
    }
    if job.max_failed_indexes.is_some() && job.backoff_limit_per_index.is_none() {
        errors.push(FieldError::required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"));
    }
}

/// `domain/path`.
fn managed_by(manager: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let sound = manager.split_once('/').is_some_and(|(domain, rest)| names::dns1123_subdomain(domain).is_empty() && !rest.is_empty());
    if !sound {
        errors.push(FieldError::invalid(path, manager, "must be a domain-prefixed path (such as \"acme.io/foo\")"));
    } else if manager.len() > MAX_MANAGED_BY {
        errors.push(FieldError::too_long(path, MAX_MANAGED_BY));
    }
}

pub fn update(new: &Job, old: &Job) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    // A job that was stopped before it started may still be sent elsewhere.
    let unstarted = old.spec.as_ref().and_then(|s| s.suspend) == Some(true) && old.status.as_ref().is_none_or(|s| s.start_time.is_none());
    let (new, old) = (new.spec.clone().unwrap_or_default(), old.spec.clone().unwrap_or_default());
    // Upstream validates the new object once for itself and once more as part of the update, and clients see both.
    with_selector(&new, &path, &mut errors);
    with_selector(&new, &path, &mut errors);
    completions(&new, &old, &path.child("completions"), &mut errors);
    if new.selector != old.selector {
        let selector = new.selector.clone().unwrap_or_default();
        errors.push(FieldError::immutable(&path.child("selector"), validation::ordered(&selector, validation::LABEL_SELECTOR)));
    }
    let before = if unstarted { redirected(&old.template, &new.template) } else { old.template.clone() };
    if new.template != before {
        errors.push(FieldError::immutable(&path.child("template"), validation::untagged(&new.template, TEMPLATE)));
    }
    if new.completion_mode != old.completion_mode {
        errors.push(FieldError::immutable(&path.child("completionMode"), new.completion_mode.clone()));
    }
    if new.pod_failure_policy != old.pod_failure_policy {
        let shown = validation::untagged(&new.pod_failure_policy, "io.k8s.api.batch.v1.PodFailurePolicy");
        errors.push(FieldError::immutable(&path.child("podFailurePolicy"), shown));
    }
    if new.backoff_limit_per_index != old.backoff_limit_per_index {
        errors.push(FieldError::immutable(&path.child("backoffLimitPerIndex"), new.backoff_limit_per_index));
    }
    if new.managed_by != old.managed_by {
        errors.push(FieldError::immutable(&path.child("managedBy"), new.managed_by.clone()));
    }
    if new.success_policy != old.success_policy {
        let shown = validation::untagged(&new.success_policy, "io.k8s.api.batch.v1.SuccessPolicy");
        errors.push(FieldError::immutable(&path.child("successPolicy"), shown));
    }
    errors
}

/// The old template with what says where its pods go taken from the new.
fn redirected(old: &PodTemplateSpec, new: &PodTemplateSpec) -> PodTemplateSpec {
    let mut out = old.clone();
    let (metadata, given) = (out.metadata.get_or_insert_default(), new.metadata.clone().unwrap_or_default());
    metadata.labels = given.labels;
    metadata.annotations = given.annotations;
    let (spec, given) = (out.spec.get_or_insert_default(), new.spec.clone().unwrap_or_default());
    spec.node_selector = given.node_selector;
    spec.tolerations = given.tolerations;
    spec.scheduling_gates = given.scheduling_gates;
    match (spec.affinity.as_mut(), given.affinity) {
        (Some(affinity), Some(given)) => affinity.node_affinity = given.node_affinity,
        (None, given) => spec.affinity = given,
        (Some(_), None) => {}
    }
    out
}

/// The number of indexes changes only together with the parallelism.
fn completions(new: &JobSpec, old: &JobSpec, path: &Path<'_>, errors: &mut ErrorList) {
    if new.completions == old.completions {
        return;
    }
    let indexed = text(&new.completion_mode) == "Indexed";
    match (new.completions, old.completions) {
        (Some(completions), Some(_)) if indexed => {
            if new.parallelism != Some(completions) {
                errors.push(FieldError::invalid(path, completions, "can only be modified in tandem with spec.parallelism"));
            }
        }
        (completions, _) => errors.push(FieldError::immutable(path, completions)),
    }
}

pub fn status(object: &Job) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = object.status.clone().unwrap_or_default();
    let path = Path::new("status");
    let counts = [("active", status.active), ("succeeded", status.succeeded), ("failed", status.failed)];
    validation::nonnegative(&counts, &path, &mut errors);
    validation::nonnegative(&[("ready", status.ready), ("terminating", status.terminating)], &path, &mut errors);
    let holds = |type_: &str| items(&status.conditions).iter().any(|c| c.type_ == type_ && c.status == "True");
    let (complete, failed) = (holds("Complete"), holds("Failed"));
    let conditions = path.child("conditions");
    let mut refuse = |why: &str| errors.push(FieldError::invalid(&conditions, BadValue::Omitted, why));
    if complete && failed {
        refuse("cannot set Complete=True and Failed=true conditions");
    }
    if complete && status.completion_time.is_none() {
        errors.push(FieldError::required(&path.child("completionTime"), "completionTime is required for Complete jobs"));
    }
    let mut refuse = |why: &str| errors.push(FieldError::invalid(&conditions, BadValue::Omitted, why));
    if complete && !holds("SuccessCriteriaMet") {
        refuse("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    if failed && !holds("FailureTarget") {
        refuse("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if let Some(active) = status.active.filter(|a| *a > 0 && (complete || failed)) {
        errors.push(FieldError::invalid(&path.child("active"), active, "active>0 is invalid for finished job"));
    }
    errors
}
