//! Changes of the cluster that may let a waiting pod be scheduled.

use std::sync::Arc;

use crate::node::NodeFacts;
use crate::plugins::{Plugin, PluginSet};
use crate::pod::PodInfo;

#[derive(Clone, Debug)]
pub enum Change {
    Node {
        old: Option<Arc<NodeFacts>>,
        new: Option<Arc<NodeFacts>>,
    },
    /// A pod that has a node, or had one.
    Pod {
        old: Option<Arc<PodInfo>>,
        new: Option<Arc<PodInfo>>,
    },
    NamespaceLabels,
}

impl Change {
    /// The plugins that may care, without looking at any pod.
    pub fn concerns(&self) -> PluginSet {
        use Plugin::{InterPodAffinity, NodePorts, NodeResourcesFit, PodTopologySpread};
        match self {
            Change::Node { new: Some(_), .. } => Plugin::ALL.into_iter().collect(),
            Change::Node { new: None, .. } => [PodTopologySpread].into_iter().collect(),
            Change::Pod { new: Some(_), old: None } => [PodTopologySpread, InterPodAffinity].into_iter().collect(),
            Change::Pod { .. } => [NodePorts, NodeResourcesFit, PodTopologySpread, InterPodAffinity].into_iter().collect(),
            Change::NamespaceLabels => [InterPodAffinity].into_iter().collect(),
        }
    }

    /// A node that came, or that changed so that `holds` is true of it now and was not before.
    pub fn node_becomes(&self, holds: impl Fn(&NodeFacts) -> bool) -> bool {
        match self {
            Change::Node { old, new: Some(new) } => holds(new) && !old.as_ref().is_some_and(|old| holds(old)),
            _ => false,
        }
    }
}
