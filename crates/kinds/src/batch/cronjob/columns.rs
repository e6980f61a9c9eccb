//! `kubectl get cronjobs`.

use k8s_openapi::api::batch::v1::CronJob;

use crate::apps::workload;
use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Schedule", "When it makes a job."),
    table::text("Timezone", "The zone of the schedule."),
    table::boolean("Suspend", "Whether it makes none for now."),
    table::integer("Active", "How many of its jobs are running."),
    table::text("Last Schedule", "Time since it made its last job."),
    table::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

pub fn row(object: &CronJob, now: Timestamp) -> Vec<Value> {
    let spec = object.spec.clone();
    let status = object.status.clone().unwrap_or_default();
    let job = spec.job_template.spec.clone().unwrap_or_default();
    let last = status.last_schedule_time.as_ref().map_or_else(|| "<none>".to_owned(), |t| table::since(Some(t), now));
    let (containers, images) = workload::containers_and_images(Some(&job.template));
    vec![
        table::name(&object.metadata),
        spec.schedule.as_str().into(),
        spec.time_zone.as_deref().unwrap_or("<none>").into(),
        // The cell is text under a column of booleans, as upstream has it.
        if spec.suspend == Some(true) { "True".into() } else { "False".into() },
        items(&status.active).len().into(),
        last.into(),
        table::age(&object.metadata, now),
        containers,
        images,
        workload::selector_cell(job.selector.as_ref()),
    ]
}
