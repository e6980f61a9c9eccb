//! Controllers of pods, whoever made them.

mod pod_garbage_collector;

pub use pod_garbage_collector::PodGarbageCollector;
