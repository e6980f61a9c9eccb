//! `job-controller`: runs pods until enough have succeeded, or the job has failed.
//!
//! ```text
//! pods that ended --> their uids into status.uncountedTerminatedPods --> finalizer off --> into status.succeeded / failed
//! finish criteria --> SuccessCriteriaMet or FailureTarget, active pods deleted --> all of them gone and counted --> Complete or Failed
//! ```
//!
//! The finalizer `batch.kubernetes.io/job-tracking` holds every pod until it is counted, so that no pod is lost and none counts twice. Each step is a
//! plan of its own: the status goes first, and what it announces is done in the operations behind it. Fields and conditions:
//! <https://kubernetes.io/docs/concepts/workloads/controllers/job/>.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use wheelhouse_base::Timestamp;

use super::backoff::{Backoff, finished_at, until};
use super::indexes::Indexes;
use super::policies::{self, Verdict};
use super::{JOBS, PODS, condition, finished, pods, tracking};
use crate::core::pod::state;
use crate::owned::{Claim, claim_with_finalizer, controller_of, matches, selector, without_finalizer};
use crate::plan::{EventNote, EventType, MAX_OPERATIONS, Plan};
use crate::reconciler::{Context, Reconciler, Trigger, group_of};
use crate::time::{api_time, timestamp};
use crate::validation::{items, text};
use crate::view::{Key, ObjectChange, View};

/// Holds a pod until its end is in the job's counts.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The manager that a job has unless `spec.managedBy` names another.
const MANAGER: &str = "kubernetes.io/job-controller";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// Operations on pods in one plan; the status has a place of its own.
pub const MAX_CHANGES: usize = MAX_OPERATIONS - 1;

pub struct JobController;

/// One job and its pods, sorted out, and the status as it will be.
pub struct Sync<'a> {
    pub job: &'a Job,
    pub spec: &'a JobSpec,
    pub status: JobStatus,
    /// All that the job owns.
    pub pods: Vec<Arc<Pod>>,
    pub active: Vec<Arc<Pod>>,
    pub now: Timestamp,
    /// Succeeded pods, or indexes, those not yet in the counts with them.
    pub succeeded: i32,
    pub failed: i32,
    /// Of an indexed job.
    pub indexed: Option<IndexState>,
    /// That the job is to end, and how.
    pub finish: Option<Finish>,
}

#[derive(Default)]
pub struct IndexState {
    pub completions: u32,
    pub succeeded: Indexes,
    /// With `backoffLimitPerIndex`.
    pub failed: Option<Indexes>,
    /// The last failed pod of each index that waits for its next: it keeps its finalizer, since its annotations hold the index's failures.
    pub delayed: BTreeMap<u32, Arc<Pod>>,
}

#[derive(Clone)]
pub struct Finish {
    pub success: bool,
    pub reason: String,
    pub message: String,
}

impl Reconciler for JobController {
    type Memory = BTreeMap<Key, Backoff>;

    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let orphans = Trigger {
            resource: PODS,
            keys: |view, change: &ObjectChange| {
                let Some(pod) = change.new.as_ref().filter(|pod| controller_of(&pod.meta).is_none()) else { return Vec::new() };
                let jobs = view.list::<Job>(Some(&pod.key.namespace));
                let selecting = jobs.filter(|job| matches(&selector(job.spec.as_ref().and_then(|s| s.selector.as_ref())), pod.meta.labels.as_ref()));
                let mut keys: Vec<Key> = selecting.map(|job| Key::new(pod.key.namespace.clone(), text(&job.metadata.name))).collect();
                // Nobody may own it any more; whatever key of its namespace is looked at lets it go.
                if pod.finalizers().iter().any(|finalizer| finalizer == TRACKING) {
                    keys.push(Key::new(pod.key.namespace.clone(), pod.label(JOB_NAME).unwrap_or_default()));
                }
                keys
            },
        };
        vec![Trigger::itself(JOBS), Trigger::controller_of::<Job>(PODS), orphans]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut Self::Memory) -> Plan {
        let mut plan = Plan::default();
        let job = view.get::<Job>(&key.namespace, &key.name);
        let live = job.as_ref().filter(|job| !is_foreign(job) && finished(job).is_none());
        let Some(job) = live else {
            memory.remove(key);
            release_orphans(view, &key.namespace, false, &mut plan);
            return plan;
        };
        let Some(spec) = &job.spec else { return plan };
        let Claim { owned, operations } =
            claim_with_finalizer::<Pod>(view, &job.metadata, "batch/v1", "Job", &selector(spec.selector.as_ref()), Some(TRACKING));
        if !operations.is_empty() {
            // The pods that change bring this key back.
            plan.operations = operations;
            plan.operations.truncate(MAX_OPERATIONS);
            return plan;
        }
        Sync::sort_out(job, spec, owned, cx.now).run(view, cx, memory.entry(key.clone()).or_default(), &mut plan);
        // Last, since nothing that becomes of them brings this key back.
        release_orphans(view, &key.namespace, true, &mut plan);
        plan
    }
}

