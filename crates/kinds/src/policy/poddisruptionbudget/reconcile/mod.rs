//! `disruption-controller`: how many more pods of a budget may be taken down on purpose.
//!
//! The number is a statement about the past; an eviction compares and lowers it in its own transaction. What an eviction has promised to take
//! down is not healthy from then on, for two minutes; a pod that is still there after that was not taken down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use wheelhouse_base::Timestamp;

use crate::apps::workload::resolve;
use crate::core::pod::state;
use crate::owned::{controller_of, matches, selector};
use crate::plan::{EventNote, EventType, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::{api_time, timestamp};
use crate::validation::text;
use crate::view::{Key, ObjectChange, Record, ResourceName, View};

const BUDGETS: ResourceName = ResourceName::new("policy", "poddisruptionbudgets");
const PODS: ResourceName = ResourceName::new("", "pods");
/// How long an eviction's promise counts: upstream's `DeletionTimeout`.
const PROMISE: Duration = Duration::from_secs(120);
const CONDITION: &str = "DisruptionAllowed";

pub struct DisruptionController;

/// How many pods there should be, and how many of them healthy.
struct Expected {
    pods: i32,
    healthy: i32,
    /// Names of pods that nobody controls and whose number therefore nobody knows.
    unmanaged: Vec<String>,
}

impl Reconciler for DisruptionController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    fn component(&self) -> &'static str {
        "controllermanager"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let pods = Trigger {
            resource: PODS,
            keys: |view, change: &ObjectChange| {
                let sides = || [&change.old, &change.new].into_iter().flatten();
                let budgets = view.list::<PodDisruptionBudget>(Some(&change.reference.key.namespace));
                let selecting = budgets.filter(|budget| {
                    let wanted = selector(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
                    sides().any(|pod| matches(&wanted, pod.meta.labels.as_ref()))
                });
                selecting.map(|budget| Key::new(change.reference.key.namespace.clone(), text(&budget.metadata.name))).collect()
            },
        };
        vec![Trigger::itself(BUDGETS), pods]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(budget) = view.get::<PodDisruptionBudget>(&key.namespace, &key.name) else { return plan };
        let wanted = selector(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
        let pods: Vec<Arc<Pod>> = view.list::<Pod>(Some(&key.namespace)).filter(|pod| matches(&wanted, pod.metadata.labels.as_ref())).collect();
        let old = budget.status.clone().unwrap_or_default();
        let mut events = Vec::new();
        if pods.is_empty() {
            events.push(note(&budget, EventType::Normal, "NoPods", "No matching pods found".into()));
        }
        let status = match expected(&budget, &pods, view) {
            Ok(expected) => {
                if !expected.unmanaged.is_empty() {
                    let message = format!(
                        "Pods selected by this PodDisruptionBudget (selector: {wanted}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
                    );
                    events.push(note(&budget, EventType::Warning, "UnmanagedPods", message));
                }
                let promised = promised(&budget, &pods, cx.now, &mut plan);
                status(&budget, &pods, &expected, promised, cx.now)
            }
            Err(message) => {
                let told = format!("Failed to calculate the number of expected pods: {message}");
                events.push(note(&budget, EventType::Warning, "CalculateExpectedPodCountFailed", told));
                // Nothing is known, so nothing is allowed.
                let mut status = PodDisruptionBudgetStatus { disruptions_allowed: Some(0), ..old.clone() };
                set_condition(&mut status, "False", "SyncFailed", &message, cx.now);
                status
            }
        };
        if status != old {
            plan.operations.push(Operation::status(&*budget, &status));
            // Told when something changes: a look that finds all as it was says nothing.
            plan.events.extend(events);
        }
        plan
    }
}

fn expected(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], view: &View) -> Result<Expected, String> {
    let spec = budget.spec.clone().unwrap_or_default();
    let count = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let (total, unmanaged) = scale(pods, view)?;
            Ok(Expected { pods: total, healthy: (total - resolve(Some(most), total, true)).max(0), unmanaged })
        }
        (None, Some(IntOrString::Int(least))) => Ok(Expected { pods: count, healthy: *least, unmanaged: Vec::new() }),
        (None, Some(least)) => {
            let (total, unmanaged) = scale(pods, view)?;
            Ok(Expected { pods: total, healthy: resolve(Some(least), total, true), unmanaged })
        }
        (None, None) => Ok(Expected { pods: 0, healthy: 0, unmanaged: Vec::new() }),
    }
}

