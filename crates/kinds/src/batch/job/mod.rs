//! Job: pods that run until enough of them have succeeded.
//!
//! Unless asked otherwise a job makes its own selector out of its uid, so that no two jobs ever share pods.

mod columns;
mod defaults;
mod failure_policy;
pub mod reconcile;
pub mod strategy;
mod success_policy;
pub mod validate;

use k8s_openapi::api::batch::v1::Job;

use crate::prelude::*;

pub struct JobKind;

impl TypedKind for JobKind {
    type Object = Job;

    const INFO: KindInfo = KindInfo {
        categories: &["all"],
        subresources: &[subresource::STATUS],
        generation: true,
        ..KindInfo::namespaced("batch", "v1", "Job", "jobs", "job")
    };

    fn default(object: &mut Job) {
        defaults::apply(object);
    }

    fn prepare_create(object: &mut Job, _: &RequestContext<'_>) -> Verdict {
        strategy::create(object);
        validate::create(object).into()
    }

    fn prepare_update(new: &mut Job, old: &Job, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Job, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }

    const SELECTABLE: &'static [&'static str] = &["status.successful"];

    fn selectable_fields(object: &Job) -> Vec<(&'static str, String)> {
        let succeeded = object.status.as_ref().and_then(|s| s.succeeded).unwrap_or_default();
        vec![("status.successful", succeeded.to_string())]
    }
}
