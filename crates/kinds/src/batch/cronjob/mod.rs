//! CronJob: a Job at every tick of a schedule.

mod columns;
mod schedule;
mod validate;
mod zone;

pub mod reconcile;

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus};

use crate::core::pod::defaults::or_text;
use crate::core::pod::template;
use crate::prelude::*;

pub struct CronJobKind;

impl TypedKind for CronJobKind {
    type Object = CronJob;

    const INFO: KindInfo = KindInfo {
        short_names: &["cj"],
        categories: &["all"],
        subresources: &[subresource::STATUS],
        generation: true,
        ..KindInfo::namespaced("batch", "v1", "CronJob", "cronjobs", "cronjob")
    };

    fn default(object: &mut CronJob) {
        let spec = &mut object.spec;
        or_text(&mut spec.concurrency_policy, "Allow");
        spec.suspend.get_or_insert(false);
        spec.successful_jobs_history_limit.get_or_insert(3);
        spec.failed_jobs_history_limit.get_or_insert(1);
        template::apply_defaults(&mut spec.job_template.spec.get_or_insert_default().template);
    }

    fn prepare_create(object: &mut CronJob, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(CronJobStatus::default());
        validate::create(object).into()
    }

    fn prepare_update(new: &mut CronJob, old: &CronJob, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return Verdict::default();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &CronJob, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
