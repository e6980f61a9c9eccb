//! `node-ipam-controller`: gives each node a part of the cluster's pod range.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::{NODES, SERVICE_ACCOUNT, note};
use crate::fleet::cluster::DEFAULT_POD_CIDR;
use crate::plan::{Operation, PatchStrategy, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::{items, text};
use crate::view::{Key, View};

/// `--node-cidr-mask-size`: 254 pods a node, more than a kubelet's usual 110.
const NODE_PREFIX: u8 = 24;
/// When to look again for a node that got nothing: ranges come free when nodes go.
const RETRY: Duration = Duration::from_secs(30);

pub struct NodeIpamController {
    base: u32,
    /// How many nodes fit.
    count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no IPv4 range that a /24 fits into")]
pub struct PodRangeError(String);

impl Default for NodeIpamController {
    /// Allocates from the pod range that clusters have unless they ask for another.
    fn default() -> Self {
        Self::new(DEFAULT_POD_CIDR).expect("the default range is valid")
    }
}

impl NodeIpamController {
    /// `range` is the cluster's pod range in CIDR notation, e.g. `10.244.0.0/16`.
    pub fn new(range: &str) -> Result<Self, PodRangeError> {
        let (ip, prefix) = parse(range).filter(|(_, prefix)| *prefix <= NODE_PREFIX).ok_or_else(|| PodRangeError(range.to_owned()))?;
        let count = 1u32 << (NODE_PREFIX - prefix);
        Ok(Self { base: ip & !(count * (1 << (32 - NODE_PREFIX)) - 1), count })
    }

    fn range(&self, index: u32) -> String {
        format!("{}/{NODE_PREFIX}", Ipv4Addr::from(self.base + (index << (32 - NODE_PREFIX))))
    }

    /// The parts that a range touches; it need not be one of ours, since users may set it.
    fn touched(&self, range: &str) -> std::ops::Range<u32> {
        let Some((ip, prefix)) = parse(range) else { return 0..0 };
        let (start, size) = (u64::from(ip), 1u64 << (32 - u32::from(prefix)));
        let (base, part) = (u64::from(self.base), 1u64 << (32 - NODE_PREFIX));
        let index = |address: u64| u32::try_from(address.saturating_sub(base) / part).unwrap_or(u32::MAX).min(self.count);
        index(start)..index((start + size).max(base) + part - 1)
    }
}

fn parse(range: &str) -> Option<(u32, u8)> {
    let (ip, prefix) = range.split_once('/')?;
    let (ip, prefix) = (ip.parse::<Ipv4Addr>().ok()?, prefix.parse::<u8>().ok()?);
    (1..=32).contains(&prefix).then_some((ip.into(), prefix))
}

impl Reconciler for NodeIpamController {
    /// Parts given to nodes that do not show them yet. A former leader's pending writes are fenced off, so nothing is lost with it.
    type Memory = BTreeMap<String, u32>;

    fn name(&self) -> &'static str {
        "node-ipam-controller"
    }

    fn service_account(&self) -> &'static str {
        SERVICE_ACCOUNT
    }

    fn triggers(&self) -> Vec<Trigger> {
        vec![Trigger::itself(NODES)]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut Self::Memory) -> Plan {
        let mut plan = Plan::default();
        let node = view.get::<Node>("", &key.name).filter(|node| ranges(node).is_empty());
        let Some(node) = node else {
            memory.remove(&*key.name);
            return plan;
        };
        let mut taken: BTreeSet<u32> = view.list::<Node>(None).flat_map(|other| ranges(&other)).flat_map(|range| self.touched(&range)).collect();
        taken.extend(memory.iter().filter(|(name, _)| ***name != *key.name).map(|(_, index)| *index));
        let kept = memory.get(&*key.name).copied().filter(|index| !taken.contains(index));
        let Some(index) = kept.or_else(|| (0..self.count).find(|index| !taken.contains(index))) else {
            let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
            plan.events.push(note(&key.name, text(&node.metadata.uid), "CIDRNotAvailable", message));
            plan.requeue_no_later_than(cx.now.plus(RETRY));
            return plan;
        };
        memory.insert(key.name.to_string(), index);
        let range = self.range(index);
        let patch = json!({"metadata": {"uid": node.metadata.uid}, "spec": {"podCIDR": range, "podCIDRs": [range]}});
        plan.operations.push(Operation::Patch { resource: NODES, key: key.clone(), subresource: "", strategy: PatchStrategy::Merge, patch });
        plan
    }
}

fn ranges(node: &Node) -> Vec<String> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let single = spec.pod_cidr.iter().filter(|range| !range.is_empty());
    single.chain(items(&spec.pod_cidrs)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    fn node(name: &str, range: &str) -> String {
        format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}","uid":"u-{name}"}},"spec":{{"podCIDR":"{range}"}}}}"#)
    }

    fn given(plan: &Plan) -> Option<String> {
        plan.operations.iter().find_map(|operation| match operation {
            Operation::Patch { patch, .. } => patch["spec"]["podCIDR"].as_str().map(str::to_owned),
            _ => None,
        })
    }

    #[test]
    fn each_node_gets_a_part_that_nobody_has() {
        let ipam = NodeIpamController::new("10.244.0.0/22").unwrap();
        let mut memory = BTreeMap::new();
        let mut world = World::new().with(&node("a", "10.244.0.0/24")).with(&node("b", "")).with(&node("c", "")).with(&node("d", "10.244.3.0/25"));
        let mut ask = |world: &World, name: &str| ipam.reconcile(&Key::cluster(name), world.view(), &context(), &mut memory);
        assert!(ask(&world, "a").is_empty());
        assert_eq!(given(&ask(&world, "b")).as_deref(), Some("10.244.1.0/24"));
        assert_eq!(given(&ask(&world, "c")).as_deref(), Some("10.244.2.0/24"), "what is on its way to b is b's");
        assert_eq!(given(&ask(&world, "b")).as_deref(), Some("10.244.1.0/24"), "a second try gets the same");
        world = world.with(&node("b", "10.244.1.0/24")).with(&node("c", "10.244.2.0/24")).with(&node("e", ""));
        assert!(ask(&world, "b").is_empty());
        let full = ask(&world, "e");
        assert_eq!((given(&full), full.events[0].reason.as_str(), full.requeue_at.is_some()), (None, "CIDRNotAvailable", true));
    }

    #[test]
    fn ranges_that_hold_no_node_are_refused() {
        for range in ["10.244.0.0/25", "10.244.0.0", "fd00::/48", "10.244.0.0/33"] {
            assert!(NodeIpamController::new(range).is_err(), "{range}");
        }
        assert_eq!(NodeIpamController::new("10.244.0.0/24").unwrap().count, 1);
    }
}
