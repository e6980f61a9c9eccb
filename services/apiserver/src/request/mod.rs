//! Reading a request: path, query, media types and body.

pub mod decode;
pub mod gojson;
pub mod media;
pub mod path;
pub mod query;

use wheelhouse_meta::Status;

/// What a step of a request gives, or the Status that ends it. Boxed because a Status is large and rare.
pub type Answer<T> = Result<T, Box<Status>>;
