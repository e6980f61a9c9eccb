//! One file per noun.

pub mod api_key;
pub mod cluster;
pub mod completion;
pub mod etcd;
pub mod host;
pub mod node_token;
pub mod signup;
pub mod up;
