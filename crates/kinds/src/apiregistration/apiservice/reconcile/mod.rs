//! Controllers that are keyed by an APIService.

mod available_controller;

pub use available_controller::AvailableController;
