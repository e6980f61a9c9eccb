//! The core group, `v1`.

pub mod configmap;
pub mod event;
pub mod namespace;
pub mod secret;
pub mod serviceaccount;
