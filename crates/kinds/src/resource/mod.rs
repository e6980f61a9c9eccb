//! `resource.k8s.io/v1`: devices that pods ask for by what they can do (dynamic resource allocation, KEP-4381).
//!
//! ```text
//! drivers publish ResourceSlices; a claim asks for devices, by class and selectors; the scheduler writes the allocation into its status
//! ```

mod claim;
mod lists;
mod names;
mod taints;

pub mod deviceclass;
pub mod resourceclaim;
pub mod resourceclaimtemplate;
pub mod resourceslice;

/// The group's name.
pub const GROUP: &str = "resource.k8s.io";
