//! `admissionregistration.k8s.io/v1`: webhooks and policies that look at requests.
//!
//! Both say with the same rules which requests they look at; both policies have parameters, conditions and variables in common.

pub mod client_config;
mod params;
mod policy;
mod rules;
mod webhook;

pub mod mutatingadmissionpolicy;
pub mod mutatingadmissionpolicybinding;
pub mod mutatingwebhookconfiguration;
pub mod validatingadmissionpolicy;
pub mod validatingadmissionpolicybinding;
pub mod validatingwebhookconfiguration;

/// The group's name.
pub const GROUP: &str = "admissionregistration.k8s.io";
