//! Controllers keyed by a namespace.

mod namespace_controller;
mod root_ca_certificate_publisher;

pub use namespace_controller::NamespaceController;
pub use root_ca_certificate_publisher::RootCaPublisher;
