//! Roles and bindings that every cluster has are kept once per process.
//!
//! A cluster's bootstrap roles are several hundred rules, which would be the larger part of an idle cluster's policy. Clusters leave
//! them as they are, so whatever equals its bootstrap form takes the process's copy.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::json;

use super::policy::{Binding, PolicyKind};
use super::rule::Rule;
use crate::bootstrap::{PolicyObject, aggregation, objects, rules_of};

/// `(kind, namespace, name)` of a role.
type Key = (PolicyKind, String, String);

/// How often aggregation is repeated: `view` into `edit` into `admin`, and one round to see that nothing changes.
const AGGREGATION_ROUNDS: usize = 3;

/// The process's copy of the rules, if it is equal.
pub(super) fn rules(kind: PolicyKind, namespace: &str, name: &str, rules: Vec<Rule>) -> Arc<[Rule]> {
    static SHARED: LazyLock<HashMap<Key, Arc<[Rule]>>> = LazyLock::new(bootstrap_rules);
    match SHARED.get(&(kind, namespace.to_owned(), name.to_owned())) {
        Some(shared) if **shared == *rules => Arc::clone(shared),
        _ => rules.into(),
    }
}

/// The process's copy of the binding, if it is equal.
pub(super) fn binding(binding: Binding) -> Arc<Binding> {
    static SHARED: LazyLock<HashMap<(String, String), Arc<Binding>>> = LazyLock::new(|| {
        let bindings = objects().iter().filter(|o| matches!(o.kind, PolicyKind::ClusterRoleBinding | PolicyKind::RoleBinding));
        let read = |o: &PolicyObject| {
            let body = Binding::deserialize(&o.body).unwrap_or_default();
            let binding = Binding { namespace: o.namespace.clone(), name: o.name.clone(), ..body };
            ((o.namespace.clone(), o.name.clone()), Arc::new(binding))
        };
        bindings.map(read).collect()
    });
    match SHARED.get(&(binding.namespace.clone(), binding.name.clone())) {
        Some(shared) if **shared == binding => Arc::clone(shared),
        _ => Arc::new(binding),
    }
}

/// The bootstrap roles as they are once the aggregation has run.
fn bootstrap_rules() -> HashMap<Key, Arc<[Rule]>> {
    let mut bodies: Vec<_> = objects().iter().filter(|o| o.kind == PolicyKind::ClusterRole).map(|o| o.body.clone()).collect();
    for _ in 0..AGGREGATION_ROUNDS {
        for i in 0..bodies.len() {
            if let Some(rules) = aggregation::plan(&bodies[i], &bodies) {
                bodies[i]["rules"] = json!(rules);
            }
        }
    }
    let cluster = bodies.iter().map(|role| {
        let name = role["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        ((PolicyKind::ClusterRole, String::new(), name), rules_of(role).into())
    });
    let namespaced = objects().iter().filter(|o| o.kind == PolicyKind::Role);
    cluster.chain(namespaced.map(|o| ((o.kind, o.namespace.clone(), o.name.clone()), rules_of(&o.body).into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rules_are_one_and_others_are_their_own() {
        let recorded: HashMap<String, serde_json::Value> = serde_json::from_str(include_str!("../../testdata/aggregated.json")).unwrap();
        let admin = || rules_of(&json!({"rules": recorded["admin"]}));
        let take = |list: Vec<Rule>| rules(PolicyKind::ClusterRole, "", "admin", list);
        assert!(Arc::ptr_eq(&take(admin()), &take(admin())));
        let fewer = take(admin()[1..].to_vec());
        assert_eq!(*fewer, admin()[1..]);
    }
}
