//! gzip for large answers, as upstream: from 128 KiB on, at the fastest level, and never for streams that must not wait.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};
use http::{HeaderMap, Response};

use crate::body::Body;

/// Smaller answers cost more to compress than to send.
const MIN_BYTES: usize = 128 * 1024;

/// Compresses a body that is at hand and large, if the client takes gzip.
pub fn maybe(request: &HeaderMap, response: &mut Response<Body>) {
    let Some(bytes) = response.body().as_bytes().filter(|bytes| bytes.len() >= MIN_BYTES) else { return };
    if !accepts_gzip(request) || response.headers().contains_key(CONTENT_ENCODING) {
        return;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    let Ok(compressed) = compressed else { return };
    *response.body_mut() = Body::from(Bytes::from(compressed));
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

pub fn accepts_gzip(request: &HeaderMap) -> bool {
    let header = request.get(ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or("");
    header.split(',').any(|coding| coding.split(';').next().unwrap_or("").trim() == "gzip")
}
