//! Controllers that are keyed by a volume.

mod pv_protection_controller;

pub use pv_protection_controller::PvProtectionController;
