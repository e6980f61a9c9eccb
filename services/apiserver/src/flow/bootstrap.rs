//! The schemas and levels that every cluster starts with: upstream's mandatory and suggested ones.
//!
//! An object that says so (`apf.kubernetes.io/autoupdate-spec`) is brought back to this; one whose administrator said otherwise is left alone,
//! but for the mandatory ones.

use serde_json::{Value, json};

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Whether the server keeps the object's spec up to date.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// An object with its plural. The levels come before the schemas that name them.
pub fn objects() -> Vec<(&'static str, Value)> {
    levels()
        .into_iter()
        .map(|level| ("prioritylevelconfigurations", level))
        .chain(schemas().into_iter().map(|schema| ("flowschemas", schema)))
        .collect()
}

/// Whether the server insists on the object's spec.
pub fn is_mandatory(name: &str) -> bool {
    matches!(name, "exempt" | "catch-all")
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}}, "spec": spec,
    })
}

fn levels() -> Vec<Value> {
    let queued = |name: &str, shares: u64, lendable: u64, queues: u64, hand: u64| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        let limited = json!({
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": {"type": "Queue", "queuing": queuing},
        });
        object("PriorityLevelConfiguration", name, json!({"type": "Limited", "limited": limited}))
    };
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let reject = json!({"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}});
    vec![
        object("PriorityLevelConfiguration", "exempt", exempt),
        object("PriorityLevelConfiguration", "catch-all", json!({"type": "Limited", "limited": reject})),
        queued("system", 30, 33, 64, 6),
        queued("node-high", 40, 25, 64, 6),
        queued("leader-election", 10, 0, 16, 4),
        queued("workload-high", 40, 50, 128, 6),
        queued("workload-low", 100, 90, 128, 6),
        queued("global-default", 20, 50, 128, 6),
    ]
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": name}})
}

/// Any verb on anything.
fn everything(subjects: &[Value]) -> Value {
    json!([{
        "subjects": subjects,
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }])
}

/// Verbs on resources of one group in every namespace.
fn some(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]})
}

fn schemas() -> Vec<Value> {
    const LOCK: &[&str] = &["get", "create", "update"];
    let schema = |name: &str, level: &str, precedence: u64, by: &str, rules: Value| {
        let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": rules});
        if !by.is_empty() {
            spec["distinguisherMethod"] = json!({"type": by});
        }
        object("FlowSchema", name, spec)
    };
    let all = [group("system:unauthenticated"), group("system:authenticated")];
    let manager = user("system:kube-controller-manager");
    let scheduler = user("system:kube-scheduler");
    let leases = some(LOCK, "coordination.k8s.io", &["leases"]);
    let probes = json!([{
        "subjects": all, "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    }]);
    let election = json!([{"subjects": [&manager, &scheduler, account("*")], "resourceRules": [leases]}]);
    let workload_election = json!([{"subjects": [account("*")], "resourceRules": [leases]}]);
    let endpoints = json!([{
        "subjects": [&manager, account("endpoint-controller"), account("endpointslicemirroring-controller")],
        "resourceRules": [some(LOCK, "", &["endpoints"])],
    }]);
    let nodes = json!([{"subjects": [group("system:nodes")], "resourceRules": [
        {"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true, "namespaces": ["*"]},
        {"verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]},
    ]}]);
    vec![
        schema("exempt", "exempt", 1, "", everything(&[group("system:masters")])),
        schema("probes", "exempt", 2, "", probes),
        schema("system-leader-election", "leader-election", 100, "ByUser", election),
        schema("endpoint-controller", "workload-high", 150, "ByUser", endpoints),
        schema("workload-leader-election", "leader-election", 200, "ByUser", workload_election),
        schema("system-node-high", "node-high", 400, "ByUser", nodes),
        schema("system-nodes", "system", 500, "ByUser", everything(&[group("system:nodes")])),
        schema("kube-controller-manager", "workload-high", 800, "ByNamespace", everything(&[manager])),
        schema("kube-scheduler", "workload-high", 800, "ByNamespace", everything(&[scheduler])),
        schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", everything(&[account("*")])),
        schema("service-accounts", "workload-low", 9000, "ByUser", everything(&[group("system:serviceaccounts")])),
        schema("global-default", "global-default", 9900, "ByUser", everything(&all)),
        schema("catch-all", "catch-all", 10_000, "ByUser", everything(&all)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::rules::Rules;
    use crate::request::path::RequestInfo;
    use crate::request::query::Query;
    use crate::security::Derived;
    use http::Method;
    use wheelhouse_access::User;

    #[test]
    fn well_known_users_find_their_levels() {
        let mut rules = Rules::default();
        for (plural, object) in objects() {
            rules.put(&format!("{plural}/{}", object["metadata"]["name"].as_str().unwrap()), Some(object));
        }
        let cases: [(&str, &[&str], &str, &str, &str); 8] = [
            ("root", &["system:masters", "system:authenticated"], "/api/v1/pods", "exempt", "exempt"),
            ("system:node:n", &["system:nodes", "system:authenticated"], "/api/v1/nodes/n", "system-node-high", "node-high"),
            ("system:node:n", &["system:nodes", "system:authenticated"], "/api/v1/pods", "system-nodes", "system"),
            ("system:serviceaccount:kube-system:x", &["system:serviceaccounts"], "/api/v1/pods", "kube-system-service-accounts", "workload-high"),
            ("system:serviceaccount:a:x", &["system:serviceaccounts"], "/api/v1/pods", "service-accounts", "workload-low"),
            ("jane", &["system:authenticated"], "/api/v1/pods", "global-default", "global-default"),
            ("system:anonymous", &["system:unauthenticated"], "/healthz", "probes", "exempt"),
            ("nobody", &[], "/api/v1/pods", "catch-all", "catch-all"),
        ];
        for (name, groups, path, schema, level) in cases {
            let user = User { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() };
            let info = RequestInfo::parse(&Method::GET, path, &Query::parse(""));
            let (found, of) = rules.classify(&user, &info);
            assert_eq!((found.name.as_str(), of.name.as_str()), (schema, level), "{name} {path}");
        }
    }
}
