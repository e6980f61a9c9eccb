//! The kinds: one folder per kind, holding everything that is that kind's own.
//!
//! A folder answers: what it is (`mod.rs`), its defaults, its validation, what a create and an update may touch (`strategy.rs`), its table
//! columns, and the reconcilers keyed by it. The generic registry of the API server and the controllers' driver do the rest.

pub mod admissionregistration;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod fleet;
pub mod flowcontrol;
mod internal;
pub mod kind;
mod line_difference;
pub mod networking;
pub mod node;
pub mod owned;
pub mod plan;
pub mod policy;
mod prelude;
mod protection;
pub mod rbac;
pub mod reconciler;
pub mod registry;
pub mod resource;
pub mod scale;
pub mod scheduling;
pub mod storage;
pub mod subresource;
pub mod table;
pub mod time;
pub mod validation;
pub mod view;
pub mod virtuals;

pub use kind::{
    Action, Column, Kind, KindInfo, NameRule, OtherVersion, RequestContext, Requester, Scope, Subresource, Typed, TypedKind, Verb, Verdict,
};
pub use registry::{Behaviour, Entry, Group, Profile, Registry};
