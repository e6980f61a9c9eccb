//! The Node authorizer: a kubelet reads what its own pods need and nothing else.
//!
//! ```text
//! pod on node n --> its secrets, config maps, claims, account          (NodeGraph, fed with pods)
//! claim --> volume --> the volume's secrets;   attachment --> node     (looked up when asked for)
//! ```
//!
//! The graph is derived from pods alone and holds names only. What a node may do apart from reading such objects are the fixed rules of
//! the ClusterRole `system:node`, which upstream binds to nobody for this reason.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use serde_json::Value;

use crate::attributes::{Attributes, Decision, Target};
use crate::lookups::Lookups;
use crate::rbac::Rule;
use crate::user::User;

const NODES_GROUP: &str = "system:nodes";
const USER_PREFIX: &str = "system:node:";
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// A kind of object that pods refer to within their namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Secret,
    ConfigMap,
    Claim,
    Account,
    ResourceClaim,
    Pod,
}

type Key = (Kind, String, String);

/// Which objects the pods of which node refer to.
#[derive(Clone, Debug, Default)]
pub struct NodeGraph {
    /// By namespace and name: the pod's node and what it refers to.
    pods: HashMap<(String, String), (String, BTreeSet<Key>)>,
    /// For each object, its nodes and how many of their pods refer to it.
    referrers: HashMap<Key, HashMap<String, usize>>,
}

/// What the authorizer decides by.
#[derive(Clone, Copy)]
pub struct Nodes<'a> {
    pub graph: &'a NodeGraph,
    pub lookups: &'a dyn Lookups,
}

/// Whether the user is a node, by name and by group.
pub fn is_node(user: &User) -> bool {
    user.name.starts_with(USER_PREFIX) && user.in_group(NODES_GROUP)
}

/// The node that the user is; empty for one that is none.
pub fn node_name(user: &User) -> &str {
    user.name.strip_prefix(USER_PREFIX).unwrap_or_default()
}

/// Calls back with what kind of object, and which, for every object of its namespace that a pod refers to, its service account apart.
pub fn each_reference(pod: &Value, found: &mut dyn FnMut(&'static str, &str)) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    references(pod, name, &mut |kind, object| match kind {
        Kind::Secret => found("secrets", object),
        Kind::ConfigMap => found("configmaps", object),
        Kind::Claim => found("persistentvolumeclaims", object),
        Kind::ResourceClaim => found("resourceclaims", object),
        Kind::Account | Kind::Pod => {}
    });
}

impl NodeGraph {
    /// Takes in a created or changed pod.
    pub fn upsert(&mut self, namespace: &str, name: &str, pod: &Value) {
        self.remove(namespace, name);
        let Some(node) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) else { return };
        let mut keys = BTreeSet::from([(Kind::Pod, namespace.to_owned(), name.to_owned())]);
        // A mirror pod is made by the node itself, which must not gain anything by it.
        if pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null() {
            references(pod, name, &mut |kind, object| {
                keys.insert((kind, namespace.to_owned(), object.to_owned()));
            });
        }
        for key in &keys {
            *self.referrers.entry(key.clone()).or_default().entry(node.to_owned()).or_default() += 1;
        }
        self.pods.insert((namespace.to_owned(), name.to_owned()), (node.to_owned(), keys));
    }

    pub fn remove(&mut self, namespace: &str, name: &str) {
        let Some((node, keys)) = self.pods.remove(&(namespace.to_owned(), name.to_owned())) else { return };
        for key in keys {
            let Some(nodes) = self.referrers.get_mut(&key) else { continue };
            if let Some(count) = nodes.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&node);
                }
            }
            if nodes.is_empty() {
                self.referrers.remove(&key);
            }
        }
    }

    fn relates(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        self.referrers.get(&(kind, namespace.to_owned(), name.to_owned())).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn claims<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let here = self.referrers.iter().filter(move |(key, nodes)| key.0 == Kind::Claim && nodes.contains_key(node));
        here.map(|(key, _)| (key.1.as_str(), key.2.as_str()))
    }
}

