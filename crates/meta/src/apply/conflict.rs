//! Conflicts between an apply and other managers, and their Status.

use std::collections::BTreeMap;

use super::managed::{ManagerId, Operation};
use super::path::{PathElement, print_path};
use super::set::Set;
use crate::gotext::quote;
use crate::status::{Status, StatusCause};

/// The reason of each cause; `kubectl` looks for it.
const CAUSE: &str = "FieldManagerConflict";

/// What an apply would take from whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts(pub(super) BTreeMap<ManagerId, Set>);

impl Conflicts {
    pub(super) fn all(&self) -> Set {
        self.0.values().fold(Set::new(), |all, set| all.union(set))
    }

    /// Those whose exact path is not in the set.
    pub(super) fn outside(&self, allowed: &Set) -> Self {
        let left = self.0.iter().map(|(id, set)| (id.clone(), set.difference(allowed)));
        Self(left.filter(|(_, set)| !set.is_empty()).collect())
    }

    fn list(&self) -> Vec<(&ManagerId, Vec<PathElement>)> {
        self.0.iter().flat_map(|(id, set)| set.paths().into_iter().map(move |path| (id, path))).collect()
    }

    pub fn to_status(&self) -> Status {
        let conflicts = self.list();
        let causes = conflicts
            .iter()
            .map(|(id, path)| StatusCause { reason: CAUSE.to_owned(), message: format!("conflict with {}", name(id)), field: print_path(path) })
            .collect();
        Status::apply_conflict(message(&conflicts), causes)
    }
}

fn message(conflicts: &[(&ManagerId, Vec<PathElement>)]) -> String {
    if let [(id, path)] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", name(id), print_path(path));
    }
    let mut lines = Vec::with_capacity(conflicts.len() + 1);
    let mut last = None;
    for (id, path) in conflicts {
        if last != Some(id) {
            lines.push(format!("conflicts with {}:", name(id)));
            last = Some(id);
        }
        lines.push(format!("- {}", print_path(path)));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

fn name(id: &ManagerId) -> String {
    let mut text = quote(&id.manager);
    if !id.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", quote(&id.subresource)));
    }
    if id.operation == Operation::Update {
        text.push_str(&format!(" using {}", id.api_version));
    }
    text
}
