//! `flowcontrol.apiserver.k8s.io/v1`: which requests wait for which.

mod conditions;

pub mod flowschema;
pub mod prioritylevelconfiguration;
