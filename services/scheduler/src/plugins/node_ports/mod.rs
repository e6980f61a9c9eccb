//! Two pods of a node cannot have the same port of it.

use crate::change::Change;
use crate::node::NodeInfo;
use crate::plugins::{Plugin, Rejection};
use crate::pod::{HostPort, PodInfo};

pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if !overlap(&pod.host_ports, &node.host_ports) {
        return Ok(());
    }
    Err(Rejection::resolvable(Plugin::NodePorts, "node(s) didn't have free ports for the requested pod ports"))
}

fn overlap(wanted: &[HostPort], used: &[HostPort]) -> bool {
    wanted.iter().any(|port| used.iter().any(|other| port.conflicts(other)))
}

pub fn helps(pod: &PodInfo, change: &Change) -> bool {
    match change {
        Change::Node { old, new } => old.is_none() && new.is_some(),
        Change::Pod { old: Some(old), new: None } => overlap(&pod.host_ports, &old.host_ports),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod};
    use serde_json::json;

    #[test]
    fn a_used_port_rejects_until_its_pod_goes() {
        let with_port = |name: &str, port: i32| {
            pod(name, json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": port, "protocol": "TCP"}]}]}}))
        };
        let mut world = World::default();
        world.node("n", json!({}));
        world.snapshot.place(with_port("old", 80), "n");
        let id = world.snapshot.id("n").unwrap();
        let wanted = with_port("new", 80);
        assert!(filter(&wanted, world.snapshot.node(id)).unwrap_err().resolvable);
        assert!(filter(&with_port("other", 81), world.snapshot.node(id)).is_ok());
        let (old, _) = world.snapshot.remove(&with_port("old", 80).key).unwrap();
        assert!(filter(&wanted, world.snapshot.node(id)).is_ok());
        assert!(helps(&wanted, &Change::Pod { old: Some(old), new: None }));
        assert!(!helps(&wanted, &Change::Pod { old: Some(with_port("x", 81)), new: None }));
    }
}
