//! `horizontal-pod-autoscaler-controller`: sets a workload's replicas so that its metrics come near their targets.
//!
//! ```text
//! every 15 s: effects read the metrics --> next call: a number for each metric, the largest counts --> held back by what was recommended lately
//!             and by the rates of change --> the target's scale
//! ```
//!
//! Samples are the effects' outcomes, so a call decides on one view and one reading of the metrics. Algorithm:
//! <https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details>.

mod conditions;
mod limits;
mod metrics;
mod replicas;
mod target;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricStatus};
use serde_json::json;
use wheelhouse_base::Timestamp;

use crate::plan::{EffectKind, EventNote, EventType, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::api_time;
use crate::validation::items;
use crate::view::{Key, ResourceName, View};
use limits::History;
use target::Target;

const AUTOSCALERS: ResourceName = ResourceName::new("autoscaling", "horizontalpodautoscalers");
/// `--horizontal-pod-autoscaler-sync-period`.
const PERIOD: Duration = Duration::from_secs(15);

pub struct HorizontalPodAutoscalerController;

/// What upstream too keeps only in process. After a leader change the present size is the one recommendation there is, so that nothing shrinks
/// within the stabilization window.
#[derive(Default)]
pub struct Memory {
    /// When the metrics are to be read next.
    due: Timestamp,
    history: History,
}

/// One look, and the status as it will be.
struct Sync<'a> {
    autoscaler: &'a HorizontalPodAutoscaler,
    status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

/// A size, and the words for why.
struct Decision {
    replicas: i32,
    reason: String,
}

impl Reconciler for HorizontalPodAutoscalerController {
    type Memory = BTreeMap<Key, Memory>;

    fn name(&self) -> &'static str {
        "horizontal-pod-autoscaler-controller"
    }

    fn service_account(&self) -> &'static str {
        "horizontal-pod-autoscaler"
    }

    fn component(&self) -> &'static str {
        "horizontal-pod-autoscaler"
    }

    fn triggers(&self) -> Vec<Trigger> {
        vec![Trigger::itself(AUTOSCALERS)]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut Self::Memory) -> Plan {
        let mut plan = Plan::default();
        let autoscaler = view.get::<HorizontalPodAutoscaler>(&key.namespace, &key.name);
        let Some(autoscaler) = autoscaler.filter(|autoscaler| autoscaler.metadata.deletion_timestamp.is_none()) else {
            memory.remove(key);
            return plan;
        };
        let memory = memory.entry(key.clone()).or_default();
        let answered = !cx.effects.is_empty();
        if !answered && memory.due > cx.now {
            plan.requeue_no_later_than(memory.due);
            return plan;
        }
        let mut sync = Sync { autoscaler: &autoscaler, status: autoscaler.status.clone().unwrap_or_default(), now: cx.now };
        let target = match Target::find(&autoscaler, view) {
            Ok(target) => target,
            Err(error) => {
                plan.events.push(sync.note(EventType::Warning, "FailedGetScale", error.clone()));
                let message = format!("the HPA controller was unable to get the target's current scale: {error}");
                sync.condition("AbleToScale", "False", "FailedGetScale", &message);
                sync.finish(memory, &mut plan);
                return plan;
            }
        };
        if !answered && target.is_scaled(&autoscaler) {
            plan.effects = metrics::effects(&autoscaler, &target, view);
            if !plan.effects.is_empty() {
                // What was read is handed to the next call; should it get lost, this asks again.
                plan.requeue_no_later_than(cx.now.plus(PERIOD));
                return plan;
            }
        }
        sync.run(&target, view, cx, memory, &mut plan);
        sync.finish(memory, &mut plan);
        plan
    }
}

