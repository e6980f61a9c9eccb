//! NodeRestriction: a node writes its own objects only, and of those only what a node has to say.
//!
//! The Node authorizer lets a kubelet write Nodes, pods' status, leases and tokens at all; which of them is decided here, where the object is known. The
//! texts are upstream's.

use serde_json::Value;

use super::pod::{is_mirror, text};
use super::{Operation, Request};
use crate::authorizer::node::{is_node, node_name};
use crate::lookups::{Answer, Lookups};

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Labels in Kubernetes' own namespaces that a kubelet may set on its Node, beside those under the two prefixes.
const OWN_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const OWN_PREFIXES: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Refuses what a node may not write. `object` is `None` for deletes and connections.
pub fn validate(request: &Request<'_>, object: Option<&Value>, lookups: &dyn Lookups) -> Answer<()> {
    let user = request.attributes.user;
    if !is_node(user) {
        return Ok(());
    }
    let node = node_name(user);
    let check = Check { request, object, lookups, node };
    match (request.group(), request.resource(), request.subresource()) {
        ("", "pods", "") => check.pod(),
        ("", "pods", "status") => check.pod_status(),
        ("", "pods", "eviction") => check.eviction(),
        ("", "nodes", _) => check.node(),
        ("", "serviceaccounts", "token") => check.token(),
        ("coordination.k8s.io", "leases", _) => check.lease(),
        ("storage.k8s.io", "csinodes", _) => check.csi_node(),
        _ => Ok(()),
    }
}

struct Check<'a> {
    request: &'a Request<'a>,
    object: Option<&'a Value>,
    lookups: &'a dyn Lookups,
    node: &'a str,
}