/// Calls back with every object of its own namespace that a pod needs.
fn references(pod: &Value, pod_name: &str, found: &mut dyn FnMut(Kind, &str)) {
    let spec = &pod["spec"];
    let mut note = |kind: Kind, name: &Value| {
        if let Some(name) = name.as_str().filter(|n| !n.is_empty()) {
            found(kind, name);
        }
    };
    note(Kind::Account, &spec["serviceAccountName"]);
    each(&spec["imagePullSecrets"], |s| note(Kind::Secret, &s["name"]));
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each(&spec[list], |container| {
            each(&container["env"], |env| {
                note(Kind::Secret, &env["valueFrom"]["secretKeyRef"]["name"]);
                note(Kind::ConfigMap, &env["valueFrom"]["configMapKeyRef"]["name"]);
            });
            each(&container["envFrom"], |source| {
                note(Kind::Secret, &source["secretRef"]["name"]);
                note(Kind::ConfigMap, &source["configMapRef"]["name"]);
            });
        });
    }
    each(&spec["volumes"], |volume| {
        note(Kind::Secret, &volume["secret"]["secretName"]);
        note(Kind::ConfigMap, &volume["configMap"]["name"]);
        note(Kind::Claim, &volume["persistentVolumeClaim"]["claimName"]);
        if volume["ephemeral"].is_object() {
            note(Kind::Claim, &format!("{pod_name}-{}", volume["name"].as_str().unwrap_or_default()).into());
        }
        for source in ["cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
            note(Kind::Secret, &volume[source]["secretRef"]["name"]);
        }
        note(Kind::Secret, &volume["csi"]["nodePublishSecretRef"]["name"]);
        note(Kind::Secret, &volume["azureFile"]["secretName"]);
        each(&volume["projected"]["sources"], |source| {
            note(Kind::Secret, &source["secret"]["name"]);
            note(Kind::ConfigMap, &source["configMap"]["name"]);
        });
    });
    each(&spec["resourceClaims"], |claim| note(Kind::ResourceClaim, &claim["resourceClaimName"]));
    each(&pod["status"]["resourceClaimStatuses"], |claim| note(Kind::ResourceClaim, &claim["resourceClaimName"]));
}

fn each(list: &Value, mut call: impl FnMut(&Value)) {
    list.as_array().into_iter().flatten().for_each(&mut call);
}

/// The Node authorizer's word on a node's request.
pub fn authorize(nodes: Nodes<'_>, attributes: &Attributes<'_>) -> Decision {
    let node = attributes.user.name.strip_prefix(USER_PREFIX).unwrap_or_default();
    if node.is_empty() {
        return no_opinion(format!("unknown node for user {}", wheelhouse_meta::gotext::quote(&attributes.user.name)));
    }
    let Target::Resource { group, resource, subresource, namespace, name, .. } = attributes.target else { return by_rules(attributes) };
    let asked = Asked { nodes, node, verb: attributes.verb, subresource, namespace, name };
    match (group, resource) {
        ("", "secrets") => asked.read(Kind::Secret),
        ("", "configmaps") => asked.read(Kind::ConfigMap),
        ("", "persistentvolumeclaims") if subresource == "status" => asked.update_claim_status(),
        ("", "persistentvolumeclaims") => asked.get(|| asked.relates(Kind::Claim)),
        ("", "persistentvolumes") => asked.get(|| asked.volume()),
        ("resource.k8s.io", "resourceclaims") => asked.get(|| asked.relates(Kind::ResourceClaim)),
        ("storage.k8s.io", "volumeattachments") => asked.get(|| asked.attachment()),
        ("", "serviceaccounts") => asked.account(),
        ("coordination.k8s.io", "leases") => asked.lease(),
        ("storage.k8s.io", "csinodes") => asked.csi_node(),
        ("", "nodes") => asked.own_node(),
        ("", "pods") => asked.pod(attributes),
        _ => by_rules(attributes),
    }
}

/// Resources that are not told apart by node: the rules of `system:node` decide.
fn by_rules(attributes: &Attributes<'_>) -> Decision {
    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
        let role = crate::bootstrap::objects().iter().find(|o| o.namespace.is_empty() && o.name == "system:node" && o.body["kind"] == "ClusterRole");
        role.map(|role| crate::bootstrap::rules_of(&role.body)).unwrap_or_default()
    });
    if RULES.iter().any(|rule| rule.allows(attributes)) { allow() } else { no_opinion("") }
}

