//! `fleet.wheelhouse.dev/v1`: the service's own kinds, served by the system control plane and never visible to tenants.
//!
//! ```text
//! Tenant ──owns──▶ namespace tenant-<id> ──holds──▶ Cluster, ApiKey
//!                                                     │ placement (spec.members)
//!                                                     ▼
//! Host ◀──watches what is assigned to it──── ControlPlaneReplica   (namespace wheelhouse-system)
//! ```
//!
//! A `Cluster` says what is wanted; the fleet controller chooses its members and writes one `ControlPlaneReplica` for each; a host runs the
//! replicas that name it, as a kubelet runs Pods. There are no phases: what is true is said by conditions with reasons.
//!
//! The kinds have no protobuf form, like custom resources, and their schemas are built here in Rust.

pub mod api_key;
pub mod cluster;
pub mod conditions;
pub mod control_plane_replica;
pub mod host;
mod object;
pub(crate) mod schema;
pub mod tenant;

pub use api_key::ApiKey;
pub use cluster::Cluster;
pub use control_plane_replica::ControlPlaneReplica;
pub use host::Host;
pub use object::Object;
pub use tenant::Tenant;

use std::sync::Arc;

use crate::kind::{Kind, Typed};
use crate::registry::{Profile, Registry};

pub const GROUP: &str = "fleet.wheelhouse.dev";
pub const VERSION: &str = "v1";
pub const API_VERSION: &str = "fleet.wheelhouse.dev/v1";

/// Where the service's own objects live: replicas, wrapped bundles, the system cluster's Cluster.
pub const SYSTEM_NAMESPACE: &str = "wheelhouse-system";

/// The namespace of a tenant's objects.
pub fn tenant_namespace(tenant: &str) -> String {
    format!("tenant-{tenant}")
}

/// The tenant that a namespace belongs to; `None` for any other namespace.
pub fn tenant_of_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix("tenant-").filter(|id| !id.is_empty())
}

/// Every fleet kind, for the registry of the system's control plane.
pub fn kinds() -> Vec<Arc<dyn Kind>> {
    vec![
        Arc::new(Typed::<api_key::ApiKeyKind>::new()),
        Arc::new(Typed::<cluster::ClusterKind>::new()),
        Arc::new(Typed::<control_plane_replica::ControlPlaneReplicaKind>::new()),
        Arc::new(Typed::<host::HostKind>::new()),
        Arc::new(Typed::<tenant::TenantKind>::new()),
    ]
}

/// What the system's control plane serves: Kubernetes and the fleet.
pub fn system_registry() -> Registry {
    kinds().into_iter().fold(Registry::new(Profile::System), Registry::with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_brings_its_schema_and_only_the_system_serves_it() {
        let (system, tenant) = (system_registry(), Registry::new(Profile::Tenant));
        for kind in kinds() {
            let info = kind.info();
            let schema = kind.schema().expect("a fleet kind has a schema");
            assert!(schema.field("spec").is_some() && schema.field("metadata").is_some(), "{}", info.kind);
            assert_eq!(schema.field("status").is_some(), !info.subresources.is_empty(), "{}", info.kind);
            assert!(system.resource(GROUP, VERSION, info.plural).is_some());
            assert!(tenant.resource(GROUP, VERSION, info.plural).is_none());
            assert_eq!(kind.columns().len(), kind.row(&serde_json::json!({"metadata": {"name": "x"}}), Default::default()).len(), "{}", info.kind);
        }
    }
}
