//! `kubectl get jobs`.

use k8s_openapi::api::batch::v1::Job;

use crate::apps::workload;
use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Status", "Running, Complete, Failed and the states between."),
    table::text("Completions", "How many pods have succeeded, of how many wanted."),
    table::text("Duration", "How long it has run, or ran."),
    table::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

pub fn row(object: &Job, now: Timestamp) -> Vec<Value> {
    let spec = object.spec.clone().unwrap_or_default();
    let status = object.status.clone().unwrap_or_default();
    let succeeded = status.succeeded.unwrap_or_default();
    let completions = match (spec.completions, spec.parallelism.unwrap_or_default()) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let duration = status.start_time.as_ref().map_or_else(String::new, |start| {
        let end = status.completion_time.as_ref().map_or(now.as_micros(), |t| t.0.as_microsecond());
        table::duration(end - start.0.as_microsecond())
    });
    let (containers, images) = workload::containers_and_images(Some(&spec.template));
    vec![
        table::name(&object.metadata),
        state(object).into(),
        completions.into(),
        duration.into(),
        table::age(&object.metadata, now),
        containers,
        images,
        workload::selector_cell(spec.selector.as_ref()),
    ]
}

fn state(object: &Job) -> &'static str {
    let conditions = object.status.as_ref().map(|s| items(&s.conditions)).unwrap_or_default();
    let holds = |type_: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == "True");
    if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if object.metadata.deletion_timestamp.is_some() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}
