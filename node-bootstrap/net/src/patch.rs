//! A change of one table, as the text of one nft transaction.
//!
//! The order of commands is what makes any change valid: declarations first, then rules, then elements (which may jump to the new chains), then
//! what nothing refers to any more. A changed element is removed and added within the transaction, so no packet sees it missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::{Chain, Set};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    table: String,
    sets: BTreeMap<String, (&'static str, String)>,
    chains: BTreeMap<String, Chain>,
    /// Set name and key.
    removed_elements: BTreeSet<(String, String)>,
    /// Set name and key to value.
    added_elements: BTreeMap<(String, String), String>,
    removed_chains: BTreeSet<String>,
    removed_sets: BTreeMap<String, &'static str>,
}

impl Patch {
    pub fn new(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            sets: BTreeMap::new(),
            chains: BTreeMap::new(),
            removed_elements: BTreeSet::new(),
            added_elements: BTreeMap::new(),
            removed_chains: BTreeSet::new(),
            removed_sets: BTreeMap::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
            && self.chains.is_empty()
            && self.removed_elements.is_empty()
            && self.added_elements.is_empty()
            && self.removed_chains.is_empty()
            && self.removed_sets.is_empty()
    }

    pub fn add_set(&mut self, name: &str, set: &Set) {
        self.sets.insert(name.to_owned(), (set.keyword(), set.declaration.clone()));
    }

    /// Creates the chain or replaces its rules.
    pub fn put_chain(&mut self, name: &str, chain: &Chain) {
        self.chains.insert(name.to_owned(), chain.clone());
    }

    pub fn add_element(&mut self, set: &str, key: &str, value: &str) {
        self.added_elements.insert((set.to_owned(), key.to_owned()), value.to_owned());
    }

    /// The element must be there; a key may be removed and added in one patch.
    pub fn remove_element(&mut self, set: &str, key: &str) {
        self.removed_elements.insert((set.to_owned(), key.to_owned()));
    }

    pub fn remove_chain(&mut self, name: &str) {
        self.removed_chains.insert(name.to_owned());
    }

    /// Its elements go with it.
    pub fn remove_set(&mut self, name: &str, set: &Set) {
        self.removed_sets.insert(name.to_owned(), set.keyword());
    }

    /// The transaction's text; empty when there is nothing to do.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let table = &self.table;
        // Writing to a string does not fail.
        for (name, (keyword, declaration)) in &self.sets {
            let _ = writeln!(out, "add {keyword} {table} {name} {{ {declaration} }}");
        }
        for (name, chain) in &self.chains {
            let _ = match chain.hook.as_str() {
                "" => writeln!(out, "add chain {table} {name}"),
                hook => writeln!(out, "add chain {table} {name} {{ {hook} }}"),
            };
        }
        for (name, chain) in &self.chains {
            let _ = writeln!(out, "flush chain {table} {name}");
            for rule in &chain.rules {
                let _ = writeln!(out, "add rule {table} {name} {rule}");
            }
        }
        for (set, key) in &self.removed_elements {
            let _ = writeln!(out, "delete element {table} {set} {{ {key} }}");
        }
        for ((set, key), value) in &self.added_elements {
            let _ = match value.as_str() {
                "" => writeln!(out, "add element {table} {set} {{ {key} }}"),
                value => writeln!(out, "add element {table} {set} {{ {key} : {value} }}"),
            };
        }
        // Chains may refer to one another, so all are emptied before the first goes.
        for name in &self.removed_chains {
            let _ = writeln!(out, "flush chain {table} {name}");
        }
        for name in &self.removed_chains {
            let _ = writeln!(out, "delete chain {table} {name}");
        }
        for (name, keyword) in &self.removed_sets {
            let _ = writeln!(out, "delete {keyword} {table} {name}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use crate::{Chain, Ruleset, Set};

    fn world(elements: &[(&str, &str)], chains: &[&str]) -> Ruleset {
        let mut ruleset = Ruleset::new("ip t");
        let mut map = Set::map("type ipv4_addr : verdict;");
        map.elements = elements.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ruleset.sets.insert("m".into(), map);
        for name in chains {
            ruleset.chains.insert((*name).to_owned(), Chain::plain(["accept".to_owned()]));
        }
        ruleset
    }

    #[test]
    fn a_change_touches_only_what_differs_and_in_a_valid_order() {
        let old = world(&[("1.1.1.1", "goto a"), ("1.1.1.2", "goto a"), ("1.1.1.3", "drop")], &["a"]);
        let new = world(&[("1.1.1.1", "goto b"), ("1.1.1.3", "drop"), ("1.1.1.4", "goto b")], &["b"]);
        let expected = "add chain ip t b\nflush chain ip t b\nadd rule ip t b accept\n\
            delete element ip t m { 1.1.1.1 }\ndelete element ip t m { 1.1.1.2 }\n\
            add element ip t m { 1.1.1.1 : goto b }\nadd element ip t m { 1.1.1.4 : goto b }\nflush chain ip t a\ndelete chain ip t a\n";
        assert_eq!(new.diff(&old).render(), expected);
        assert!(new.diff(&new).is_empty());
    }
}