/// The wanted replicas of all controllers of the pods, each once.
fn scale(pods: &[Arc<Pod>], view: &View) -> Result<(i32, Vec<String>), String> {
    let (mut seen, mut total, mut unmanaged) = (BTreeSet::new(), 0i32, Vec::new());
    for pod in pods {
        let Some(owner) = controller_of(&pod.metadata) else {
            unmanaged.push(text(&pod.metadata.name).to_owned());
            continue;
        };
        let workload = workload(owner, view).ok_or_else(|| format!("found no controllers for pod {:?}", text(&pod.metadata.name)))?;
        if seen.insert(workload.uid().to_owned()) {
            let replicas = workload.value().pointer("/spec/replicas").and_then(serde_json::Value::as_i64);
            let replicas = replicas.ok_or_else(|| format!("{} does not implement the scale subresource", workload.resource))?;
            total = total.saturating_add(i32::try_from(replicas).unwrap_or(i32::MAX));
        }
    }
    Ok((total, unmanaged))
}

/// The pod's controller; of a ReplicaSet that a Deployment controls, the Deployment.
fn workload<'a>(owner: &OwnerReference, view: &'a View) -> Option<&'a Arc<Record>> {
    let record = view.by_uid(&owner.uid)?;
    let above = controller_of(&record.meta).filter(|above| &*record.resource.plural == "replicasets" && above.kind == "Deployment");
    above.and_then(|above| view.by_uid(&above.uid)).or(Some(record))
}

/// Evictions that were allowed and whose pods are not on their way out yet.
fn promised(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Timestamp, plan: &mut Plan) -> BTreeMap<String, Time> {
    let listed = budget.status.as_ref().and_then(|status| status.disrupted_pods.clone()).unwrap_or_default();
    let mut kept = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let name = text(&pod.metadata.name);
        let Some(at) = listed.get(name) else { continue };
        let due = timestamp(at).plus(PROMISE);
        if due < now {
            let who = format!("{}/{}", text(&budget.metadata.namespace), text(&budget.metadata.name));
            let message = format!("Pod was expected by PDB {who} to be deleted but it wasn't");
            plan.events.push(EventNote::about::<Pod>(&pod.metadata, EventType::Warning, "NotDeleted", message));
        } else {
            plan.requeue_no_later_than(due.plus(Duration::from_secs(1)));
            kept.insert(name.to_owned(), at.clone());
        }
    }
    kept
}

fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    expected: &Expected,
    promised: BTreeMap<String, Time>,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let healthy = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && !promised.contains_key(text(&pod.metadata.name)) && state::is_ready(pod));
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    // Without pods nothing is allowed: when the first appear, nobody may have looked at them yet.
    let allowed = if expected.pods <= 0 { 0 } else { (healthy - expected.healthy).max(0) };
    let mut status = PodDisruptionBudgetStatus {
        conditions: budget.status.as_ref().and_then(|status| status.conditions.clone()),
        current_healthy: Some(healthy),
        desired_healthy: Some(expected.healthy),
        disrupted_pods: (!promised.is_empty()).then_some(promised),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected.pods),
        observed_generation: budget.metadata.generation,
    };
    if allowed > 0 {
        set_condition(&mut status, "True", "SufficientPods", "", now);
    } else {
        set_condition(&mut status, "False", "InsufficientPods", "", now);
    }
    status
}

fn set_condition(status: &mut PodDisruptionBudgetStatus, value: &str, reason: &str, message: &str, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    let old = conditions.iter().position(|condition| condition.type_ == CONDITION);
    let since = old.map(|at| &conditions[at]).filter(|old| old.status == value).map(|old| old.last_transition_time.clone());
    let fresh = Condition {
        last_transition_time: since.unwrap_or_else(|| api_time(now)),
        message: message.to_owned(),
        observed_generation: status.observed_generation,
        reason: reason.to_owned(),
        status: value.to_owned(),
        type_: CONDITION.to_owned(),
    };
    match old {
        Some(at) => conditions[at] = fresh,
        None => conditions.push(fresh),
    }
}

