//! Controllers keyed by a service: both publish the pods behind it, in the old shape and in the new.

mod backends;
mod endpoint_slice_controller;
mod endpoints_controller;
mod repack;
mod slice_packing;
mod trigger_time;

pub use endpoint_slice_controller::EndpointSliceController;
pub use endpoints_controller::EndpointsController;
