//! Admission: what a cluster's own rules change in a write and what they refuse.
//!
//! ```text
//! decoded, defaulted object -> mutate (every mutating plugin, in order) -> validation -> validate (every validating plugin) -> store
//! ```
//!
//! A plugin is a function of the request, the object and what [`Lookups`] finds. It keeps nothing between requests.

mod ingress_class;
mod limit_ranger;
mod namespace_lifecycle;
pub mod node_restriction;
mod pod;
mod pod_security;
mod policies;
mod priority;
pub mod quota;
pub mod resources;
mod runtime_class;
mod service_account;
mod storage_class;
mod storage_objects;
mod taints;

pub use service_account::awaited_account;

use std::collections::BTreeMap;

use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::{GroupResource, Status};

use crate::attributes::{Attributes, Target};
use crate::lookups::{Answer, Lookups};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    /// `exec`, `attach`, `portforward` and `proxy`.
    Connect,
}

/// What the plugins say beside their verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// For the audit event.
    pub annotations: BTreeMap<String, String>,
}

impl Notes {
    /// The first note under a key counts, as upstream's.
    pub fn annotate(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.annotations.entry(key.into()).or_insert_with(|| value.into());
    }
}

/// A write, as the plugins see it.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub attributes: &'a Attributes<'a>,
    pub operation: Operation,
    /// The stored object, for updates and deletes of one object.
    pub old: Option<&'a Value>,
    pub dry_run: bool,
    pub now: Timestamp,
    /// Randomness for generated names. The same request admitted again (after a conflict) should carry the same seed.
    pub seed: u64,
}

impl<'a> Request<'a> {
    pub fn resource(&self) -> &'a str {
        match self.attributes.target {
            Target::Resource { resource, .. } => resource,
            Target::Path(_) => "",
        }
    }

    pub fn group(&self) -> &'a str {
        match self.attributes.target {
            Target::Resource { group, .. } => group,
            Target::Path(_) => "",
        }
    }

    pub fn subresource(&self) -> &'a str {
        match self.attributes.target {
            Target::Resource { subresource, .. } => subresource,
            Target::Path(_) => "",
        }
    }

    /// Whether the request is for `resource` of `group` itself, not for a subresource.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.group() == group && self.resource() == resource && self.subresource().is_empty()
    }

    /// A plugin's refusal: `pods "x" is forbidden: WHY`, with the name that the object will have as far as it is known.
    pub fn forbidden(&self, object: Option<&Value>, why: impl std::fmt::Display) -> Box<Status> {
        let from_object = |key: &str| object.and_then(|o| o["metadata"][key].as_str()).filter(|s| !s.is_empty());
        let name = Some(self.attributes.name()).filter(|n| !n.is_empty()).or_else(|| from_object("name")).or_else(|| from_object("generateName"));
        let resource = GroupResource::new(self.group(), self.resource());
        Box::new(Status::forbidden(&resource, name.unwrap_or("Unknown"), why))
    }
}

/// Runs the mutating plugins in upstream's order.
pub fn mutate(request: &Request<'_>, object: &mut Value, lookups: &dyn Lookups) -> Answer<()> {
    namespace_lifecycle::check(request, Some(object), lookups)?;
    limit_ranger::mutate(request, object, lookups);
    service_account::mutate(request, object, lookups)?;
    taints::taint_new_node(request, object);
    priority::mutate(request, object, lookups)?;
    taints::default_tolerations(request, object);
    storage_class::mutate(request, object, lookups);
    storage_objects::protect(request, object);
    runtime_class::mutate(request, object, lookups)?;
    ingress_class::mutate(request, object, lookups);
    policies::mutate(request, object, lookups)
}

/// Runs the validating plugins in upstream's order. `object` is `None` for deletes. The notes hold for a refused request too.
pub fn validate(request: &Request<'_>, object: Option<&Value>, lookups: &dyn Lookups, notes: &mut Notes) -> Answer<()> {
    namespace_lifecycle::check(request, object, lookups)?;
    if let Some(object) = object {
        limit_ranger::validate(request, object, lookups)?;
        service_account::validate(request, object, lookups)?;
        pod_security::validate(request, object, lookups, notes)?;
        priority::validate(request, object, lookups)?;
        storage_objects::check_growth(request, object, lookups)?;
        runtime_class::validate(request, object, lookups)?;
    }
    policies::validate(request, object, lookups, notes)
}

#[cfg(test)]
mod tests;