fn note(budget: &PodDisruptionBudget, kind_of_event: EventType, reason: &str, message: String) -> EventNote {
    EventNote::about::<PodDisruptionBudget>(&budget.metadata, kind_of_event, reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::Cluster;
    use serde_json::{Value, json};

    const SETS: ResourceName = ResourceName::new("apps", "replicasets");

    fn cluster(spec: Value) -> Cluster {
        let mut cluster = Cluster::default();
        let template = json!({"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        cluster.create(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "w", "namespace": "a"},
            "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "w"}}, "template": template}}));
        let uid = cluster.get(&SETS, "a", "w")["metadata"]["uid"].clone();
        for name in ["p1", "p2", "p3"] {
            let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": uid, "controller": true}]);
            cluster.create(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "a", "labels": {"app": "w"}, "ownerReferences": owner},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}));
        }
        let mut budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "a"},
            "spec": {"selector": {"matchLabels": {"app": "w"}}}});
        wheelhouse_meta::patch::merge_value(&mut budget["spec"], spec);
        cluster.create(budget);
        cluster
    }

    /// Expected, desired, healthy, allowed.
    fn look(cluster: &mut Cluster) -> [i64; 4] {
        cluster.settle(&DisruptionController, &Key::new("a", "b"), &mut ());
        let status = cluster.get(&BUDGETS, "a", "b")["status"].clone();
        ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"].map(|field| status[field].as_i64().unwrap())
    }

    #[test]
    fn numbers_and_percentages_of_what_is_wanted() {
        assert_eq!(look(&mut cluster(json!({"minAvailable": 2}))), [3, 2, 3, 1]);
        assert_eq!(look(&mut cluster(json!({"minAvailable": "50%"}))), [4, 2, 3, 1]);
        assert_eq!(look(&mut cluster(json!({"maxUnavailable": 1}))), [4, 3, 3, 0]);
        assert_eq!(look(&mut cluster(json!({"maxUnavailable": "30%"}))), [4, 2, 3, 1], "rounded up");
        assert_eq!(look(&mut cluster(json!({"minAvailable": 0, "selector": {"matchLabels": {"app": "none"}}}))), [0, 0, 0, 0]);
    }

    #[test]
    fn conditions_tell_whether_anything_may_go() {
        let mut cluster = cluster(json!({"minAvailable": 2}));
        look(&mut cluster);
        let condition = |cluster: &Cluster| cluster.get(&BUDGETS, "a", "b")["status"]["conditions"][0].clone();
        assert_eq!((&condition(&cluster)["reason"], &condition(&cluster)["status"]), (&json!("SufficientPods"), &json!("True")));
        cluster.edit(&PODS, "a", "p1", |pod| pod["status"]["conditions"][0]["status"] = json!("False"));
        look(&mut cluster);
        assert_eq!((&condition(&cluster)["reason"], &condition(&cluster)["observedGeneration"]), (&json!("InsufficientPods"), &json!(1)));
    }

    #[test]
    fn a_promised_pod_is_not_healthy_until_the_promise_lapses() {
        let mut cluster = cluster(json!({"minAvailable": 1}));
        look(&mut cluster);
        let now = api_time(cluster.now);
        cluster.edit(&BUDGETS, "a", "b", |budget| budget["status"]["disruptedPods"] = json!({"p1": now, "gone": now}));
        assert_eq!(look(&mut cluster), [3, 1, 2, 1]);
        assert_eq!(cluster.get(&BUDGETS, "a", "b")["status"]["disruptedPods"], json!({"p1": now}));
        cluster.wait(121);
        assert_eq!(look(&mut cluster), [3, 1, 3, 2]);
        assert_eq!(cluster.events, ["NotDeleted: Pod was expected by PDB a/b to be deleted but it wasn't"]);
    }

    #[test]
    fn what_cannot_be_counted_allows_nothing() {
        let mut cluster = cluster(json!({"maxUnavailable": 1}));
        cluster.delete(&SETS, "a", "w");
        cluster.settle(&DisruptionController, &Key::new("a", "b"), &mut ());
        let status = cluster.get(&BUDGETS, "a", "b")["status"].clone();
        assert_eq!((&status["disruptionsAllowed"], &status["conditions"][0]["reason"]), (&json!(0), &json!("SyncFailed")));
        assert_eq!(status["conditions"][0]["message"], "found no controllers for pod \"p1\"");
    }
}
