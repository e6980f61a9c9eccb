//! Who asks for which element and chain. Several services may ask for one: the same external address, the same pod calling itself.

use std::collections::BTreeMap;

use wheelhouse_net::{Family, Patch, Ruleset};

use crate::chains::SharedChain;
use crate::facts::ServiceName;
use crate::rules::{Element, Fragment};

/// Elements and chains of one family, with everybody who claims them, and what of it changed since it was last loaded.
pub struct Claims {
    family: Family,
    frame: Ruleset,
    /// Claimants in the order of their names: the first one's value counts, whoever came first, so that restarts change nothing.
    elements: BTreeMap<(&'static str, String), Vec<(ServiceName, String)>>,
    chains: BTreeMap<SharedChain, usize>,
    /// What was loaded of those elements that were touched since.
    touched_elements: BTreeMap<(&'static str, String), Option<String>>,
    /// Whether the chain was loaded, of those touched since.
    touched_chains: BTreeMap<SharedChain, bool>,
}

impl Claims {
    pub fn new(family: Family, frame: Ruleset) -> Self {
        Self { family, frame, elements: BTreeMap::new(), chains: BTreeMap::new(), touched_elements: BTreeMap::new(), touched_chains: BTreeMap::new() }
    }

    pub fn add(&mut self, owner: &ServiceName, fragment: Fragment) {
        for Element { set, key, value } in fragment.elements {
            let key = (set, key);
            self.touch_element(&key);
            let claims = self.elements.entry(key).or_insert_with(|| Vec::with_capacity(1));
            let at = claims.partition_point(|(claimant, _)| claimant <= owner);
            claims.insert(at, (owner.clone(), value));
        }
        for chain in fragment.chains {
            self.touch_chain(&chain);
            *self.chains.entry(chain).or_default() += 1;
        }
    }

    /// Takes back exactly what was added.
    pub fn remove(&mut self, owner: &ServiceName, fragment: Fragment) {
        for Element { set, key, value } in fragment.elements {
            let key = (set, key);
            self.touch_element(&key);
            if let Some(claims) = self.elements.get_mut(&key) {
                if let Some(at) = claims.iter().position(|(claimant, claimed)| claimant == owner && *claimed == value) {
                    claims.remove(at);
                }
                if claims.is_empty() {
                    self.elements.remove(&key);
                }
            }
        }
        for chain in fragment.chains {
            self.touch_chain(&chain);
            if let Some(count) = self.chains.get_mut(&chain) {
                *count -= 1;
                if *count == 0 {
                    self.chains.remove(&chain);
                }
            }
        }
    }

    fn touch_element(&mut self, key: &(&'static str, String)) {
        if !self.touched_elements.contains_key(key) {
            let loaded = self.elements.get(key).and_then(|claims| claims.first()).map(|(_, value)| value.clone());
            self.touched_elements.insert(key.clone(), loaded);
        }
    }

    fn touch_chain(&mut self, chain: &SharedChain) {
        if !self.touched_chains.contains_key(chain) {
            self.touched_chains.insert(chain.clone(), self.chains.contains_key(chain));
        }
    }

    /// What changed since the last call.
    pub fn take_patch(&mut self) -> Patch {
        let mut patch = Patch::new(&self.frame.table);
        for ((set, key), loaded) in std::mem::take(&mut self.touched_elements) {
            let wanted = self.elements.get(&(set, key.clone())).and_then(|claims| claims.first()).map(|(_, value)| value);
            if wanted == loaded.as_ref() {
                continue;
            }
            if loaded.is_some() {
                patch.remove_element(set, &key);
            }
            if let Some(value) = wanted {
                patch.add_element(set, &key, value);
            }
        }
        for (chain, loaded) in std::mem::take(&mut self.touched_chains) {
            match (loaded, self.chains.contains_key(&chain)) {
                (false, true) => patch.put_chain(&chain.name(), &chain.chain(self.family)),
                (true, false) => patch.remove_chain(&chain.name()),
                _ => {}
            }
        }
        patch
    }

    /// The whole table.
    pub fn ruleset(&self) -> Ruleset {
        let mut ruleset = self.frame.clone();
        for ((set, key), claims) in &self.elements {
            let set = ruleset.sets.get_mut(*set).expect("elements belong to sets of the frame");
            set.elements.extend(claims.first().map(|(_, value)| (key.clone(), value.clone())));
        }
        ruleset.chains.extend(self.chains.keys().map(|chain| (chain.name(), chain.chain(self.family))));
        ruleset
    }
}
