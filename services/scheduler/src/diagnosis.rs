//! Why a pod could not be scheduled, in upstream's words.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::plugins::{PluginSet, Rejection};
use crate::snapshot::NodeId;

/// Upstream's message when there is not a single node.
pub const NO_NODES: &str = "no nodes available to schedule pods";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// How many nodes there are.
    pub nodes: usize,
    /// Why no node was even looked at.
    pub prefilter: Option<&'static str>,
    /// How many nodes gave each reason.
    pub reasons: BTreeMap<Cow<'static, str>, usize>,
    pub rejected_by: PluginSet,
    /// Nodes where removing pods might help.
    pub candidates: Vec<NodeId>,
    /// What came of trying to preempt, with its full stop.
    pub preemption: Option<String>,
}

impl Diagnosis {
    pub fn add(&mut self, node: NodeId, rejection: Rejection) {
        self.rejected_by.insert(rejection.plugin);
        if rejection.resolvable {
            self.candidates.push(node);
        }
        self.count(rejection.reasons);
    }

    pub fn count(&mut self, reasons: Vec<Cow<'static, str>>) {
        for reason in reasons {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return f.write_str(NO_NODES);
        }
        write!(f, "0/{} nodes are available:", self.nodes)?;
        match self.prefilter {
            Some(message) => write!(f, " {message}.")?,
            None => {
                let mut parts: Vec<String> = self.reasons.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
                parts.sort_unstable();
                if !parts.is_empty() {
                    write!(f, " {}.", parts.join(", "))?;
                }
            }
        }
        match &self.preemption {
            Some(message) => write!(f, " preemption: {message}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_upstreams() {
        let reasons = |list: &[(&'static str, usize)]| list.iter().map(|(reason, nodes)| (Cow::Borrowed(*reason), *nodes)).collect();
        let inner = Diagnosis {
            nodes: 12,
            reasons: reasons(&[("No preemption victims found for incoming pod", 2), ("Preemption is not helpful for scheduling", 10)]),
            ..Diagnosis::default()
        };
        let outer = Diagnosis {
            nodes: 12,
            reasons: reasons(&[("Insufficient cpu", 2), ("node(s) had untolerated taint(s)", 10)]),
            preemption: Some(inner.to_string()),
            ..Diagnosis::default()
        };
        assert_eq!(
            outer.to_string(),
            "0/12 nodes are available: 10 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: 0/12 nodes are available: \
             10 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
        );
        assert_eq!(Diagnosis::default().to_string(), "no nodes available to schedule pods");
        let conflict = Diagnosis { nodes: 3, prefilter: Some("pod affinity terms conflict"), ..Diagnosis::default() };
        assert_eq!(conflict.to_string(), "0/3 nodes are available: pod affinity terms conflict.");
    }
}
