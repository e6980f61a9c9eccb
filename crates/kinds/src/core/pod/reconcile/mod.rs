//! Controllers of pods, whoever made them.

mod pod_garbage_collector;
mod stale_disruption;

pub use pod_garbage_collector::PodGarbageCollector;
pub use stale_disruption::StaleDisruptionController;