impl Check<'_> {
    fn refuse(&self, why: impl std::fmt::Display) -> Answer<()> {
        Err(self.request.forbidden(self.object, why))
    }

    fn namespace(&self) -> &str {
        self.request.attributes.namespace()
    }

    fn stored(&self, resource: &str, name: &str) -> Option<Value> {
        self.lookups.get("", resource, self.namespace(), name)
    }

    fn pod(&self) -> Answer<()> {
        match self.request.operation {
            Operation::Create => self.mirror_pod(),
            Operation::Delete => {
                let name = self.request.attributes.name();
                let bound = self.request.old.cloned().or_else(|| self.stored("pods", name));
                match bound {
                    Some(pod) if pod["spec"]["nodeName"] == self.node => Ok(()),
                    // What is not there is not found, which the deletion itself says.
                    None => Ok(()),
                    Some(_) => self.refuse(format!("node {:?} can only delete pods with spec.nodeName set to itself", self.node)),
                }
            }
            operation => self.refuse(format!("unexpected operation {operation:?}, node {:?} can only create and delete mirror pods", self.node)),
        }
    }

    /// A node makes the API's copy of a pod that it runs from a file, and no other.
    fn mirror_pod(&self) -> Answer<()> {
        let Some(pod) = self.object else { return Ok(()) };
        if !is_mirror(pod) {
            return self
                .refuse(format!("pod does not have \"kubernetes.io/config.mirror\" annotation, node {:?} can only create mirror pods", self.node));
        }
        if pod["spec"]["nodeName"] != self.node {
            return self.refuse(format!("node {:?} can only create pods with spec.nodeName set to itself", self.node));
        }
        let owners = pod["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
        let [owner] = owners else {
            return self.refuse(format!("node {:?} can only create pods with a single owner reference set to itself", self.node));
        };
        let own = owner["apiVersion"] == "v1" && owner["kind"] == "Node" && owner["name"] == self.node;
        let uid = self.lookups.identity("", "nodes", "", self.node).map(|identity| identity.uid);
        if !own || uid.as_deref() != owner["uid"].as_str() {
            return self.refuse(format!("node {:?} can only create pods with an owner reference set to itself", self.node));
        }
        if owner["blockOwnerDeletion"] == true {
            return self.refuse(format!("node {:?} must not set blockOwnerDeletion on an owner reference", self.node));
        }
        if owner["controller"] != true {
            return self.refuse(format!("node {:?} must set controller on an owner reference to itself", self.node));
        }
        self.no_references(pod)
    }

    /// Or it could read any secret by making a pod that names it.
    fn no_references(&self, pod: &Value) -> Answer<()> {
        let spec = &pod["spec"];
        if !text(spec, "serviceAccountName").is_empty() {
            return self.refuse(format!("node {:?} can not create pods that reference a service account", self.node));
        }
        let mut found = None;
        crate::authorizer::node::each_reference(pod, &mut |kind, _| found = Some(kind));
        match found {
            Some(kind) => self.refuse(format!("node {:?} can not create pods that reference {kind}", self.node)),
            None => Ok(()),
        }
    }

    fn pod_status(&self) -> Answer<()> {
        let Some(old) = self.request.old else { return Ok(()) };
        if old["spec"]["nodeName"] != self.node {
            return self.refuse(format!("node {:?} can only update pod status for pods with spec.nodeName set to itself", self.node));
        }
        let labels = |pod: &Value| pod["metadata"]["labels"].clone();
        if self.object.is_some_and(|new| labels(new) != labels(old)) {
            return self.refuse(format!("node {:?} cannot update labels through pod status", self.node));
        }
        Ok(())
    }

    fn eviction(&self) -> Answer<()> {
        let name = self.request.attributes.name();
        let pod = self.stored("pods", name);
        match pod {
            Some(pod) if pod["spec"]["nodeName"] != self.node => {
                self.refuse(format!("node {:?} can only evict pods with spec.nodeName set to itself", self.node))
            }
            _ => Ok(()),
        }
    }

    fn node(&self) -> Answer<()> {
        let named = self.request.attributes.name();
        let named = if named.is_empty() { self.object.map(|object| text(&object["metadata"], "name")).unwrap_or_default() } else { named };
        if named != self.node {
            return self.refuse(format!("node {:?} is not allowed to modify node {named:?}", self.node));
        }
        let Some(new) = self.object else { return Ok(()) };
        if self.request.operation == Operation::Create {
            if new["spec"]["configSource"].is_object() {
                return self.refuse(format!("node {:?} is not allowed to create pods with a non-nil configSource", self.node));
            }
            return self.labels(new, &Value::Null);
        }
        let Some(old) = self.request.old else { return Ok(()) };
        let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        let (before, after) = (&old["spec"]["taints"], &new["spec"]["taints"]);
        if before != after && !(empty(before) && empty(after)) {
            return self.refuse(format!("node {:?} is not allowed to modify taints", self.node));
        }
        let owners = |node: &Value| node["metadata"]["ownerReferences"].clone();
        if owners(new) != owners(old) {
            return self.refuse(format!("node {:?} is not allowed to modify ownerReferences", self.node));
        }
        self.labels(new, old)
    }

    /// Labels that place workloads are others' to give: those under `node-restriction.kubernetes.io`, and Kubernetes' own but for a few.
    fn labels(&self, new: &Value, old: &Value) -> Answer<()> {
        let map = |node: &Value| node["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        let (before, after) = (map(old), map(new));
        let mut changed: Vec<&String> = after.iter().filter(|(key, value)| before.get(*key) != Some(*value)).map(|(key, _)| key).collect();
        changed.extend(before.keys().filter(|key| !after.contains_key(*key)));
        let mut forbidden: Vec<&str> = changed.into_iter().filter(|key| !is_own_label(key)).map(String::as_str).collect();
        if forbidden.is_empty() {
            return Ok(());
        }
        forbidden.sort_unstable();
        self.refuse(format!("is not allowed to modify labels: {}", forbidden.join(", ")))
    }

    fn token(&self) -> Answer<()> {
        let Some(token) = self.object else { return Ok(()) };
        let bound = &token["spec"]["boundObjectRef"];
        if !bound.is_object() {
            return self.refuse("node requested token not bound to a pod");
        }
        if bound["kind"] != "Pod" || !matches!(text(bound, "apiVersion"), "" | "v1") {
            return self.refuse("node requested token not bound to a pod");
        }
        let name = text(bound, "name");
        let Some(pod) = self.stored("pods", name) else { return self.refuse(format!("pods {name:?} not found")) };
        if text(bound, "uid").is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        if pod["metadata"]["uid"] != bound["uid"] {
            return self.refuse(format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
                text(bound, "uid")
            ));
        }
        if pod["spec"]["nodeName"] != self.node {
            return self.refuse("node requested token bound to a pod scheduled on a different node");
        }
        self.audience(token, &pod)
    }

    /// A node asks for the audiences that its pods ask for (`ServiceAccountNodeAudienceRestriction`).
    fn audience(&self, token: &Value, pod: &Value) -> Answer<()> {
        let asked: Vec<&str> =
            token["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).filter(|a| !a.is_empty()).collect();
        let [audience] = asked[..] else {
            return if asked.is_empty() { Ok(()) } else { self.refuse("node may only request 0 or 1 audiences") };
        };
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
        if sources.into_iter().any(|source| source["serviceAccountToken"]["audience"] == audience) {
            return Ok(());
        }
        self.refuse(format!(
            "audience {audience:?} not found in pod spec volume, service account {} not authorized to request this audience",
            self.request.attributes.name()
        ))
    }

    fn lease(&self) -> Answer<()> {
        if self.namespace() != LEASE_NAMESPACE {
            return self.refuse(format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace"));
        }
        self.own_name("lease")
    }

    fn csi_node(&self) -> Answer<()> {
        self.own_name("CSINode")
    }

    /// The name is in the path, or of a create in the object.
    fn own_name(&self, what: &str) -> Answer<()> {
        let named = self.request.attributes.name();
        let named = if named.is_empty() { self.object.map(|object| text(&object["metadata"], "name")).unwrap_or_default() } else { named };
        if named == self.node {
            return Ok(());
        }
        self.refuse(format!("can only access {}{what} with the same name as the requesting node", if what == "lease" { "node " } else { "" }))
    }
}

fn is_own_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    if !within("kubernetes.io") && !within("k8s.io") {
        return true;
    }
    OWN_LABELS.contains(&key) || OWN_PREFIXES.iter().any(|prefix| within(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{Attributes, Target};
    use crate::lookups::MemoryLookups;
    use crate::user::User;
    use serde_json::json;
    use wheelhouse_base::Timestamp;

    fn world() -> MemoryLookups {
        let pod = |name: &str, node: &str| {
            json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}")}, "spec": {"nodeName": node,
            "volumes": [{"projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}}]}})
        };
        MemoryLookups::default().with("", "pods", pod("mine", "n1")).with("", "pods", pod("other", "n2")).with(
            "",
            "nodes",
            json!({"metadata": {"name": "n1", "uid": "u-n1"}}),
        )
    }

    fn check(
        operation: Operation,
        (group, resource, subresource): (&str, &str, &str),
        (namespace, name): (&str, &str),
        old: Option<&Value>,
        object: Option<&Value>,
    ) -> Result<(), String> {
        let user = User { name: "system:node:n1".into(), groups: vec!["system:nodes".into()], ..User::default() };
        let attributes = Attributes::new(&user, "update", Target::Resource { group, version: "v1", resource, subresource, namespace, name });
        let request = Request { attributes: &attributes, operation, old, dry_run: false, now: Timestamp::from_secs(0), seed: 0 };
        validate(&request, object, &world()).map_err(|status| status.message)
    }

    #[test]
    fn a_node_keeps_to_its_own_node() {
        let nodes = ("", "nodes", "");
        let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}, "spec": {}});
        let create = |node: &Value| check(Operation::Create, nodes, ("", ""), None, Some(node));
        assert_eq!(create(&node("n1", json!({"kubernetes.io/hostname": "n1", "example.com/x": "y", "node.kubernetes.io/z": ""}))), Ok(()));
        assert_eq!(create(&node("n2", json!({}))).unwrap_err(), "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"");
        let refused = create(&node("n1", json!({"node-role.kubernetes.io/control-plane": "", "node-restriction.kubernetes.io/x": ""}))).unwrap_err();
        assert_eq!(
            refused,
            "nodes \"n1\" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/x, node-role.kubernetes.io/control-plane"
        );
        let (old, mut new) = (node("n1", json!({})), node("n1", json!({})));
        new["spec"]["taints"] = json!([{"key": "k"}]);
        assert!(check(Operation::Update, nodes, ("", "n1"), Some(&old), Some(&new)).unwrap_err().ends_with("is not allowed to modify taints"));
    }

    #[test]
    fn a_node_touches_its_own_pods_only() {
        let world = world();
        let pod = |name: &str| crate::lookups::Lookups::get(&world, "", "pods", "ns", name).unwrap();
        for (name, allowed) in [("mine", true), ("other", false)] {
            let old = pod(name);
            assert_eq!(check(Operation::Update, ("", "pods", "status"), ("ns", name), Some(&old), Some(&old)).is_ok(), allowed);
            assert_eq!(check(Operation::Delete, ("", "pods", ""), ("ns", name), Some(&old), None).is_ok(), allowed);
            assert_eq!(check(Operation::Create, ("", "pods", "eviction"), ("ns", name), None, None).is_ok(), allowed);
        }
        let mut relabelled = pod("mine");
        relabelled["metadata"]["labels"] = json!({"a": "b"});
        assert!(check(Operation::Update, ("", "pods", "status"), ("ns", "mine"), Some(&pod("mine")), Some(&relabelled)).is_err());
    }

    #[test]
    fn only_mirror_pods_without_references_are_made() {
        let create = |pod: &Value| check(Operation::Create, ("", "pods", ""), ("ns", ""), None, Some(pod));
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-n1", "controller": true}]);
        let mut pod = json!({"metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "h"}, "ownerReferences": owner}, "spec": {"nodeName": "n1"}});
        assert_eq!(create(&pod), Ok(()));
        pod["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": "x"}}]);
        assert!(create(&pod).unwrap_err().contains("can not create pods that reference"));
        pod["spec"] = json!({"nodeName": "n2"});
        assert!(create(&pod).is_err());
        assert!(create(&json!({"metadata": {"name": "m"}, "spec": {"nodeName": "n1"}})).unwrap_err().contains("can only create mirror pods"));
    }

    #[test]
    fn tokens_are_for_pods_of_the_node_and_their_audiences() {
        let ask = |bound: Value, audiences: Value| {
            let token = json!({"spec": {"boundObjectRef": bound, "audiences": audiences}});
            check(Operation::Create, ("", "serviceaccounts", "token"), ("ns", "default"), None, Some(&token)).is_ok()
        };
        let bound = |name: &str| json!({"kind": "Pod", "apiVersion": "v1", "name": name, "uid": format!("u-{name}")});
        assert!(ask(bound("mine"), json!([])) && ask(bound("mine"), json!(["vault"])));
        assert!(!ask(bound("mine"), json!(["sts"])) && !ask(bound("other"), json!([])) && !ask(Value::Null, json!([])));
        assert!(!ask(json!({"kind": "Pod", "name": "mine", "uid": "another"}), json!([])));
    }

    #[test]
    fn leases_are_the_nodes_own() {
        let lease = |namespace: &str, name: &str| {
            let object = json!({"metadata": {"name": name}});
            check(Operation::Create, ("coordination.k8s.io", "leases", ""), (namespace, ""), None, Some(&object)).is_ok()
        };
        assert!(lease("kube-node-lease", "n1") && !lease("kube-node-lease", "n2") && !lease("default", "n1"));
    }
}
