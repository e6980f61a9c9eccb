//! Controllers that are keyed by a claim.

mod pvc_protection_controller;

pub use pvc_protection_controller::PvcProtectionController;