fn allow() -> Decision {
    Decision::Allow { reason: String::new() }
}

fn no_opinion(reason: impl Into<String>) -> Decision {
    Decision::NoOpinion { reason: reason.into() }
}

/// One request of one node.
#[derive(Clone, Copy)]
struct Asked<'a> {
    nodes: Nodes<'a>,
    node: &'a str,
    verb: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl Asked<'_> {
    fn relates(&self, kind: Kind) -> bool {
        self.nodes.graph.relates(self.node, kind, self.namespace, self.name)
    }

    fn related(&self, relates: impl FnOnce() -> bool) -> Decision {
        if self.name.is_empty() {
            return no_opinion("No Object name found");
        }
        if relates() { allow() } else { no_opinion(format!("no relationship found between node '{}' and this object", self.node)) }
    }

    fn read(&self, kind: Kind) -> Decision {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return no_opinion("can only read resources of this type");
        }
        if !self.subresource.is_empty() {
            return no_opinion("cannot read subresource");
        }
        if self.namespace.is_empty() {
            return no_opinion("can only read namespaced object of this type");
        }
        self.related(|| self.relates(kind) || (kind == Kind::Secret && self.volume_secret()))
    }

    fn get(&self, relates: impl FnOnce() -> bool) -> Decision {
        if self.verb != "get" {
            return no_opinion("can only get individual resources of this type");
        }
        if !self.subresource.is_empty() {
            return no_opinion("cannot get subresource");
        }
        self.related(relates)
    }

    fn update_claim_status(&self) -> Decision {
        if !matches!(self.verb, "get" | "update" | "patch") {
            return no_opinion("can only get/update/patch this type");
        }
        self.related(|| self.relates(Kind::Claim))
    }

    /// A volume is the node's if its claim is.
    fn volume(&self) -> bool {
        let Some(volume) = self.nodes.lookups.get("", "persistentvolumes", "", self.name) else { return false };
        let claim = &volume["spec"]["claimRef"];
        let text = |key: &str| claim[key].as_str().unwrap_or_default();
        self.nodes.graph.relates(self.node, Kind::Claim, text("namespace"), text("name"))
    }

    /// A secret that a volume of the node names; volumes name secrets in any namespace.
    fn volume_secret(&self) -> bool {
        let lookups = self.nodes.lookups;
        self.nodes.graph.claims(self.node).any(|(namespace, name)| {
            let Some(claim) = lookups.get("", "persistentvolumeclaims", namespace, name) else { return false };
            let Some(volume) = claim["spec"]["volumeName"].as_str().and_then(|v| lookups.get("", "persistentvolumes", "", v)) else { return false };
            let bound = volume["spec"]["claimRef"]["namespace"] == namespace && volume["spec"]["claimRef"]["name"] == name;
            bound && volume_secrets(&volume["spec"], namespace).contains(&(self.namespace.to_owned(), self.name.to_owned()))
        })
    }

    fn attachment(&self) -> bool {
        let attachment = self.nodes.lookups.get("storage.k8s.io", "volumeattachments", "", self.name);
        attachment.is_some_and(|a| a["spec"]["nodeName"] == self.node)
    }

    fn account(&self) -> Decision {
        if self.verb == "get" && self.subresource.is_empty() {
            return self.related(|| self.relates(Kind::Account));
        }
        if self.verb != "create" || self.name.is_empty() {
            return no_opinion("can only create tokens for individual service accounts");
        }
        if self.subresource != "token" {
            return no_opinion("can only create token subresource of serviceaccount");
        }
        self.related(|| self.relates(Kind::Account))
    }

    fn lease(&self) -> Decision {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return no_opinion("can only get, create, update, patch, or delete a node lease");
        }
        if self.namespace != LEASE_NAMESPACE {
            return no_opinion(format!("can only access leases in the \"{LEASE_NAMESPACE}\" system namespace"));
        }
        // A create's name is in its body, which is not known here.
        if self.verb != "create" && self.name != self.node {
            return no_opinion("can only access node lease with the same name as the requesting node");
        }
        allow()
    }

    fn csi_node(&self) -> Decision {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return no_opinion("can only get, create, update, patch, or delete a CSINode");
        }
        if !self.subresource.is_empty() {
            return no_opinion("cannot authorize CSINode subresources");
        }
        if self.verb != "create" && self.name != self.node {
            return no_opinion("can only access CSINode with the same name as the requesting node");
        }
        allow()
    }

    fn own_node(&self) -> Decision {
        match (self.subresource, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => allow(),
            ("", "get" | "list" | "watch") if self.name == self.node => allow(),
            ("", "get" | "list" | "watch") if self.name.is_empty() => {
                no_opinion(format!("node '{}' cannot read all nodes, only its own Node object", self.node))
            }
            ("", "get" | "list" | "watch") => no_opinion(format!("node '{}' cannot read '{}', only its own Node object", self.node, self.name)),
            _ => no_opinion(""),
        }
    }

    fn pod(&self, attributes: &Attributes<'_>) -> Decision {
        match (self.subresource, self.verb) {
            ("", "get") => self.get(|| self.relates(Kind::Pod)),
            ("", "list" | "watch") => {
                let own = attributes.field_selector.iter().any(|r| r.field == "spec.nodeName" && !r.negated && r.value == self.node);
                if own { allow() } else { no_opinion("can only list/watch pods with spec.nodeName field selector") }
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => allow(),
            _ => no_opinion(""),
        }
    }
}

