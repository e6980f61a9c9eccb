//! Objects that a control plane has from its first leader on: namespaces and roles of the fleet in the system's, the tenants' admin binding in
//! every hosted one, and the system cluster's own Cluster object.

use serde_json::{Value, json};
use wheelhouse_base::ClusterId;
use wheelhouse_kinds::fleet::cluster::{ClusterSpec, DEFAULT_REPLICAS, FINALIZER, Member};
use wheelhouse_kinds::fleet::{Cluster, GROUP, Object, SYSTEM_NAMESPACE};

use crate::names::{CLUSTER_ADMINS_GROUP, HOSTS_GROUP, NODE_BOOTSTRAPPERS_GROUP, OPERATORS_GROUP};

/// What a tenant may do in its namespace, through the tenant API.
pub const TENANT_ROLE: &str = "wheelhouse:tenant";

const HOST_ROLE: &str = "wheelhouse:host";
const FLEET_ROLE: &str = "wheelhouse:fleet-controllers";
const API_ROLE: &str = "wheelhouse:tenant-api";

/// The user of the tenant API's own certificate.
pub const TENANT_API_USER: &str = "wheelhouse:tenant-api";

/// An object to create if it is missing: where, and what.
pub struct Wanted {
    /// Group, version, plural.
    pub resource: (&'static str, &'static str, &'static str),
    /// Empty for cluster-scoped objects.
    pub namespace: &'static str,
    pub object: Value,
}

const CLUSTER_ROLES: (&str, &str, &str) = ("rbac.authorization.k8s.io", "v1", "clusterroles");
const CLUSTER_ROLE_BINDINGS: (&str, &str, &str) = ("rbac.authorization.k8s.io", "v1", "clusterrolebindings");

fn role(name: &str, rules: Value) -> Wanted {
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    Wanted { resource: CLUSTER_ROLES, namespace: "", object }
}

fn binding(name: &str, role: &str, subjects: Value) -> Wanted {
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}, "subjects": subjects, "roleRef": role_ref});
    Wanted { resource: CLUSTER_ROLE_BINDINGS, namespace: "", object }
}

fn group(name: &str) -> Value {
    json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}])
}

/// In every hosted cluster: who carries a tenant's credential administers it, by a binding that the tenant can see; and what lets machines join, as
/// kubeadm grants it: a node token may ask for a node's certificate and gets it, a node may renew its own, and serving certificates are approved for a
/// node's own addresses.
pub fn hosted_cluster() -> Vec<Wanted> {
    const CSRS: &str = "system:certificates.k8s.io:certificatesigningrequests";
    let approver = json!([{"kind": "ServiceAccount", "name": "certificate-controller", "namespace": "kube-system"}]);
    vec![
        binding("wheelhouse:node-bootstrapper", "system:node-bootstrapper", group(NODE_BOOTSTRAPPERS_GROUP)),
        binding("wheelhouse:node-autoapprove-bootstrap", &format!("{CSRS}:nodeclient"), group(NODE_BOOTSTRAPPERS_GROUP)),
        binding("wheelhouse:node-autoapprove-rotation", &format!("{CSRS}:selfnodeclient"), group("system:nodes")),
        binding("wheelhouse:kubelet-serving-approver", "system:certificates.k8s.io:kubelet-serving-approver", approver),
        // The last one: where it is, all are.
        binding(CLUSTER_ADMINS_GROUP, "cluster-admin", group(CLUSTER_ADMINS_GROUP)),
    ]
}

/// In the system cluster.
pub fn system_cluster() -> Vec<Wanted> {
    let service_account = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"});
    let controllers =
        json!([service_account("fleet-cluster-controller"), service_account("fleet-host-controller"), service_account("fleet-tenant-controller")]);
    let all = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}});
    vec![
        Wanted { resource: ("", "v1", "namespaces"), namespace: "", object: namespace },
        binding(OPERATORS_GROUP, "cluster-admin", group(OPERATORS_GROUP)),
        role(
            HOST_ROLE,
            json!([
                {"apiGroups": [GROUP], "resources": ["controlplanereplicas"], "verbs": ["get", "list", "watch", "patch", "update"]},
                {"apiGroups": [GROUP], "resources": ["controlplanereplicas/status"], "verbs": ["get", "patch", "update"]},
                {"apiGroups": [GROUP], "resources": ["hosts"], "verbs": ["get", "list", "watch", "create", "patch", "update"]},
                {"apiGroups": [GROUP], "resources": ["hosts/status"], "verbs": ["get", "patch", "update"]},
            ]),
        ),
        binding(HOST_ROLE, HOST_ROLE, group(HOSTS_GROUP)),
        role(
            FLEET_ROLE,
            json!([
                {"apiGroups": [GROUP], "resources": ["*"], "verbs": all},
                {"apiGroups": [""], "resources": ["namespaces", "secrets", "events"], "verbs": all},
                {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": all},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": all},
                // They hand out access to bundles and to tenants' namespaces, which they do not have themselves.
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "clusterroles"], "verbs": ["escalate", "bind"]},
            ]),
        ),
        binding(FLEET_ROLE, FLEET_ROLE, controllers),
        role(
            TENANT_ROLE,
            json!([
                {"apiGroups": [GROUP], "resources": ["clusters", "apikeys"], "verbs": ["get", "list", "watch", "create", "patch", "update", "delete"]},
                {"apiGroups": [GROUP], "resources": ["clusters/status"], "verbs": ["get"]},
            ]),
        ),
        role(
            API_ROLE,
            json!([
                {"apiGroups": [GROUP], "resources": ["tenants", "apikeys"], "verbs": all},
                {"apiGroups": [GROUP], "resources": ["clusters"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch", "create"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": ["get", "create"]},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": [TENANT_ROLE], "verbs": ["bind"]},
            ]),
        ),
        binding(API_ROLE, API_ROLE, json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": TENANT_API_USER}])),
    ]
}

/// The system cluster as an object of itself, with its founder as the only member so far.
pub fn system_cluster_object(founder: Member) -> Cluster {
    let spec = ClusterSpec { replicas: DEFAULT_REPLICAS, last_replica_id: founder.replica_id.0, members: vec![founder], ..ClusterSpec::default() };
    let mut cluster: Cluster = Object::new("Cluster", SYSTEM_NAMESPACE, ClusterId::SYSTEM, spec);
    cluster.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    cluster
}
