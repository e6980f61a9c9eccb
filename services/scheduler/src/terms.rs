//! Selectors of nodes and of pods, parsed once when their pod arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodAffinityTerm;
pub use wheelhouse_kinds::core::node::affinity::{NodeTerm, RequiredNodes};
use wheelhouse_kinds::owned;
use wheelhouse_meta::selector::LabelSelector;

use crate::pod::PodInfo;

/// Which pods a pod wants near or far, and how near: one term of inter-pod affinity, or the selector of a spread constraint.
#[derive(Debug, PartialEq, Eq)]
pub struct PodTerm {
    pub namespaces: BTreeSet<String>,
    pub namespace_selector: LabelSelector,
    pub selector: LabelSelector,
    pub topology_key: String,
    /// Everything above as text; equal terms of many pods are counted together under it.
    pub key: Arc<str>,
}

impl PodTerm {
    pub fn parse(term: &PodAffinityTerm, own_namespace: &str) -> Arc<Self> {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(own_namespace.to_owned());
        }
        let namespace_selector = owned::selector(term.namespace_selector.as_ref());
        Self::new(namespaces, namespace_selector, owned::selector(term.label_selector.as_ref()), &term.topology_key)
    }

    pub fn new(namespaces: BTreeSet<String>, namespace_selector: LabelSelector, selector: LabelSelector, topology_key: &str) -> Arc<Self> {
        let text = |selector: &LabelSelector| if selector.is_nothing() { "-".to_owned() } else { selector.to_string() };
        let names: Vec<&str> = namespaces.iter().map(String::as_str).collect();
        let key = format!("{topology_key}|{}|{}|{}", names.join(","), text(&namespace_selector), text(&selector));
        Arc::new(Self { namespaces, namespace_selector, selector, topology_key: topology_key.to_owned(), key: Arc::from(key) })
    }

    pub fn matches(&self, pod: &PodInfo, namespaces: &Namespaces) -> bool {
        let near = self.namespaces.contains(pod.namespace())
            || (!self.namespace_selector.is_nothing() && owned::matches(&self.namespace_selector, namespaces.get(pod.namespace())));
        near && owned::matches(&self.selector, pod.labels())
    }
}

/// Labels of namespaces, by name.
pub type Namespaces = std::collections::HashMap<String, BTreeMap<String, String>>;

/// Pods that match all of the terms.
#[derive(Debug)]
pub struct PodMatcher {
    pub key: Arc<str>,
    terms: Vec<Arc<PodTerm>>,
    /// Whether pods that are being deleted count: for affinity they do, for spreading they do not.
    terminating: bool,
}

impl PodMatcher {
    pub fn new(terms: &[Arc<PodTerm>], terminating: bool) -> Self {
        let keys: Vec<&str> = terms.iter().map(|term| &*term.key).collect();
        Self { key: Arc::from(format!("{terminating};{}", keys.join(";"))), terms: terms.to_vec(), terminating }
    }

    pub fn matches(&self, pod: &PodInfo, namespaces: &Namespaces) -> bool {
        (self.terminating || !pod.deleting()) && self.terms.iter().all(|term| term.matches(pod, namespaces))
    }

    pub fn reads_namespace_labels(&self) -> bool {
        self.terms.iter().any(|term| !term.namespace_selector.is_nothing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn required(affinity: serde_json::Value) -> RequiredNodes {
        let spec = json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": affinity}}}});
        RequiredNodes::parse(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn one_term_must_match_and_an_empty_one_never_does() {
        let labels = BTreeMap::from([("cores".to_owned(), "8".to_owned())]);
        let more = |n: &str| json!({"matchExpressions": [{"key": "cores", "operator": "Gt", "values": [n]}]});
        assert!(required(json!([more("16"), more("4")])).matches("n", &labels));
        assert!(!required(json!([more("16")])).matches("n", &labels));
        assert!(!required(json!([{}])).matches("n", &labels));
    }

    #[test]
    fn terms_that_name_their_nodes_confine_the_search() {
        let named = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert_eq!(required(json!([named("a"), named("b")])).only_names(), Some(BTreeSet::from(["a", "b"])));
        let labelled = json!({"matchExpressions": [{"key": "x", "operator": "Exists"}]});
        assert_eq!(required(json!([named("a"), labelled])).only_names(), None);
        assert!(required(json!([named("a")])).matches("a", &BTreeMap::new()));
        assert!(!required(json!([named("a")])).matches("b", &BTreeMap::new()));
    }
}