/// Namespace and name of the secrets that a volume names; without a namespace of its own a reference is in the claim's.
fn volume_secrets(spec: &Value, claim_namespace: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut note = |reference: &Value| {
        if let Some(name) = reference["name"].as_str() {
            let namespace = reference["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(claim_namespace);
            found.insert((namespace.to_owned(), name.to_owned()));
        }
    };
    for source in ["cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
        note(&spec[source]["secretRef"]);
    }
    for reference in ["controllerPublishSecretRef", "nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"] {
        note(&spec["csi"][reference]);
    }
    let azure = &spec["azureFile"];
    note(&serde_json::json!({"name": azure["secretName"], "namespace": azure["secretNamespace"]}));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::FieldRequirement;
    use crate::authorizer;
    use crate::lookups::MemoryLookups;
    use crate::rbac::Policy;
    use serde_json::json;

    fn node(name: &str) -> User {
        User { name: format!("system:node:{name}"), groups: vec!["system:nodes".into()], ..User::default() }
    }

    fn target<'a>(group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str) -> Target<'a> {
        Target::Resource { group, version: "v1", resource, subresource, namespace, name }
    }

    fn pod(node: &str) -> Value {
        json!({"spec": {"nodeName": node, "serviceAccountName": "bot", "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "env"}}}], "envFrom": [{"configMapRef": {"name": "from"}}]}],
            "volumes": [{"name": "v", "secret": {"secretName": "vol"}}, {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
                        {"name": "e", "ephemeral": {}}, {"name": "p", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}}]}})
    }

    fn world() -> MemoryLookups {
        MemoryLookups::default()
            .with("", "persistentvolumeclaims", json!({"metadata": {"name": "claim", "namespace": "ns"}, "spec": {"volumeName": "pv"}}))
            .with(
                "",
                "persistentvolumes",
                json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"namespace": "ns", "name": "claim"}, "csi": {"nodePublishSecretRef": {"name": "csi", "namespace": "other"}}}}),
            )
            .with("storage.k8s.io", "volumeattachments", json!({"metadata": {"name": "va"}, "spec": {"nodeName": "n1"}}))
    }

    fn decide(graph: &NodeGraph, user: &User, verb: &str, target: Target<'_>, selector: &[FieldRequirement]) -> Decision {
        let world = world();
        let attributes = Attributes { field_selector: selector, ..Attributes::new(user, verb, target) };
        authorizer::authorize(&Policy::default(), Some(Nodes { graph, lookups: &world }), &attributes)
    }

    #[test]
    fn a_node_reads_what_its_pods_need_and_no_longer() {
        let mut graph = NodeGraph::default();
        graph.upsert("ns", "p", &pod("n1"));
        let objects = [
            target("", "secrets", "", "ns", "env"),
            target("", "secrets", "", "ns", "vol"),
            target("", "secrets", "", "ns", "pull"),
            target("", "secrets", "", "other", "csi"),
            target("", "configmaps", "", "ns", "from"),
            target("", "configmaps", "", "ns", "kube-root-ca.crt"),
            target("", "persistentvolumeclaims", "", "ns", "claim"),
            target("", "persistentvolumeclaims", "", "ns", "p-e"),
            target("", "persistentvolumes", "", "", "pv"),
            target("", "serviceaccounts", "", "ns", "bot"),
            target("", "pods", "", "ns", "p"),
        ];
        for object in &objects {
            assert!(decide(&graph, &node("n1"), "get", object.clone(), &[]).allowed(), "{object:?}");
            assert!(!decide(&graph, &node("n2"), "get", object.clone(), &[]).allowed(), "{object:?}");
        }
        assert!(decide(&graph, &node("n1"), "create", target("", "serviceaccounts", "token", "ns", "bot"), &[]).allowed());
        assert!(!decide(&graph, &node("n1"), "get", target("", "secrets", "", "other", "env"), &[]).allowed());
        // Two pods need it; the second keeps it.
        graph.upsert("ns", "q", &pod("n1"));
        graph.remove("ns", "p");
        assert!(decide(&graph, &node("n1"), "get", objects[0].clone(), &[]).allowed());
        graph.remove("ns", "q");
        for object in objects {
            assert!(!decide(&graph, &node("n1"), "get", object.clone(), &[]).allowed(), "{object:?}");
        }
        assert!(graph.referrers.is_empty() && graph.pods.is_empty());
        // A node must not get at a secret by making a mirror pod of its own.
        let mut mirror = pod("n1");
        mirror["metadata"] = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
        graph.upsert("ns", "m", &mirror);
        assert!(!decide(&graph, &node("n1"), "get", target("", "secrets", "", "ns", "env"), &[]).allowed());
    }

    /// `i-auth/node-authorizer.json` and `reviews.json`.
    #[test]
    fn refusals_give_the_recorded_reasons() {
        let graph = NodeGraph::default();
        let own = [FieldRequirement { field: "spec.nodeName".into(), negated: false, value: "n1".into() }];
        let rows: [(&str, Target<'_>, &[FieldRequirement], Option<&str>); 13] = [
            ("create", target("", "nodes", "", "", ""), &[], None),
            ("patch", target("", "nodes", "", "", "n1"), &[], None),
            ("delete", target("", "nodes", "", "", "n1"), &[], Some("")),
            ("get", target("", "secrets", "", "ns", "s"), &[], Some("no relationship found between node 'n1' and this object")),
            ("list", target("", "secrets", "", "ns", ""), &[], Some("No Object name found")),
            ("list", target("", "pods", "", "", ""), &[], Some("can only list/watch pods with spec.nodeName field selector")),
            ("list", target("", "pods", "", "", ""), &own, None),
            ("update", target("coordination.k8s.io", "leases", "", "kube-node-lease", "n1"), &[], None),
            (
                "update",
                target("coordination.k8s.io", "leases", "", "kube-node-lease", "n2"),
                &[],
                Some("can only access node lease with the same name as the requesting node"),
            ),
            ("get", target("storage.k8s.io", "volumeattachments", "", "", "va"), &[], None),
            ("list", target("", "services", "", "", ""), &[], None),
            ("create", target("", "events", "", "ns", ""), &[], None),
            ("delete", target("", "services", "", "ns", "s"), &[], Some("")),
        ];
        for (verb, target, selector, refused) in rows {
            let decision = decide(&graph, &node("n1"), verb, target.clone(), selector);
            match refused {
                None => assert!(decision.allowed(), "{verb} {target:?}"),
                Some(reason) => assert_eq!(decision, Decision::NoOpinion { reason: reason.into() }, "{verb} {target:?}"),
            }
        }
        // The name alone makes no node.
        let impostor = User { groups: vec![], ..node("n1") };
        assert!(!decide(&graph, &impostor, "create", target("", "nodes", "", "", ""), &[]).allowed());
    }
}
