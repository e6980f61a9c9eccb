//! Names and labels of what the fleet writes.

use wheelhouse_base::{ClusterId, HostName};
use wheelhouse_kinds::view::ResourceName;

pub const CLUSTERS: ResourceName = ResourceName::new("fleet.wheelhouse.dev", "clusters");
pub const REPLICAS: ResourceName = ResourceName::new("fleet.wheelhouse.dev", "controlplanereplicas");
pub const HOSTS: ResourceName = ResourceName::new("fleet.wheelhouse.dev", "hosts");
pub const TENANTS: ResourceName = ResourceName::new("fleet.wheelhouse.dev", "tenants");
pub const SECRETS: ResourceName = ResourceName::new("", "secrets");
pub const NAMESPACES: ResourceName = ResourceName::new("", "namespaces");
pub const ROLES: ResourceName = ResourceName::new("rbac.authorization.k8s.io", "roles");
pub const ROLE_BINDINGS: ResourceName = ResourceName::new("rbac.authorization.k8s.io", "rolebindings");

/// On everything that belongs to one hosted cluster.
pub const CLUSTER_LABEL: &str = "fleet.wheelhouse.dev/cluster-id";

/// The group of all hosts, an organisation in their certificates.
pub const HOSTS_GROUP: &str = "wheelhouse:hosts";

/// The group that tenants' credentials carry; bound to cluster-admin in every hosted cluster.
pub const CLUSTER_ADMINS_GROUP: &str = "wheelhouse:cluster-admins";

/// The group of node tokens: who may ask for a node's client certificate.
pub const NODE_BOOTSTRAPPERS_GROUP: &str = "system:bootstrappers:wheelhouse:nodes";

/// Operators' group in the system cluster, bound to cluster-admin there.
pub const OPERATORS_GROUP: &str = "wheelhouse:operators";

/// The Secret, Role and RoleBinding of a cluster's keys, in `wheelhouse-system`.
pub fn bundle_name(cluster: &ClusterId) -> String {
    format!("bundle-{cluster}")
}

/// The key of the bundle Secret's data that holds the wrapped bundle.
pub const BUNDLE_KEY: &str = "bundle";

/// A host's user name, the common name in its certificate.
pub fn host_user(host: &HostName) -> String {
    format!("wheelhouse:host:{host}")
}

/// The host that a user name names.
pub fn host_of_user(user: &str) -> Option<HostName> {
    user.strip_prefix("wheelhouse:host:")?.parse().ok()
}
