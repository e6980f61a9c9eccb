//! Controllers keyed by a node, and the eviction of its pods.

mod heartbeat;
mod node_departure_controller;
mod node_ipam_controller;
mod node_lifecycle_controller;
mod taint_eviction_controller;
pub(crate) mod taints;
mod ttl_controller;
mod zones;

pub use node_departure_controller::NodeDepartureController;
pub use node_ipam_controller::{NodeIpamController, PodRangeError};
pub use node_lifecycle_controller::NodeLifecycleController;
pub use taint_eviction_controller::TaintEvictionController;
pub use ttl_controller::TtlController;

use k8s_openapi::api::core::v1::{Node, NodeCondition};

use crate::plan::{EventNote, EventType};
use crate::view::{Key, ResourceName};

const NODES: ResourceName = ResourceName::new("", "nodes");
const PODS: ResourceName = ResourceName::new("", "pods");
/// All of these controllers act as upstream's one account.
const SERVICE_ACCOUNT: &str = "node-controller";

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// `True`, `False`, `Unknown`, or nothing.
fn status_of<'a>(node: &'a Node, kind: &str) -> Option<&'a str> {
    condition(node, kind).map(|condition| condition.status.as_str())
}

fn note(name: &str, uid: &str, reason: &str, message: String) -> EventNote {
    EventNote {
        api_version: "v1".into(),
        kind: "Node".into(),
        key: Key::cluster(name),
        uid: uid.into(),
        kind_of_event: EventType::Normal,
        reason: reason.into(),
        message,
    }
}
