//! `cronjob-controller`: makes a job at every tick of a schedule.
//!
//! A job's name follows from the minute that it is for, so that a tick never makes two. A plan creates the job; the next call finds it and writes it into
//! the status together with its tick. Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/>.

mod timetable;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff;
use k8s_openapi::jiff::tz::TimeZone;
use serde_json::{Value, json};
use wheelhouse_base::Timestamp;

use super::zone;
use crate::batch::job::reconcile::finished;
use crate::owned::{controller_of, controller_reference};
use crate::plan::{EventNote, EventType, Operation, Plan, Propagation};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::{api_time, timestamp};
use crate::validation::text;
use crate::view::{Key, ResourceName, View};
use timetable::Timetable;

const CRON_JOBS: ResourceName = ResourceName::new("batch", "cronjobs");
const JOBS: ResourceName = ResourceName::new("batch", "jobs");
/// The tick that a job is for, in the schedule's time zone.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Missed ticks above which something is wrong with clocks or deadlines.
const MANY_MISSED: i64 = 100;
/// How long after a tick it is looked at, so that clocks which differ a little agree that it has come.
const DELAY: Duration = Duration::from_millis(100);

pub struct CronJobController;

/// One CronJob with its jobs, and the status as it will be.
struct Sync<'a> {
    cron: &'a CronJob,
    jobs: Vec<Arc<Job>>,
    status: CronJobStatus,
    now: Timestamp,
}

/// Where a schedule stands.
struct Ticks {
    earliest: Timestamp,
    /// The last tick that has come and not been seen to.
    due: Option<Timestamp>,
    missed: i64,
}

impl Reconciler for CronJobController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "cronjob-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        vec![Trigger::itself(CRON_JOBS), Trigger::controller_of::<CronJob>(JOBS)]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(cron) = view.get::<CronJob>(&key.namespace, &key.name) else { return plan };
        let uid = text(&cron.metadata.uid);
        let jobs = view.owned_by::<Job>(uid).filter(|job| controller_of(&job.metadata).is_some_and(|owner| owner.uid == uid)).collect();
        let mut sync = Sync { cron: &cron, jobs, status: cron.status.clone().unwrap_or_default(), now: cx.now };
        if let Some(failure) = cx.failure.filter(|failure| failure.resource == JOBS && !matches!(failure.code, 404 | 409)) {
            plan.events.push(sync.note(EventType::Warning, "FailedCreate", format!("Error creating job: {}", failure.message)));
        }
        let history = sync.clean_up(&mut plan);
        sync.look_at_jobs(&mut plan);
        let work = if cron.metadata.deletion_timestamp.is_none() { sync.tick(view, &mut plan) } else { Vec::new() };
        if sync.status.active.as_ref().is_some_and(Vec::is_empty) {
            sync.status.active = None;
        }
        if cron.status.as_ref() != Some(&sync.status) {
            plan.operations.push(Operation::status(&*cron, &sync.status));
        }
        plan.operations.extend(history);
        plan.operations.extend(work);
        plan
    }
}

