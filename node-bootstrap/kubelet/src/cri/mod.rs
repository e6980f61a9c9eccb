//! The container runtime over its socket: CRI `runtime.v1`, each call with a deadline.
//!
//! containerd 1.6 answers `Unimplemented` to events and runtime configuration, so the kubelet relists instead of listening.

mod client;
mod convert;

/// Compiled from `proto/` by `proto/generate`, and checked in.
#[allow(clippy::all, clippy::unwrap_used)]
pub mod api {
    include!("../generated/runtime.v1.rs");
}

pub use client::{CriError, Image, Runtime, Usage};
pub use convert::{PodIdentity, Relist};
