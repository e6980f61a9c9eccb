//! Which nodes a pod may be on: `nodeSelector` and node affinity, parsed once.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodSpec};
use wheelhouse_meta::selector::{Operator, Requirement};

/// A term of a node selector. One that is empty or malformed matches nothing.
#[derive(Clone, Debug)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    names: Vec<(Operator, String)>,
    valid: bool,
}

impl NodeTerm {
    pub fn parse(term: &NodeSelectorTerm) -> Self {
        let mut parsed = Self { labels: Vec::new(), names: Vec::new(), valid: true };
        for expression in term.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                "Gt" => Operator::GreaterThan,
                "Lt" => Operator::LessThan,
                _ => return Self { valid: false, ..parsed },
            };
            match Requirement::new(&expression.key, operator, expression.values.clone().unwrap_or_default()) {
                Ok(requirement) => parsed.labels.push(requirement),
                Err(_) => parsed.valid = false,
            }
        }
        for field in term.match_fields.iter().flatten() {
            let values = field.values.as_deref().unwrap_or_default();
            match (field.key.as_str(), field.operator.as_str(), values) {
                ("metadata.name", "In", [name]) => parsed.names.push((Operator::In, name.clone())),
                ("metadata.name", "NotIn", [name]) => parsed.names.push((Operator::NotIn, name.clone())),
                _ => parsed.valid = false,
            }
        }
        parsed.valid &= !(parsed.labels.is_empty() && parsed.names.is_empty());
        parsed
    }

    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.valid
            && self.names.iter().all(|(operator, wanted)| (*operator == Operator::In) == (wanted == name))
            && self.labels.iter().all(|requirement| requirement.matches(labels.get(requirement.key()).map(String::as_str)))
    }
}

/// `nodeSelector` and the required node affinity: both must hold, of the terms one.
#[derive(Clone, Debug, Default)]
pub struct RequiredNodes {
    selector: Vec<(String, String)>,
    terms: Option<Vec<NodeTerm>>,
}

impl RequiredNodes {
    pub fn parse(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            selector: spec.node_selector.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect(),
            terms: required.map(|required| required.node_selector_terms.iter().map(NodeTerm::parse).collect()),
        }
    }

    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(name, labels)))
    }

    /// The only nodes that can match because every term names its node, as those of a DaemonSet's pods do.
    pub fn only_names(&self) -> Option<BTreeSet<&str>> {
        let mut all = BTreeSet::new();
        for term in self.terms.as_ref().filter(|terms| !terms.is_empty())? {
            let mut names = term.names.iter().filter(|(operator, _)| *operator == Operator::In).map(|(_, name)| name.as_str());
            let first = names.next()?;
            if names.all(|name| name == first) {
                all.insert(first);
            }
        }
        Some(all)
    }
}
