//! One nftables table as data.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::Patch;

/// A table with everything in it. Names are unique within the table; maps are ordered, so that equal rulesets render to equal text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// Family and name, as in `table ip NAME`.
    pub table: String,
    pub sets: BTreeMap<String, Set>,
    pub chains: BTreeMap<String, Chain>,
}

/// A set, or a map when its elements have values.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Set {
    pub is_map: bool,
    /// Type, flags, size: the declaration's body without elements.
    pub declaration: String,
    /// Key to value; the value is empty in a plain set.
    pub elements: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Chain {
    /// `type nat hook prerouting priority dstnat; policy accept;` for a base chain, empty for the others.
    pub hook: String,
    pub rules: Vec<String>,
}

impl Set {
    pub fn plain(declaration: impl Into<String>) -> Self {
        Self { is_map: false, declaration: declaration.into(), elements: BTreeMap::new() }
    }

    pub fn map(declaration: impl Into<String>) -> Self {
        Self { is_map: true, declaration: declaration.into(), elements: BTreeMap::new() }
    }

    pub(crate) fn keyword(&self) -> &'static str {
        if self.is_map { "map" } else { "set" }
    }
}

impl Chain {
    pub fn base(hook: impl Into<String>, rules: impl IntoIterator<Item = String>) -> Self {
        Self { hook: hook.into(), rules: rules.into_iter().collect() }
    }

    pub fn plain(rules: impl IntoIterator<Item = String>) -> Self {
        Self { hook: String::new(), rules: rules.into_iter().collect() }
    }
}

impl Ruleset {
    pub fn new(table: impl Into<String>) -> Self {
        Self { table: table.into(), sets: BTreeMap::new(), chains: BTreeMap::new() }
    }

    /// The transaction that makes the kernel's table exactly this one, whatever it holds now.
    pub fn render(&self) -> String {
        let mut out = self.render_removal();
        let _ = writeln!(out, "add table {}", self.table);
        out.push_str(&self.as_patch().render());
        out
    }

    /// The transaction after which the table is gone, also when there was none.
    pub fn render_removal(&self) -> String {
        format!("add table {table}\ndelete table {table}\n", table = self.table)
    }

    /// What leads from `old` to this ruleset. Both must be of one table.
    ///
    /// A set whose declaration changed, and a base chain whose hook changed, are not patched in place: those are constants of a release, and a
    /// release starts with [`Ruleset::render`].
    pub fn diff(&self, old: &Ruleset) -> Patch {
        let mut patch = Patch::new(&self.table);
        for (name, set) in &self.sets {
            let before = old.sets.get(name);
            if before.is_none() {
                patch.add_set(name, set);
            }
            for (key, value) in &set.elements {
                match before.and_then(|set| set.elements.get(key)) {
                    Some(same) if same == value => {}
                    Some(_) => {
                        patch.remove_element(name, key);
                        patch.add_element(name, key, value);
                    }
                    None => patch.add_element(name, key, value),
                }
            }
            for key in before.into_iter().flat_map(|set| set.elements.keys()).filter(|key| !set.elements.contains_key(*key)) {
                patch.remove_element(name, key);
            }
        }
        for (name, chain) in &self.chains {
            if old.chains.get(name) != Some(chain) {
                patch.put_chain(name, chain);
            }
        }
        for name in old.chains.keys().filter(|name| !self.chains.contains_key(*name)) {
            patch.remove_chain(name);
        }
        for (name, set) in old.sets.iter().filter(|(name, _)| !self.sets.contains_key(*name)) {
            patch.remove_set(name, set);
        }
        patch
    }

    fn as_patch(&self) -> Patch {
        self.diff(&Ruleset::new(self.table.clone()))
    }
}