impl Sync<'_> {
    fn run(&mut self, target: &Target, view: &View, cx: &Context<'_>, memory: &mut Memory, plan: &mut Plan) {
        self.condition("AbleToScale", "True", "SucceededGetScale", "the HPA controller was able to get the target's current scale");
        let spec = &self.autoscaler.spec;
        let (least, most) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let current = target.replicas;
        memory.history.begin(current, self.now);
        let decision = if current == 0 && least != 0 {
            self.condition("ScalingActive", "False", "ScalingDisabled", "scaling is disabled since the replica count of the target is zero");
            Decision { replicas: 0, reason: String::new() }
        } else if current > most {
            Decision { replicas: most, reason: "Current number of replicas above Spec.MaxReplicas".into() }
        } else if current < least {
            Decision { replicas: least, reason: "Current number of replicas below Spec.MinReplicas".into() }
        } else {
            match self.by_metrics(target, view, cx, plan) {
                Some((wanted, metric, statuses)) => {
                    self.status.current_metrics = Some(statuses);
                    let reason = if wanted > current { format!("{metric} above target") } else { "All metrics below target".to_owned() };
                    Decision { replicas: limits::apply(self, current, wanted, &mut memory.history), reason }
                }
                None => {
                    self.status.current_replicas = Some(current);
                    return;
                }
            }
        };
        self.status.current_replicas = Some(current);
        self.status.desired_replicas = decision.replicas;
        if decision.replicas != current {
            plan.operations.push(target.scaled_to(decision.replicas));
            let message = format!("New size: {}; reason: {}", decision.replicas, decision.reason);
            plan.events.push(self.note(EventType::Normal, "SuccessfulRescale", message));
            let message = format!("the HPA controller was able to update the target scale to {}", decision.replicas);
            self.condition("AbleToScale", "True", "SucceededRescale", &message);
            self.status.last_scale_time = Some(api_time(self.now));
            memory.history.scaled(decision.replicas - current, self.now);
        }
    }

    /// The largest number that any metric asks for, with that metric's name. `None` if there is none to go by.
    fn by_metrics(&mut self, target: &Target, view: &View, cx: &Context<'_>, plan: &mut Plan) -> Option<(i32, String, Vec<MetricStatus>)> {
        let all = items(&self.autoscaler.spec.metrics);
        let (mut best, mut statuses, mut failed) = (None::<(i32, String)>, Vec::new(), Vec::new());
        for (at, metric) in all.iter().enumerate() {
            let outcome = cx.effects.get(&(EffectKind::ReadMetrics, metrics::id(at)));
            match metrics::propose(self.autoscaler, metric, outcome, target, view, self.now) {
                Ok(proposal) => {
                    if best.as_ref().is_none_or(|(replicas, _)| proposal.replicas > *replicas) {
                        best = Some((proposal.replicas, proposal.name));
                    }
                    statuses.push(proposal.status);
                }
                Err(failure) => {
                    plan.events.push(self.note(EventType::Warning, failure.reason, failure.message.clone()));
                    failed.push(failure);
                }
            }
        }
        // A metric that is missing must not let the others shrink the target.
        let shrinks = best.as_ref().is_none_or(|(replicas, _)| *replicas < target.replicas);
        if let Some(first) = failed.first().filter(|_| shrinks) {
            let message = format!("the HPA was unable to compute the replica count: {}", first.message);
            self.condition("ScalingActive", "False", first.reason, &message);
            let message = format!("invalid metrics ({} invalid out of {}), first error is: {}", failed.len(), all.len(), first.wrapped);
            plan.events.push(self.note(EventType::Warning, "FailedComputeMetricsReplicas", message));
            return None;
        }
        let (replicas, name) = best?;
        let message = format!("the HPA was able to successfully calculate a replica count from {name}");
        self.condition("ScalingActive", "True", "ValidMetricFound", &message);
        Some((replicas, name, statuses))
    }

    fn finish(mut self, memory: &mut Memory, plan: &mut Plan) {
        memory.due = self.now.plus(PERIOD);
        plan.requeue_no_later_than(memory.due);
        self.status.observed_generation = self.autoscaler.metadata.generation;
        if self.autoscaler.status.as_ref() != Some(&self.status) {
            plan.operations.push(Operation::status(self.autoscaler, &self.status));
        }
    }

    fn note(&self, kind_of_event: EventType, reason: &str, message: String) -> EventNote {
        EventNote::about::<HorizontalPodAutoscaler>(&self.autoscaler.metadata, kind_of_event, reason, message)
    }
}

impl Target {
    fn scaled_to(&self, replicas: i32) -> Operation {
        let object = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": &*self.key.name, "namespace": &*self.key.namespace, "resourceVersion": self.resource_version},
            "spec": {"replicas": replicas},
        });
        Operation::Update { resource: self.resource.clone(), subresource: "scale", object }
    }
}

#[cfg(test)]
mod tests;
