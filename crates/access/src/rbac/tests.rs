//! Decisions, covering and escalation, against recorded answers and a reference model.

use proptest::prelude::*;
use serde_json::{Value, json};
use wheelhouse_base::Timestamp;

use super::rule::uncovered;
use super::*;
use crate::admission::{Operation, Request};
use crate::attributes::{Attributes, Decision, Target};
use crate::authorizer::authorize;
use crate::user::User;

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|g| (*g).into()).collect(), ..User::default() }
}

fn target<'a>(group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str) -> Target<'a> {
    Target::Resource { group, version: "v1", resource, subresource, namespace, name }
}

/// The role and binding of `i-auth/reviews.json`.
fn reviews() -> Policy {
    let mut policy = Policy::default();
    let role = json!({"rules": [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["*/scale"]},
    ]});
    let binding = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                         "subjects": [{"kind": "User", "name": "jane"}, {"kind": "Group", "name": "dev"}, {"kind": "ServiceAccount", "name": "bot"}]});
    let viewer = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/version", "/healthz/*"]}]});
    let everyone = json!({"roleRef": {"kind": "ClusterRole", "name": "viewer"}, "subjects": [{"kind": "Group", "name": "system:authenticated"}]});
    policy.upsert(PolicyKind::Role, "ns", "r", &role).unwrap();
    policy.upsert(PolicyKind::RoleBinding, "ns", "rb", &binding).unwrap();
    policy.upsert(PolicyKind::ClusterRole, "", "viewer", &viewer).unwrap();
    policy.upsert(PolicyKind::ClusterRoleBinding, "", "everyone", &everyone).unwrap();
    policy
}

#[test]
fn decisions_and_reasons_are_as_recorded() {
    let policy = reviews();
    let by = |subject: &str| Some(format!("RBAC: allowed by RoleBinding \"rb/ns\" of Role \"r\" to {subject}"));
    let (jane, joe, bot) = (user("jane", &[]), user("joe", &["dev"]), user("system:serviceaccount:ns:bot", &["system:authenticated"]));
    let rows: [(&User, &str, Target<'_>, Option<String>); 13] = [
        (&jane, "get", target("", "pods", "", "ns", ""), by("User \"jane\"")),
        (&jane, "delete", target("", "pods", "", "ns", ""), None),
        (&jane, "get", target("", "pods", "", "other", ""), None),
        (&jane, "get", target("", "pods", "log", "ns", "p"), None),
        (&joe, "list", target("", "pods", "", "ns", ""), by("Group \"dev\"")),
        (&bot, "get", target("", "pods", "", "ns", ""), by("ServiceAccount \"bot/ns\"")),
        (&jane, "delete", target("", "configmaps", "", "ns", "one"), by("User \"jane\"")),
        (&jane, "delete", target("", "configmaps", "", "ns", "two"), None),
        (&jane, "list", target("", "configmaps", "", "ns", ""), None),
        (&jane, "get", target("apps", "deployments", "scale", "ns", "d"), None),
        (&jane, "get", target("", "replicationcontrollers", "scale", "ns", "d"), by("User \"jane\"")),
        (
            &bot,
            "get",
            Target::Path("/version"),
            Some("RBAC: allowed by ClusterRoleBinding \"everyone\" of ClusterRole \"viewer\" to Group \"system:authenticated\"".into()),
        ),
        (&jane, "get", Target::Path("/version"), None),
    ];
    for (user, verb, target, expected) in rows {
        let decision = authorize(&policy, None, &Attributes::new(user, verb, target.clone()));
        let found = match &decision {
            Decision::Allow { reason } => Some(reason.clone()),
            Decision::NoOpinion { .. } => None,
        };
        assert_eq!(found, expected, "{user:?} {verb} {target:?}");
    }
    let root = user("x", &["system:masters"]);
    assert_eq!(authorize(&policy, None, &Attributes::new(&root, "*", target("*", "*", "", "", ""))), Decision::Allow { reason: String::new() });
}

#[test]
fn objects_come_change_and_go() {
    let mut policy = reviews();
    let jane = user("jane", &[]);
    let allowed = |policy: &Policy| policy.authorize(&Attributes::new(&jane, "get", target("", "pods", "", "ns", ""))).allowed();
    assert!(allowed(&policy));
    let only_joe = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "joe"}]});
    policy.upsert(PolicyKind::RoleBinding, "ns", "rb", &only_joe).unwrap();
    assert!(!allowed(&policy));
    let jane_again = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "jane"}]});
    policy.upsert(PolicyKind::RoleBinding, "ns", "rb", &jane_again).unwrap();
    assert!(allowed(&policy));
    policy.remove(PolicyKind::Role, "ns", "r");
    let refused = policy.authorize(&Attributes::new(&jane, "get", target("", "pods", "", "ns", "")));
    assert_eq!(refused.reason(), "RBAC: role.rbac.authorization.k8s.io \"r\" not found");
    policy.remove(PolicyKind::RoleBinding, "ns", "rb");
    let refused = policy.authorize(&Attributes::new(&jane, "get", target("", "pods", "", "ns", "")));
    assert_eq!(refused.reason(), "");
    policy.upsert(PolicyKind::Role, "ns", "r", &json!({"rules": null})).unwrap();
    assert!(policy.upsert(PolicyKind::Role, "ns", "r", &json!({"rules": 1})).is_err());
}

#[test]
fn missing_roles_are_joined() {
    let mut policy = Policy::default();
    for (name, role) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let binding = json!({"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": "jane"}]});
        policy.upsert(PolicyKind::ClusterRoleBinding, "", name, &binding).unwrap();
    }
    let jane = user("jane", &[]);
    let refused = policy.authorize(&Attributes::new(&jane, "get", target("", "nodes", "", "", "")));
    assert_eq!(
        refused.reason(),
        "RBAC: [clusterrole.rbac.authorization.k8s.io \"x\" not found, clusterrole.rbac.authorization.k8s.io \"y\" not found]"
    );
}

/// `i-auth/impersonate.json` and `whoami.json`.
#[test]
fn refusals_are_worded_as_recorded() {
    let (jane, anonymous) = (user("jane", &[]), User::anonymous());
    let rows = [
        (
            &jane,
            "list",
            target("", "pods", "", "n", ""),
            "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"n\"",
        ),
        (
            &jane,
            "get",
            target("", "pods", "", "n", "x"),
            "pods \"x\" is forbidden: User \"jane\" cannot get resource \"pods\" in API group \"\" in the namespace \"n\"",
        ),
        (
            &jane,
            "list",
            target("", "nodes", "", "", ""),
            "nodes is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            &jane,
            "get",
            target("apps", "deployments", "scale", "n", "x"),
            "deployments.apps \"x\" is forbidden: User \"jane\" cannot get resource \"deployments/scale\" in API group \"apps\" in the namespace \"n\"",
        ),
        (&jane, "get", Target::Path("/logs"), "forbidden: User \"jane\" cannot get path \"/logs\""),
        (&anonymous, "get", Target::Path("/api"), "forbidden: User \"system:anonymous\" cannot get path \"/api\""),
        (
            &jane,
            "deletecollection",
            target("", "pods", "", "n", ""),
            "pods is forbidden: User \"jane\" cannot deletecollection resource \"pods\" in API group \"\" in the namespace \"n\"",
        ),
    ];
    for (user, verb, target, message) in rows {
        let status = forbidden(&Attributes::new(user, verb, target), "");
        assert_eq!((status.message.as_str(), status.code), (message, 403));
    }
    let with_reason = forbidden(&Attributes::new(&jane, "list", target("", "nodes", "", "", "")), "why");
    assert!(with_reason.message.ends_with("at the cluster scope: why"));
}

/// The holder of `i-auth/escalation.json`: may write roles and bindings, and holds `get` on pods.
fn boss() -> (Policy, User) {
    let mut policy = Policy::default();
    let role = json!({"rules": [
        {"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["nothing"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
    ]});
    let binding = json!({"roleRef": {"kind": "Role", "name": "boss"}, "subjects": [{"kind": "User", "name": "boss"}]});
    policy.upsert(PolicyKind::Role, "ns", "boss", &role).unwrap();
    policy.upsert(PolicyKind::RoleBinding, "ns", "boss", &binding).unwrap();
    let wide = json!({"rules": [{"verbs": ["create", "delete", "get"], "apiGroups": [""], "resources": ["pods", "secrets"]}, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]});
    policy.upsert(PolicyKind::ClusterRole, "", "wide", &wide).unwrap();
    (policy, user("boss", &["system:authenticated"]))
}

fn write(resource: &str, object: &Value, old: Option<&Value>) -> crate::lookups::Answer<()> {
    let (policy, boss) = boss();
    let attributes = Attributes::new(&boss, "create", target("rbac.authorization.k8s.io", resource, "", "ns", ""));
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let request = Request { attributes: &attributes, operation, old, dry_run: false, now: Timestamp::default(), seed: 0 };
    escalation::check(&request, object, &policy, &|a| policy.authorize(a))
}

fn rule(verbs: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": resources, "verbs": verbs})
}

#[test]
fn roles_grant_only_what_their_writer_holds() {
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    assert!(write("roles", &role("ok", json!([rule(&["get"], &["pods"])])), None).is_ok());
    let refused = |role: &Value| write("roles", role, None).unwrap_err().message.clone();
    assert_eq!(
        refused(&role("no", json!([rule(&["get", "list"], &["secrets"])]))),
        "roles.rbac.authorization.k8s.io \"no\" is forbidden: user \"boss\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC \
         permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
    );
    assert!(
        refused(&role("star", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])))
            .ends_with("{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}")
    );
    let old = role("ok", json!([rule(&["get"], &["secrets"])]));
    let mut orphaned = old.clone();
    orphaned["metadata"]["ownerReferences"] = json!([{"uid": "x"}]);
    assert!(write("roles", &orphaned, Some(&old)).is_ok());
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert!(write("roles", &labelled, Some(&old)).is_err());
    let aggregated = json!({"metadata": {"name": "x"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    assert!(write("clusterroles", &aggregated, None).unwrap_err().message.ends_with("must have cluster-admin privileges to use the aggregationRule"));
}

#[test]
fn bindings_grant_only_what_their_writer_holds() {
    let binding =
        |kind: &str, role: &str| json!({"metadata": {"name": "c"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}});
    assert_eq!(
        write("rolebindings", &binding("ClusterRole", "wide"), None).unwrap_err().message,
        "rolebindings.rbac.authorization.k8s.io \"c\" is forbidden: user \"boss\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC \
         permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"create\" \"delete\" \"list\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"create\" \"delete\" \"get\"]}"
    );
    let absent = write("rolebindings", &binding("Role", "absent"), None).unwrap_err();
    assert_eq!((absent.code, absent.message.as_str()), (404, "rolebindings.rbac.authorization.k8s.io \"absent\" not found"));
}

fn words(pool: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop::sample::select(pool).prop_map(str::to_owned), 1..3)
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let resource = (words(&["get", "list", "*"]), words(&["", "apps", "*"]), words(&["pods", "pods/scale", "*/scale", "*"]), prop::bool::ANY);
    let resource = resource.prop_map(|(verbs, api_groups, resources, named)| {
        let resource_names = if named { vec!["one".to_owned()] } else { Vec::new() };
        Rule { verbs, api_groups, resources, resource_names, ..Rule::default() }
    });
    let path = (words(&["get", "*"]), words(&["/a", "/a/*", "*", "/b"])).prop_map(|(verbs, non_resource_urls)| Rule {
        verbs,
        non_resource_urls,
        ..Rule::default()
    });
    prop_oneof![3 => resource, 1 => path]
}

