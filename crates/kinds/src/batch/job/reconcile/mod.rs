//! Controllers keyed by a Job.

mod backoff;
mod indexes;
mod job_controller;
mod pods;
mod policies;
mod tracking;
mod ttl_after_finished_controller;

pub use job_controller::JobController;
pub use ttl_after_finished_controller::TtlAfterFinishedController;

use k8s_openapi::api::batch::v1::{Job, JobCondition};

use crate::validation::items;
use crate::view::ResourceName;

const JOBS: ResourceName = ResourceName::new("batch", "jobs");
const PODS: ResourceName = ResourceName::new("", "pods");

fn condition<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref().map(|status| items(&status.conditions)).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")
}

/// The condition that ended the job.
pub fn finished(job: &Job) -> Option<&JobCondition> {
    condition(job, "Complete").or_else(|| condition(job, "Failed"))
}
