//! Controllers of pods, whoever made them.

mod ephemeral_volume_controller;
mod pod_garbage_collector;
mod stale_disruption;

pub use ephemeral_volume_controller::EphemeralVolumeController;
pub use pod_garbage_collector::PodGarbageCollector;
pub use stale_disruption::StaleDisruptionController;