/// Every access that the words of [`any_rule`] can be about.
fn all_accesses(user: &User) -> Vec<Attributes<'_>> {
    let mut all = Vec::new();
    for verb in ["get", "list", "other"] {
        for group in ["", "apps", "batch"] {
            for (resource, subresource) in [("pods", ""), ("pods", "scale"), ("jobs", ""), ("jobs", "scale"), ("pods", "log")] {
                all.extend(["", "one", "two"].map(|name| Attributes::new(user, verb, target(group, resource, subresource, "", name))));
            }
        }
        all.extend(["/a", "/a/x", "/b", "/c"].map(|path| Attributes::new(user, verb, Target::Path(path))));
    }
    all
}

proptest! {
    /// If nothing is uncovered, no access is allowed by the new rules that the held ones refuse.
    #[test]
    fn covered_rules_allow_nothing_new(held in prop::collection::vec(any_rule(), 0..4), wanted in prop::collection::vec(any_rule(), 1..3)) {
        let user = User::default();
        if uncovered(&held, &wanted).is_empty() {
            for access in all_accesses(&user) {
                let allowed = |rules: &[Rule]| rules.iter().any(|r| r.allows(&access));
                prop_assert!(!allowed(&wanted) || allowed(&held), "{access:?}");
            }
        }
    }

    /// What is reported as missing is exactly what is lacking: held and missing rules together cover the wanted ones.
    #[test]
    fn the_missing_rules_complete_the_held(held in prop::collection::vec(any_rule(), 0..4), wanted in prop::collection::vec(any_rule(), 1..3)) {
        let missing = uncovered(&held, &wanted);
        let mut together = held.clone();
        together.extend(rule::compact_rules(&missing));
        prop_assert!(uncovered(&together, &wanted).is_empty());
        prop_assert!(uncovered(&wanted, &wanted).is_empty());
    }

    /// The subject index finds the same bindings as looking at every one.
    #[test]
    fn the_index_agrees_with_a_full_scan(subjects in prop::collection::vec((0..3usize, 0..4usize), 1..12), removed in prop::collection::vec(0..12usize, 0..4)) {
        let kinds = ["User", "Group", "ServiceAccount"];
        let mut policy = Policy::default();
        policy.upsert(PolicyKind::ClusterRole, "", "r", &json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]})).unwrap();
        let mut bindings: Vec<Option<Subject>> = Vec::new();
        for (i, (kind, name)) in subjects.iter().enumerate() {
            let name = if kinds[*kind] == "User" && *name == 3 { "system:serviceaccount:ns:n1".to_owned() } else { format!("n{name}") };
            let subject = json!({"kind": kinds[*kind], "name": name, "namespace": "ns"});
            policy.upsert(PolicyKind::ClusterRoleBinding, "", &format!("b{i}"), &json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [subject]})).unwrap();
            bindings.push(Some(serde_json::from_value(subject).unwrap()));
        }
        for i in removed {
            policy.remove(PolicyKind::ClusterRoleBinding, "", &format!("b{i}"));
            if let Some(binding) = bindings.get_mut(i) {
                *binding = None;
            }
        }
        for who in [user("n0", &["n1"]), user("n2", &[]), user("system:serviceaccount:ns:n1", &[])] {
            let expected = bindings.iter().flatten().any(|s| match s.kind.as_str() {
                "User" => s.name == who.name,
                "Group" => who.in_group(&s.name),
                _ => who.name == format!("system:serviceaccount:ns:{}", s.name),
            });
            prop_assert_eq!(policy.authorize(&Attributes::new(&who, "get", target("", "pods", "", "", ""))).allowed(), expected);
        }
    }
}
