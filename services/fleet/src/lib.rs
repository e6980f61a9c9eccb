//! The fleet: which replicas exist and where, decided where the system cluster is led.
//!
//! ```text
//! Tenant, Cluster, Host objects ─▶ reconcilers (pure) ─▶ plans ─▶ ControlPlaneReplicas, Secrets, status
//!                                        └─▶ effects: keys made, readiness proven
//! ```
//!
//! Everything here is an ordinary controller of the system's control plane. Hosts do the work: they watch the ControlPlaneReplicas that name them.
//! What a decision rests on is in objects, so that the next leader decides the same.

pub mod bootstrap;
pub mod cluster;
pub mod effects;
pub mod facts;
pub mod host;
pub mod key_pool;
pub mod names;
pub mod placement;
pub mod tenant;

use std::sync::Arc;

use wheelhouse_kinds::reconciler::AnyReconciler;

/// The fleet's controllers, to run beside Kubernetes' own at the system cluster's leader.
pub fn reconcilers(settings: cluster::Settings) -> Vec<Arc<dyn AnyReconciler>> {
    let patience = settings.patience;
    vec![Arc::new(cluster::ClusterReconciler { settings }), Arc::new(host::HostReconciler { patience }), Arc::new(tenant::TenantReconciler)]
}
