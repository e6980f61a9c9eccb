//! `resourcequota-controller`: publishes what a namespace's objects use of each quota.
//!
//! It only tells: whether an object still fits is decided in its own transaction. So it may take its time, and it counts at most once a second
//! for each quota, however much happens in the namespace. After a change of leadership every quota is counted once.

use std::time::Duration;

use serde_json::{Value, json};
use wheelhouse_access::admission::quota;
use wheelhouse_access::{Lookups, admission::resources};
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::plan::{Operation, Plan};
use wheelhouse_kinds::reconciler::{ANY, Context, Reconciler, Trigger};
use wheelhouse_kinds::view::{Key, ResourceName, View};

const QUOTAS: ResourceName = ResourceName::new("", "resourcequotas");

/// Counting a namespace of thousands of pods takes tens of milliseconds.
const NO_OFTENER_THAN: Duration = Duration::from_secs(1);

/// Keyed by the quota.
pub struct ResourceQuotaController;

impl Reconciler for ResourceQuotaController {
    /// When the quota was counted last.
    type Memory = Option<Timestamp>;

    fn name(&self) -> &'static str {
        "resourcequota-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let content = Trigger {
            resource: ANY,
            keys: |view, change| {
                let namespace = &change.reference.key.namespace;
                if namespace.is_empty() || change.reference.resource == QUOTAS {
                    return Vec::new();
                }
                view.records(&QUOTAS, Some(namespace)).map(|quota| quota.key.clone()).collect()
            },
        };
        vec![Trigger::itself(QUOTAS), content]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, counted: &mut Option<Timestamp>) -> Plan {
        let mut plan = Plan::default();
        let Some(record) = view.record(&QUOTAS, key).filter(|record| !record.deleting()) else { return plan };
        if let Some(next) = counted.map(|at| at.plus(NO_OFTENER_THAN)).filter(|next| *next > cx.now) {
            plan.requeue_at = Some(next);
            return plan;
        }
        *counted = Some(cx.now);
        let mut object = record.value();
        let used = quota::count(&object, &key.namespace, &Objects(view));
        let status = json!({"hard": resources::read(&object["spec"]["hard"]), "used": used});
        let same = ["hard", "used"].iter().all(|part| resources::read(&object["status"][part]) == resources::read(&status[part]));
        if !same {
            object["status"] = status;
            plan.operations.push(Operation::Update { resource: QUOTAS, subresource: "status", object });
        }
        plan
    }
}

/// The view as decisions look things up.
struct Objects<'a>(&'a View);

impl Lookups for Objects<'_> {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.list(group, resource, namespace).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value> {
        let found = self.0.resources().find(|known| known.group == group && known.plural == resource);
        found.map(|resource| self.0.records(resource, Some(namespace)).map(|record| record.value()).collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_kinds::reconciler::testing::{World, context};

    #[test]
    fn usage_is_counted_and_told_when_it_differs() {
        let quota = |status: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"ResourceQuota","metadata":{{"name":"q","namespace":"a","uid":"q"}},
                    "spec":{{"hard":{{"pods":"3","count/configmaps":"9"}}}},"status":{status}}}"#
            )
        };
        let pod = |name: &str, phase: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"a","uid":"{name}"}},
                    "spec":{{"containers":[]}},"status":{{"phase":"{phase}"}}}}"#
            )
        };
        let world = |status: &str| World::new().with(&quota(status)).with(&pod("x", "Running")).with(&pod("y", "Succeeded"));
        let mut memory = None;
        let plan = ResourceQuotaController.reconcile(&Key::new("a", "q"), world("{}").view(), &context(), &mut memory);
        let [Operation::Update { object, subresource: "status", .. }] = &plan.operations[..] else { panic!("{plan:?}") };
        assert_eq!(object["status"], json!({"hard": {"pods": "3", "count/configmaps": "9"}, "used": {"pods": "1", "count/configmaps": "0"}}));
        // Again at once is too soon.
        let plan = ResourceQuotaController.reconcile(&Key::new("a", "q"), world("{}").view(), &context(), &mut memory);
        assert!(plan.operations.is_empty() && plan.requeue_at.is_some());
        let told = object["status"].to_string();
        assert!(ResourceQuotaController.reconcile(&Key::new("a", "q"), world(&told).view(), &context(), &mut None).is_empty());
    }
}
