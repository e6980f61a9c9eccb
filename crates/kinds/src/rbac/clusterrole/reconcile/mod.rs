//! `clusterrole-aggregation-controller`: writes the rules of a role that has an `aggregationRule` from the roles it selects.
//!
//! Rules keep the order of the selected roles' names, and each stands once, so the result does not depend on who changed last.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::json;
use wheelhouse_meta::selector::LabelSelector;

use crate::plan::{Operation, PatchStrategy, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::view::{Key, ResourceName, View};

const CLUSTER_ROLES: ResourceName = ResourceName::new("rbac.authorization.k8s.io", "clusterroles");

pub struct ClusterRoleAggregation;

impl Reconciler for ClusterRoleAggregation {
    type Memory = ();

    fn name(&self) -> &'static str {
        "clusterrole-aggregation-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        // A changed role may be selected by any aggregated one; a cluster has a handful of those.
        let aggregated = |view: &View, _: &crate::view::ObjectChange| {
            let roles = view.list::<ClusterRole>(None).filter(|role| role.aggregation_rule.is_some());
            roles.filter_map(|role| role.metadata.name.as_deref().map(Key::cluster)).collect()
        };
        vec![Trigger { resource: CLUSTER_ROLES, keys: aggregated }]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(role) = view.get::<ClusterRole>("", &key.name) else { return plan };
        let Some(rule) = &role.aggregation_rule else { return plan };
        let selectors = rule.cluster_role_selectors.iter().flatten();
        let selectors: Vec<LabelSelector> =
            selectors.filter_map(|s| LabelSelector::from_object(serde_json::to_value(s).ok().as_ref()).ok()).collect();
        let mut rules: Vec<PolicyRule> = Vec::new();
        for record in view.records(&CLUSTER_ROLES, None).filter(|record| record.key != *key) {
            let labels = record.meta.labels.clone().unwrap_or_default();
            if !selectors.iter().any(|selector| selector.matches_by(|key| labels.get(key).map(String::as_str))) {
                continue;
            }
            let Some(selected) = record.typed::<ClusterRole>() else { continue };
            for rule in selected.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        if role.rules.as_deref().unwrap_or_default() != rules {
            let mut patch = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": &*key.name},
            });
            // Upstream applies no empty list: rules that somebody else wrote stay, ours go because they are no longer applied.
            if !rules.is_empty() {
                patch["rules"] = json!(rules);
            }
            plan.operations.push(Operation::Patch {
                resource: CLUSTER_ROLES,
                key: key.clone(),
                subresource: "",
                strategy: PatchStrategy::Apply,
                patch,
            });
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    fn role(name: &str, labels: &str, rules: &str) -> String {
        format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{{"name":"{name}","uid":"{name}","labels":{labels}}},"rules":{rules}}}"#
        )
    }

    const VIEW: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"view","uid":"v"},
        "aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"to-view":"true"}}]},"rules":[]}"#;

    #[test]
    fn selected_rules_are_joined_in_order_and_once() {
        let pods = r#"[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]"#;
        let world = World::new()
            .with(VIEW)
            .with(&role("b", r#"{"to-view":"true"}"#, r#"[{"apiGroups":["x"],"resources":["y"],"verbs":["get"]}]"#))
            .with(&role("a", r#"{"to-view":"true"}"#, pods))
            .with(&role("c", r#"{"to-view":"true"}"#, pods))
            .with(&role("d", r#"{"to-view":"no"}"#, r#"[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]"#));
        let plan = ClusterRoleAggregation.reconcile(&Key::cluster("view"), world.view(), &context(), &mut ());
        let [Operation::Patch { patch, .. }] = &plan.operations[..] else { panic!("{plan:?}") };
        let resources: Vec<_> = patch["rules"].as_array().unwrap().iter().map(|r| r["resources"][0].as_str().unwrap()).collect();
        assert_eq!(resources, ["pods", "y"]);
    }

    #[test]
    fn nothing_is_written_when_nothing_changes() {
        let world = World::new().with(VIEW);
        assert!(ClusterRoleAggregation.reconcile(&Key::cluster("view"), world.view(), &context(), &mut ()).is_empty());
    }
}
