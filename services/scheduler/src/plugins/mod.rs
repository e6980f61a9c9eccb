//! One folder per plugin of upstream's default profile, under its name.
//!
//! A filter says whether a pod can run on a node, and if not, whether removing pods could change that. A score ranks the nodes that can run it, normalised
//! to 0..=100 over those nodes; `None` when it has no opinion. A hint says whether a change of the cluster may help a pod that the plugin rejected.

pub mod default_preemption;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod pod_topology_spread;
pub mod taint_toleration;

use std::borrow::Cow;

use crate::change::Change;
use crate::pod::PodInfo;

/// The best score that a plugin gives.
pub const MAX_SCORE: i64 = 100;

/// The plugins that filter, in the order in which they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    PodTopologySpread,
    InterPodAffinity,
}

impl Plugin {
    pub const ALL: [Self; 8] = [
        Self::NodeUnschedulable,
        Self::NodeName,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
    ];

    /// Whether the change may let a node pass that this plugin rejected for the pod.
    pub fn helps(self, pod: &PodInfo, change: &Change) -> bool {
        match self {
            Self::NodeUnschedulable => node_unschedulable::helps(pod, change),
            Self::NodeName => node_name::helps(pod, change),
            Self::TaintToleration => taint_toleration::helps(pod, change),
            Self::NodeAffinity => node_affinity::helps(pod, change),
            Self::NodePorts => node_ports::helps(pod, change),
            Self::NodeResourcesFit => node_resources_fit::helps(pod, change),
            Self::PodTopologySpread => pod_topology_spread::helps(pod, change),
            Self::InterPodAffinity => inter_pod_affinity::helps(pod, change),
        }
    }
}

/// Some of the plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginSet(u16);

impl PluginSet {
    pub fn insert(&mut self, plugin: Plugin) {
        self.0 |= 1 << plugin as u16;
    }

    pub fn contains(self, plugin: Plugin) -> bool {
        self.0 & (1 << plugin as u16) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Plugin> {
        Plugin::ALL.into_iter().filter(move |plugin| self.contains(*plugin))
    }
}

impl FromIterator<Plugin> for PluginSet {
    fn from_iter<I: IntoIterator<Item = Plugin>>(plugins: I) -> Self {
        let mut set = Self::default();
        plugins.into_iter().for_each(|plugin| set.insert(plugin));
        set
    }
}

/// Why a node cannot run a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub plugin: Plugin,
    /// As they appear in the pod's condition; usually one.
    pub reasons: Vec<Cow<'static, str>>,
    /// Whether removing pods from the node might help.
    pub resolvable: bool,
}

impl Rejection {
    fn resolvable(plugin: Plugin, reason: &'static str) -> Self {
        Self { plugin, reasons: vec![Cow::Borrowed(reason)], resolvable: true }
    }

    fn unresolvable(plugin: Plugin, reason: &'static str) -> Self {
        Self { plugin, reasons: vec![Cow::Borrowed(reason)], resolvable: false }
    }
}

/// Scales scores so that the largest becomes [`MAX_SCORE`]; reversed, so that the smallest does.
pub fn normalise(scores: &mut [i64], reverse: bool) {
    let largest = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let scaled = if largest == 0 { 0 } else { MAX_SCORE * *score / largest };
        *score = if reverse { MAX_SCORE - scaled } else { scaled };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_scaled_to_the_largest() {
        let scaled = |mut scores: Vec<i64>, reverse| {
            normalise(&mut scores, reverse);
            scores
        };
        assert_eq!(scaled(vec![1, 2, 3], false), [33, 66, 100]);
        assert_eq!(scaled(vec![1, 2, 3], true), [67, 34, 0]);
        assert_eq!(scaled(vec![0, 0], true), [100, 100]);
    }
}
