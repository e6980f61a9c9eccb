//! A pod's volumes: what each consists of (pure) and bringing it to disk.
//!
//! ```text
//! volume --plan--> Plan: a directory, memory, a host path, or files      files --atomic::write--> visible all at once
//! ```
//!
//! Files lie in a directory named by time that `..data` points to; what a container opens are links through `..data`. An update writes a new directory
//! and moves the link, so that a reader sees all old or all new files (KEP-independent behaviour that applications rely on).

pub mod atomic;
pub mod payload;
mod prepare;

pub use prepare::{VolumeError, Volumes, tear_down};
