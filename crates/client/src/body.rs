//! Response bodies: a stream of byte chunks, boxed so that every transport answers with the same type.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

/// A streaming response body.
pub type ResponseBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

pub fn full_body(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub fn empty_body() -> ResponseBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
