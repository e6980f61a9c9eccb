//! What a CronJob must be.

use k8s_openapi::api::batch::v1::CronJob;
use wheelhouse_meta::validation as names;

use super::schedule;
use crate::batch::job;
use crate::core::pod::validate::one_of;
use crate::prelude::*;

/// The longest name in bytes: its jobs' names have eleven more.
const MAX_NAME: usize = 52;

pub fn create(object: &CronJob) -> ErrorList {
    let mut errors = ErrorList::new();
    spec(object, None, &mut errors);
    let name = text(&object.metadata.name);
    if name.len() > MAX_NAME {
        let why = format!("must be no more than {MAX_NAME} characters");
        errors.push(FieldError::invalid(&Path::new("metadata").child("name"), name, why));
    }
    errors
}

pub fn update(new: &CronJob, old: &CronJob) -> ErrorList {
    let mut errors = ErrorList::new();
    spec(new, Some(old), &mut errors);
    errors
}

fn spec(object: &CronJob, old: Option<&CronJob>, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let spec = object.spec.clone();
    let here = path.child("schedule");
    if spec.schedule.is_empty() {
        errors.push(FieldError::required(&here, ""));
    } else {
        if let Err(why) = schedule::check(&without_zone(&spec.schedule)) {
            errors.push(FieldError::invalid(&here, &spec.schedule, why));
        }
        // A zone in the schedule itself was never meant to work; what has one already may keep it.
        let zoned = spec.schedule.contains("TZ");
        let kept = old.is_some_and(|o| o.spec.schedule == spec.schedule);
        if zoned && spec.time_zone.is_some() {
            let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.push(FieldError::invalid(&here, &spec.schedule, why));
        } else if zoned && !kept {
            let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(FieldError::invalid(&here, &spec.schedule, why));
        }
    }
    if let Some(zone) = &spec.time_zone {
        let here = path.child("timeZone");
        if zone.is_empty() {
            errors.push(FieldError::invalid(&here, zone, "timeZone must be nil or non-empty string"));
        } else if zone.eq_ignore_ascii_case("local") {
            let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
            errors.push(FieldError::invalid(&here, zone, why));
        } else if let Err(why) = super::zone::load(zone) {
            errors.push(FieldError::invalid(&here, zone, why));
        }
    }
    if let Some(seconds) = spec.starting_deadline_seconds {
        errors.extend(names::nonnegative(seconds, &path.child("startingDeadlineSeconds")));
    }
    one_of(text(&spec.concurrency_policy), &["Allow", "Forbid", "Replace"], &path.child("concurrencyPolicy"), errors);
    let jobs = path.child("jobTemplate");
    let jobs = jobs.child("spec");
    let job_spec = spec.job_template.spec.clone().unwrap_or_default();
    job::validate::spec(&job_spec, &jobs, errors);
    if job_spec.manual_selector == Some(true) {
        errors.push(FieldError::not_supported(&jobs.child("manualSelector"), true, &["nil", "false"]));
    }
    let limits = [("successfulJobsHistoryLimit", spec.successful_jobs_history_limit), ("failedJobsHistoryLimit", spec.failed_jobs_history_limit)];
    validation::nonnegative(&limits, &path, errors);
}

/// The schedule after `TZ=…` or `CRON_TZ=…`.
fn without_zone(schedule: &str) -> String {
    match schedule.split_once(' ') {
        Some((zone, rest)) if zone.starts_with("TZ=") || zone.starts_with("CRON_TZ=") => rest.to_owned(),
        _ => schedule.to_owned(),
    }
}
