//! Controllers keyed by a service: they publish the pods behind it, in the old shape and in the new, and carry the old shape over to the new.

mod backends;
mod endpoint_slice_controller;
mod endpoint_slice_mirroring_controller;
mod endpoints_controller;
mod repack;
mod slice_packing;
mod slices;
mod trigger_time;

pub use endpoint_slice_controller::EndpointSliceController;
pub use endpoint_slice_mirroring_controller::EndpointSliceMirroringController;
pub use endpoints_controller::EndpointsController;