/// Another controller looks after it.
fn is_foreign(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref()).is_some_and(|manager| manager != MANAGER)
}

/// Takes the finalizer off pods that no job will count any more: they have no controller, or, unless `uncontrolled`, their job is finished or gone.
fn release_orphans(view: &View, namespace: &str, uncontrolled: bool, plan: &mut Plan) {
    for record in view.records(&PODS, Some(namespace)) {
        if plan.operations.len() >= MAX_OPERATIONS {
            return;
        }
        if !record.finalizers().iter().any(|finalizer| finalizer == TRACKING) {
            continue;
        }
        if let Some(owner) = controller_of(&record.meta) {
            if uncontrolled || owner.kind != "Job" || group_of(&owner.api_version) != "batch" {
                continue;
            }
            let job = view.by_uid(&owner.uid).and_then(|record| record.typed::<Job>());
            if job.is_some_and(|job| is_foreign(&job) || finished(&job).is_none()) {
                continue;
            }
        }
        plan.operations.extend(without_finalizer::<Pod>(&record.meta, TRACKING));
    }
}

pub fn is_tracked(pod: &Pod) -> bool {
    items(&pod.metadata.finalizers).iter().any(|finalizer| finalizer == TRACKING)
}

pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && !matches!(state::phase(pod), "Succeeded" | "Failed")
}

impl<'a> Sync<'a> {
    fn sort_out(job: &'a Job, spec: &'a JobSpec, pods: Vec<Arc<Pod>>, now: Timestamp) -> Self {
        let active = pods.iter().filter(|pod| state::is_active(pod)).cloned().collect();
        let status = job.status.clone().unwrap_or_default();
        Self { job, spec, status, pods, active, now, succeeded: 0, failed: 0, indexed: None, finish: None }
    }

    /// Failed, or with `podReplacementPolicy: TerminatingOrFailed` on its way out.
    pub fn is_failed(&self, pod: &Pod) -> bool {
        match state::phase(pod) {
            "Failed" => true,
            "Succeeded" => false,
            _ => !self.replaces_failed_only() && pod.metadata.deletion_timestamp.is_some(),
        }
    }

    pub fn replaces_failed_only(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed") || self.spec.pod_failure_policy.is_some()
    }

    pub fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    pub fn per_index(&self) -> Option<i32> {
        self.spec.backoff_limit_per_index
    }

    fn run(mut self, view: &View, cx: &Context<'_>, backoff: &mut Backoff, plan: &mut Plan) {
        let (succeeded, failed) = self.newly_ended();
        let uncounted = self.status.uncounted_terminated_pods.get_or_insert_default();
        let waiting = |uids: &Option<Vec<String>>| i32::try_from(uids.as_ref().map_or(0, Vec::len)).unwrap_or(i32::MAX);
        let counted = (waiting(&uncounted.succeeded), waiting(&uncounted.failed));
        let number = |pods: &[Arc<Pod>]| i32::try_from(pods.len()).unwrap_or(i32::MAX);
        self.succeeded = self.status.succeeded.unwrap_or(0) + number(&succeeded) + counted.0;
        let failures: Vec<Arc<Pod>> = failed.iter().filter(|pod| policies::counts(self.job, pod)).cloned().collect();
        self.failed = self.status.failed.unwrap_or(0) + number(&failures) + counted.1;
        if self.status.start_time.is_none() && !self.is_suspended() {
            self.status.start_time = Some(api_time(self.now));
        }
        backoff.observe(&succeeded, &failed, self.now);
        self.finish = self.verdict(plan);
        self.look_at_indexes();

        let mut changes = pods::Changes::default();
        if self.finish.is_some() {
            changes.delete = self.active.clone();
        } else if self.job.metadata.deletion_timestamp.is_none() {
            changes = pods::decide(&self, backoff, plan);
            self.conclude(&changes, plan);
        }
        if let Some(failure) = cx.failure.filter(|failure| failure.resource == PODS && !matches!(failure.code, 404 | 409)) {
            plan.events.push(self.note(EventType::Warning, "FailedCreate", format!("Error creating: {}", failure.message)));
            // What is refused once is tried with one pod, at the pace of the queue's back-off.
            changes.create.truncate(1);
        }
        tracking::write(self, view, changes, plan);
    }

