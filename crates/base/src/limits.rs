//! Limits that several parts must agree on. A limit of one part alone lives in that part.

use std::time::Duration;

/// The largest request body: upstream's limit for JSON, YAML and protobuf bodies alike.
pub const MAX_REQUEST_BYTES: usize = 3 * 1024 * 1024;

/// The largest stored value: etcd's default request limit, which clients know as `etcdserver: request is too large`.
pub const MAX_VALUE_BYTES: usize = 1536 * 1024;

/// How much history is retained for watches at least: the larger of this and [`RETAINED_REVISIONS`].
pub const RETAINED_TIME: Duration = Duration::from_secs(5 * 60);

/// See [`RETAINED_TIME`].
pub const RETAINED_REVISIONS: u64 = 100_000;