impl Sync<'_> {
    fn note(&self, kind_of_event: EventType, reason: &str, message: String) -> EventNote {
        EventNote::about::<CronJob>(&self.cron.metadata, kind_of_event, reason, message)
    }

    /// Deletes the oldest finished jobs beyond the limits.
    fn clean_up(&mut self, plan: &mut Plan) -> Vec<Operation> {
        let spec = &self.cron.spec;
        let mut operations = Vec::new();
        let mut gone = Vec::new();
        for (kind, limit) in [("Failed", spec.failed_jobs_history_limit), ("Complete", spec.successful_jobs_history_limit)] {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
            let mut ended: Vec<&Arc<Job>> = self.jobs.iter().filter(|job| finished(job).is_some_and(|condition| condition.type_ == kind)).collect();
            ended.retain(|job| job.metadata.deletion_timestamp.is_none());
            ended.sort_by_key(|job| {
                let started = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(timestamp);
                (started.is_none(), started, job.metadata.name.clone())
            });
            let surplus = ended.len().saturating_sub(limit);
            for job in ended.into_iter().take(surplus) {
                operations.push(self.delete(job, plan));
                gone.push(text(&job.metadata.uid).to_owned());
            }
        }
        self.jobs.retain(|job| !gone.contains(&text(&job.metadata.uid).to_owned()));
        self.status.active.get_or_insert_default().retain(|active| active.uid.as_ref().is_none_or(|uid| !gone.contains(uid)));
        operations
    }

    fn delete(&self, job: &Job, plan: &mut Plan) -> Operation {
        plan.events.push(self.note(EventType::Normal, "SuccessfulDelete", format!("Deleted job {}", text(&job.metadata.name))));
        let mut operation = Operation::delete::<Job>(&job.metadata);
        if let Operation::Delete { options, .. } = &mut operation {
            options.propagation = Some(Propagation::Background);
        }
        operation
    }

    /// Brings `status.active` and `lastSuccessfulTime` in line with the jobs that are there.
    fn look_at_jobs(&mut self, plan: &mut Plan) {
        let mut active = self.status.active.take().unwrap_or_default();
        for job in &self.jobs {
            let at = active.iter().position(|known| known.uid == job.metadata.uid);
            let name = text(&job.metadata.name);
            match (at, finished(job)) {
                // A job of its own tick is noted by `tick`.
                (None, None) if annotation(job).is_none() => {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    plan.events.push(self.note(EventType::Warning, "UnexpectedJob", message));
                }
                (Some(at), Some(condition)) => {
                    active.remove(at);
                    let message = format!("Saw completed job: {name}, condition: {}", condition.type_);
                    plan.events.push(self.note(EventType::Normal, "SawCompletedJob", message));
                }
                _ => {}
            }
            let ended = job.status.as_ref().and_then(|status| status.completion_time.clone());
            if finished(job).is_some_and(|condition| condition.type_ == "Complete")
                && ended.as_ref().map(|time| time.0) > self.status.last_successful_time.as_ref().map(|time| time.0)
            {
                self.status.last_successful_time = ended;
            }
        }
        active.retain(|known| {
            let there = self.jobs.iter().any(|job| job.metadata.uid == known.uid);
            if !there {
                plan.events.push(self.note(EventType::Normal, "MissingJob", format!("Active job went missing: {}", text(&known.name))));
            }
            there
        });
        self.status.active = Some(active);
    }

    /// What the schedule asks for now.
    fn tick(&mut self, view: &View, plan: &mut Plan) -> Vec<Operation> {
        let spec = &self.cron.spec;
        let name = spec.time_zone.as_deref().unwrap_or_default();
        let zone = match zone::load(name) {
            Ok(zone) => zone,
            Err(error) => {
                plan.events.push(self.note(EventType::Warning, "UnknownTimeZone", format!("invalid timeZone: {name:?}: {error}")));
                return Vec::new();
            }
        };
        self.note_made(view);
        if spec.suspend == Some(true) {
            return Vec::new();
        }
        let table = match Timetable::parse(&spec.schedule) {
            Ok(table) => table,
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
                plan.events.push(self.note(EventType::Warning, "UnparseableSchedule", message));
                return Vec::new();
            }
        };
        let ticks = self.ticks(&table, &zone, true);
        if ticks.missed > MANY_MISSED {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            plan.events.push(self.note(EventType::Warning, "TooManyMissedTimes", message.into()));
        }
        let work = ticks.due.map(|due| self.start(due, view, &zone, plan)).unwrap_or_default();
        let ticks = self.ticks(&table, &zone, false);
        // From the last tick, so that an `@every` keeps its beat.
        let from = ticks.due.unwrap_or(if ticks.missed == 0 { ticks.earliest } else { self.now });
        if let Some(next) = table.next(from, &zone) {
            plan.requeue_no_later_than(if next > self.now { next } else { self.now }.plus(DELAY));
        }
        work
    }

    fn ticks(&self, table: &Timetable, zone: &TimeZone, with_deadline: bool) -> Ticks {
        let created = self.cron.metadata.creation_timestamp.as_ref().map_or(self.now, timestamp);
        let mut earliest = self.status.last_schedule_time.as_ref().map_or(created, timestamp);
        if let Some(seconds) = self.cron.spec.starting_deadline_seconds.filter(|_| with_deadline) {
            earliest = earliest.max(Timestamp::from_micros(self.now.as_micros().saturating_sub(seconds.saturating_mul(1_000_000))));
        }
        let none = Ticks { earliest, due: None, missed: 0 };
        let Some(first) = table.next(earliest, zone).filter(|first| *first <= self.now) else { return none };
        let Some(second) = table.next(first, zone).filter(|second| *second <= self.now) else { return Ticks { due: Some(first), ..none } };
        let interval = (second.as_secs() - first.as_secs()).max(1);
        let missed = (self.now.as_secs() - first.as_secs()) / interval + 1;
        // Near the end, and one interval back, since intervals differ.
        let from = Timestamp::from_secs(first.as_secs() + (missed - 2).max(0) * interval);
        let later = std::iter::successors(table.next(from, zone), |tick| table.next(*tick, zone));
        let due = later.take_while(|tick| *tick <= self.now).last().unwrap_or(second);
        Ticks { earliest, due: Some(due), missed }
    }

    /// The job of a tick, unless it is too late, made already, or another must end first.
    fn start(&mut self, due: Timestamp, view: &View, zone: &TimeZone, plan: &mut Plan) -> Vec<Operation> {
        let spec = &self.cron.spec;
        let deadline = spec.starting_deadline_seconds.map(|seconds| due.plus(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))));
        if deadline.is_some_and(|deadline| deadline < self.now) {
            let at = jiff::Timestamp::from_second(due.as_secs()).unwrap_or_default().strftime("%a, %d %b %Y %H:%M:%S +0000");
            plan.events.push(self.note(EventType::Warning, "MissSchedule", format!("Missed scheduled time to start a job: {at}")));
            return Vec::new();
        }
        let namespace = text(&self.cron.metadata.namespace);
        let name = self.job_name(due);
        let done = self.status.last_schedule_time.as_ref().map(timestamp) == Some(due);
        if done || view.get::<Job>(namespace, &name).is_some() {
            return Vec::new();
        }
        let running: Vec<Arc<Job>> = self.jobs.iter().filter(|job| finished(job).is_none()).cloned().collect();
        let mut operations = Vec::new();
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if !running.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                plan.events.push(self.note(EventType::Normal, "JobAlreadyActive", message.into()));
                return Vec::new();
            }
            Some("Replace") => {
                for job in running.iter().filter(|job| job.metadata.deletion_timestamp.is_none()) {
                    operations.push(self.delete(job, plan));
                    self.status.active.get_or_insert_default().retain(|active| active.uid != job.metadata.uid);
                }
            }
            _ => {}
        }
        operations.push(Operation::Create { resource: JOBS, namespace: namespace.to_owned(), object: self.job(&name, due, zone) });
        plan.events.push(self.note(EventType::Normal, "SuccessfulCreate", format!("Created job {name}")));
        operations
    }

    /// Puts jobs that ticks have made into the status.
    fn note_made(&mut self, view: &View) {
        let last = self.status.last_schedule_time.as_ref().map(timestamp);
        for job in self.jobs.clone() {
            let Some(due) = annotation(&job).and_then(parse).filter(|due| self.job_name(*due) == text(&job.metadata.name)) else {
                continue;
            };
            if last.is_none_or(|last| due > last) && self.status.last_schedule_time.as_ref().is_none_or(|time| timestamp(time) < due) {
                self.status.last_schedule_time = Some(api_time(due));
            }
            let active = self.status.active.get_or_insert_default();
            let known = active.iter().any(|known| known.uid == job.metadata.uid);
            if !known && finished(&job).is_none() && job.metadata.deletion_timestamp.is_none() && view.by_uid(text(&job.metadata.uid)).is_some() {
                active.push(ObjectReference {
                    api_version: Some("batch/v1".into()),
                    kind: Some("Job".into()),
                    name: job.metadata.name.clone(),
                    namespace: job.metadata.namespace.clone(),
                    resource_version: job.metadata.resource_version.clone(),
                    uid: job.metadata.uid.clone(),
                    field_path: None,
                });
            }
        }
    }

    fn job_name(&self, due: Timestamp) -> String {
        format!("{}-{}", text(&self.cron.metadata.name), due.as_secs() / 60)
    }

    fn job(&self, name: &str, due: Timestamp, zone: &TimeZone) -> Value {
        let meta = &self.cron.metadata;
        let template = &self.cron.spec.job_template;
        let given = template.metadata.clone().unwrap_or_default();
        let mut annotations = given.annotations.unwrap_or_default();
        annotations.insert(SCHEDULED.to_owned(), shown(due, zone));
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": name, "namespace": meta.namespace, "labels": given.labels.unwrap_or_default(), "annotations": annotations,
                "ownerReferences": [controller_reference("batch/v1", "CronJob", meta)],
            },
            "spec": template.spec,
        })
    }
}

fn annotation(job: &Job) -> Option<&str> {
    job.metadata.annotations.as_ref()?.get(SCHEDULED).map(String::as_str)
}

/// RFC 3339 with the zone's offset, `Z` for none.
fn shown(at: Timestamp, zone: &TimeZone) -> String {
    let at = jiff::Timestamp::from_second(at.as_secs()).unwrap_or_default();
    let offset = zone.to_offset(at);
    let local = at.to_zoned(zone.clone());
    if offset.seconds() == 0 { local.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() } else { local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string() }
}

fn parse(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|at| Timestamp::from_secs(at.as_second()))
}

#[cfg(test)]
mod tests;
