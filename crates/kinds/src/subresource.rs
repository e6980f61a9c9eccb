//! Subresources that several kinds have.

use crate::kind::{Action, Subresource, Verb};

const READ_WRITE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];

/// The part that controllers report in.
pub const STATUS: Subresource = Subresource { name: "status", body: None, verbs: READ_WRITE, action: Action::Part };

/// The count of replicas behind one shape for every kind.
pub const SCALE: Subresource = Subresource { name: "scale", body: Some(("autoscaling", "v1", "Scale")), verbs: READ_WRITE, action: Action::Scale };

/// A part that is read and written like the object.
pub const fn part(name: &'static str) -> Subresource {
    Subresource { name, body: None, verbs: READ_WRITE, action: Action::Part }
}
