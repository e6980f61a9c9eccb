//! Spreads the wanted endpoints over slices with as few changed slices as possible, in upstream's three steps.
//!
//! 1. Existing slices keep what is still wanted, in its present form; a slice left with nothing goes.
//! 2. Slices that change anyway are filled up, the fullest first.
//! 3. What then remains goes into the one untouched slice that it fills best, or else into new slices.
//!
//! Slices are therefore never rebalanced: every changed slice is sent to every node.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

/// Upstream's `--max-endpoints-per-slice`.
pub const MAX_ENDPOINTS: usize = 100;

/// What makes two endpoints the same one in different states.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    addresses: Vec<String>,
    hostname: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

pub fn identity(endpoint: &Endpoint) -> Identity {
    let mut addresses = endpoint.addresses.clone();
    addresses.sort();
    let target = endpoint.target_ref.as_ref();
    Identity {
        addresses,
        hostname: endpoint.hostname.clone(),
        namespace: target.and_then(|target| target.namespace.clone()),
        name: target.and_then(|target| target.name.clone()),
    }
}

/// Slices of one address type and one set of ports.
#[derive(Default)]
pub struct Packing {
    pub create: Vec<Vec<Endpoint>>,
    pub update: Vec<(Arc<EndpointSlice>, Vec<Endpoint>)>,
    pub delete: Vec<Arc<EndpointSlice>>,
}

/// `labelled` says whether a slice carries the labels that it should.
pub fn pack(existing: &[Arc<EndpointSlice>], mut wanted: BTreeMap<Identity, Endpoint>, labelled: impl Fn(&EndpointSlice) -> bool) -> Packing {
    let mut packing = Packing::default();
    let mut untouched: Vec<(Arc<EndpointSlice>, Vec<Endpoint>)> = Vec::new();
    for slice in existing {
        let old = slice.endpoints.as_deref().unwrap_or_default();
        let kept: Vec<Endpoint> = old.iter().filter_map(|endpoint| wanted.remove(&identity(endpoint))).collect();
        if kept.is_empty() && !old.is_empty() {
            packing.delete.push(slice.clone());
        } else if kept != old || !labelled(slice) {
            packing.update.push((slice.clone(), kept));
        } else {
            untouched.push((slice.clone(), kept));
        }
    }
    let mut remaining = wanted.into_values();
    packing.update.sort_by_key(|(_, endpoints)| std::cmp::Reverse(endpoints.len()));
    for (_, endpoints) in &mut packing.update {
        let room = MAX_ENDPOINTS.saturating_sub(endpoints.len());
        endpoints.extend(remaining.by_ref().take(room));
    }
    while remaining.len() > 0 {
        match best_fit(&untouched, remaining.len()) {
            Some(at) => {
                let (slice, mut endpoints) = untouched.remove(at);
                endpoints.extend(remaining.by_ref());
                packing.update.push((slice, endpoints));
            }
            None => packing.create.push(remaining.by_ref().take(MAX_ENDPOINTS).collect()),
        }
    }
    packing
}

/// The slice that `more` endpoints would leave the fullest. A full load of its own gets a new slice.
fn best_fit(slices: &[(Arc<EndpointSlice>, Vec<Endpoint>)], more: usize) -> Option<usize> {
    if more >= MAX_ENDPOINTS {
        return None;
    }
    let fitting = slices.iter().enumerate().filter(|(_, (_, endpoints))| endpoints.len() + more <= MAX_ENDPOINTS);
    let fullest = fitting.max_by_key(|(at, (_, endpoints))| (endpoints.len(), std::cmp::Reverse(*at)));
    fullest.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(number: usize) -> Endpoint {
        Endpoint { addresses: vec![format!("10.0.{}.{}", number / 250, number % 250)], ..Endpoint::default() }
    }

    fn slice(name: &str, numbers: std::ops::Range<usize>) -> Arc<EndpointSlice> {
        let mut slice = EndpointSlice { endpoints: Some(numbers.map(endpoint).collect()), ..EndpointSlice::default() };
        slice.metadata.name = Some(name.to_owned());
        Arc::new(slice)
    }

    fn wanted(numbers: impl Iterator<Item = usize>) -> BTreeMap<Identity, Endpoint> {
        numbers.map(endpoint).map(|endpoint| (identity(&endpoint), endpoint)).collect()
    }

    /// `+sizes ~name:size -name`.
    fn shape(packing: &Packing) -> Vec<String> {
        let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap();
        let created = packing.create.iter().map(|endpoints| format!("+{}", endpoints.len()));
        let updated = packing.update.iter().map(|(slice, endpoints)| format!("~{}:{}", name(slice), endpoints.len()));
        created.chain(updated).chain(packing.delete.iter().map(|slice| format!("-{}", name(slice)))).collect()
    }

    #[test]
    fn few_slices_change() {
        let pack = |existing: &[Arc<EndpointSlice>], numbers: Vec<usize>| shape(&pack(existing, wanted(numbers.into_iter()), |_| true));
        let none: [String; 0] = [];
        assert_eq!(pack(&[], (0..250).collect()), ["+100", "+100", "+50"]);
        let two = [slice("a", 0..40), slice("b", 40..120)];
        assert_eq!(pack(&two, (0..120).collect()), none, "what is right stays");
        assert_eq!(pack(&two, (0..130).collect()), ["~b:90"], "the fullest slice that has room takes what is new");
        assert_eq!(pack(&two, (0..160).collect()), ["~a:80"], "only one slice has room for all");
        assert_eq!(pack(&two, (0..190).collect()), ["+70"], "no slice has room for all");
        assert_eq!(pack(&two, (1..120).chain(200..205).collect()), ["~a:44"], "a slice that changes anyway is filled");
        assert_eq!(pack(&two, (40..120).collect()), ["-a"]);
    }

    #[test]
    fn a_change_of_labels_touches_every_slice() {
        let packing = pack(&[slice("a", 0..2)], wanted(0..3), |_| false);
        assert_eq!(shape(&packing), ["~a:3"]);
    }
}
