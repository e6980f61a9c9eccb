//! The core group, `v1`.

pub mod configmap;
pub mod namespace;
