//! Controllers keyed by a class of attributes.

mod vac_protection_controller;

pub use vac_protection_controller::VacProtectionController;
