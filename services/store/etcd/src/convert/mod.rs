//! Between etcd's messages and the store's own types. Requests are checked here, in etcd's order, so that the first fault is the one reported.

mod answer;
mod request;

pub(crate) use answer::{KvCopy, range_answer, responses};
pub(crate) use request::{compact, delete, put, range, txn, watch_range};
