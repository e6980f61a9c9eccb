//! The core group, `v1`.

pub mod configmap;
pub mod endpoints;
pub mod event;
pub mod namespace;
pub mod node;
pub mod persistentvolumeclaim;
pub mod pod;
pub mod secret;
pub mod service;
pub mod serviceaccount;