    /// Tracked pods that have ended and are not in the counts, nor about to be.
    fn newly_ended(&self) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
        let uncounted = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let known: BTreeSet<&String> = items(&uncounted.succeeded).iter().chain(items(&uncounted.failed)).collect();
        let limit = self.completions_if_indexed();
        let valid = |pod: &Arc<Pod>| limit.is_none_or(|limit| pods::index_of(pod).is_some_and(|index| index < limit));
        let fresh = |pod: &&Arc<Pod>| is_tracked(pod) && pod.metadata.uid.as_ref().is_none_or(|uid| !known.contains(uid)) && valid(pod);
        let ended = self.pods.iter().filter(fresh);
        let (succeeded, others): (Vec<_>, Vec<_>) = ended.cloned().partition(|pod| state::phase(pod) == "Succeeded");
        (succeeded, others.into_iter().filter(|pod| self.is_failed(pod)).collect())
    }

    pub fn completions_if_indexed(&self) -> Option<u32> {
        let indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        indexed.then(|| u32::try_from(self.spec.completions.unwrap_or(0)).unwrap_or(0))
    }

    /// Whether the job is at its end, as far as that does not depend on indexes.
    fn verdict(&self, plan: &mut Plan) -> Option<Finish> {
        let taken_over = |success: bool| {
            move |condition: &JobCondition| Finish {
                success,
                reason: text(&condition.reason).to_owned(),
                message: text(&condition.message).to_owned(),
            }
        };
        if let Some(finish) = condition(self.job, "SuccessCriteriaMet").map(taken_over(true)) {
            return Some(finish);
        }
        if let Some(finish) = condition(self.job, "FailureTarget").map(taken_over(false)) {
            return Some(finish);
        }
        let fails = |pod: &Arc<Pod>| match policies::on_failure(self.job, pod) {
            Some(Verdict::FailJob(message)) if self.is_failed(pod) => Some(message),
            _ => None,
        };
        if let Some(message) = self.pods.iter().find_map(fails) {
            return Some(failure("PodFailurePolicy", message));
        }
        if self.failed > self.spec.backoff_limit.unwrap_or(6) || self.restarted_too_often() {
            return Some(failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        if let (Some(seconds), Some(start), false) = (self.spec.active_deadline_seconds, &self.status.start_time, self.is_suspended()) {
            let due = timestamp(start).plus(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
            if due <= self.now {
                return Some(failure("DeadlineExceeded", "Job was active longer than specified deadline"));
            }
            plan.requeue_no_later_than(due);
        }
        None
    }

    /// Pods that the kubelet restarts in place count by their restarts.
    fn restarted_too_often(&self) -> bool {
        if self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
            return false;
        }
        let running = self.pods.iter().filter(|pod| matches!(state::phase(pod), "Running" | "Pending"));
        let statuses = running.filter_map(|pod| pod.status.as_ref());
        let restarts = statuses.flat_map(|status| items(&status.container_statuses).iter().chain(items(&status.init_container_statuses)));
        let total: i32 = restarts.map(|container| container.restart_count).sum();
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if limit == 0 { total > 0 } else { total >= limit }
    }

    fn look_at_indexes(&mut self) {
        let Some(completions) = self.completions_if_indexed() else { return };
        let succeeded = Indexes::parse(text(&self.status.completed_indexes), completions);
        let mut indexes = IndexState { completions, succeeded, ..IndexState::default() };
        let tracked = || self.pods.iter().filter(|pod| is_tracked(pod));
        let valid = |pod: &Pod| pods::index_of(pod).filter(|index| *index < completions);
        for index in tracked().filter(|pod| state::phase(pod) == "Succeeded").filter_map(|pod| valid(pod)) {
            indexes.succeeded.insert(index, index);
        }
        if let Some(limit) = self.per_index() {
            let mut failed = Indexes::parse(text(&self.status.failed_indexes), completions);
            for pod in tracked().filter(|pod| self.is_failed(pod)) {
                let Some(index) = valid(pod) else { continue };
                let over = match policies::on_failure(self.job, pod) {
                    Some(Verdict::FailIndex) => true,
                    Some(Verdict::Ignore) => false,
                    _ => pods::failures(pod).0 >= limit,
                };
                if over {
                    failed.insert(index, index);
                }
            }
            if self.finish.is_none() {
                if self.spec.max_failed_indexes.is_some_and(|most| failed.total() > most) {
                    self.finish = Some(failure("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"));
                } else if failed.total() > 0 && i64::from(failed.total()) + i64::from(indexes.succeeded.total()) >= i64::from(completions) {
                    self.finish = Some(failure("FailedIndexes", "Job has failed indexes"));
                }
            }
            indexes.delayed = self.delayed(&indexes.succeeded, &failed, completions);
            indexes.failed = Some(failed);
        }
        self.succeeded = indexes.succeeded.total();
        if self.finish.is_none()
            && let Some(message) = self.spec.success_policy.as_ref().and_then(|policy| policies::success(policy, completions, &indexes.succeeded))
        {
            self.finish = Some(Finish { success: true, reason: "SuccessPolicy".into(), message });
        }
        self.indexed = Some(indexes);
    }

    fn delayed(&self, succeeded: &Indexes, failed: &Indexes, completions: u32) -> BTreeMap<u32, Arc<Pod>> {
        let running: BTreeSet<u32> = self.active.iter().filter_map(|pod| pods::index_of(pod)).collect();
        let mut delayed: BTreeMap<u32, Arc<Pod>> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| is_tracked(pod) && self.is_failed(pod)) {
            let Some(index) = pods::index_of(pod).filter(|index| *index < completions) else { continue };
            if succeeded.contains(index) || failed.contains(index) || running.contains(&index) {
                continue;
            }
            let rank = |pod: &Pod| (pods::all_failures(pod), finished_at(pod, self.now));
            if delayed.get(&index).is_none_or(|last| rank(last) <= rank(pod)) {
                delayed.insert(index, pod.clone());
            }
        }
        delayed
    }

    /// Until when an index waits for its next pod.
    pub fn index_waits_until(&self, index: u32) -> Option<Timestamp> {
        let pod = self.indexed.as_ref()?.delayed.get(&index)?;
        until(pods::all_failures(pod) + 1, finished_at(pod, self.now)).filter(|at| *at > self.now)
    }

    /// After the pods are decided on: whether that was all, and whether the job is suspended.
    fn conclude(&mut self, changes: &pods::Changes, plan: &mut Plan) {
        let active = self.active.len() + changes.create.len() - changes.delete.len();
        let complete = active == 0 && self.spec.completions.map_or(self.succeeded > 0, |completions| self.succeeded >= completions);
        if complete {
            let message = "Reached expected number of succeeded pods";
            self.finish = Some(Finish { success: true, reason: "CompletionsReached".into(), message: message.into() });
            return;
        }
        if self.is_suspended() {
            if tracking::set_condition(&mut self.status, "Suspended", "True", "JobSuspended", "Job suspended", self.now) {
                plan.events.push(self.note(EventType::Normal, "Suspended", "Job suspended"));
            }
        } else if items(&self.status.conditions).iter().any(|condition| condition.type_ == "Suspended")
            && tracking::set_condition(&mut self.status, "Suspended", "False", "JobResumed", "Job resumed", self.now)
        {
            plan.events.push(self.note(EventType::Normal, "Resumed", "Job resumed"));
            // The deadline counts from here.
            self.status.start_time = Some(api_time(self.now));
        }
    }

    pub fn note(&self, kind_of_event: EventType, reason: &str, message: impl Into<String>) -> EventNote {
        EventNote::about::<Job>(&self.job.metadata, kind_of_event, reason, message)
    }
}

fn failure(reason: &str, message: impl Into<String>) -> Finish {
    Finish { success: false, reason: reason.to_owned(), message: message.into() }
}

#[cfg(test)]
mod tests;
