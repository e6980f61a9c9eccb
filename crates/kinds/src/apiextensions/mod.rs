//! `apiextensions.k8s.io/v1`: definitions of further kinds, and the kinds that they define.

pub mod customresource;
pub mod customresourcedefinition;
mod names;
