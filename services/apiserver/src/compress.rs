//! gzip for large answers, as upstream: from 128 KiB on, at the fastest level, and never for watches.
//!
//! A list that is written piece by piece is looked at until it is known to be small or large: a small one is sent as it is, with its length, a
//! large one is compressed piece by piece if the client takes gzip.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};
use http::{HeaderMap, Response};

use crate::body::Body;

/// Smaller answers cost more to compress than to send.
const MIN_BYTES: usize = 128 * 1024;

/// Compresses the body if it is large and the client takes gzip.
pub fn maybe(request: &HeaderMap, response: &mut Response<Body>) {
    if response.headers().contains_key(CONTENT_ENCODING) {
        return;
    }
    let gzip = accepts_gzip(request);
    let body = match std::mem::replace(response.body_mut(), Body::empty()).into_pieces() {
        Ok(pieces) => measured(pieces, gzip),
        Err(body) => match body.as_bytes() {
            Some(bytes) if gzip && bytes.len() >= MIN_BYTES => (compressed(Box::new(std::iter::once(Bytes::copy_from_slice(bytes)))), true),
            _ => (body, false),
        },
    };
    *response.body_mut() = body.0;
    if body.1 {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// Looks at the pieces until they are known to be small or large. The answer says whether it was compressed.
fn measured(mut pieces: Box<dyn Iterator<Item = Bytes> + Send>, gzip: bool) -> (Body, bool) {
    let mut first: Vec<Bytes> = Vec::new();
    let mut bytes = 0;
    while bytes < MIN_BYTES {
        let Some(piece) = pieces.next() else {
            return (Body::from(first.concat()), false);
        };
        bytes += piece.len();
        first.push(piece);
    }
    let all = Box::new(first.into_iter().chain(pieces));
    if gzip { (compressed(all), true) } else { (Body::pieces(all), false) }
}

fn compressed(pieces: Box<dyn Iterator<Item = Bytes> + Send>) -> Body {
    Body::pieces(Compressed { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) })
}

struct Compressed {
    pieces: Box<dyn Iterator<Item = Bytes> + Send>,
    /// Taken when the trailer has been written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Iterator for Compressed {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut encoder = self.encoder.take()?;
        for piece in self.pieces.by_ref() {
            // Writing into memory cannot fail.
            encoder.write_all(&piece).ok()?;
            if !encoder.get_ref().is_empty() {
                let out = std::mem::take(encoder.get_mut());
                self.encoder = Some(encoder);
                return Some(out.into());
            }
        }
        encoder.finish().ok().map(Bytes::from)
    }
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    let header = request.get(ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or("");
    header.split(',').any(|coding| coding.split(';').next().unwrap_or("").trim() == "gzip")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn answer(size: usize, gzip: bool) -> Response<Body> {
        let mut request = HeaderMap::new();
        if gzip {
            request.insert(ACCEPT_ENCODING, HeaderValue::from_static("br, gzip"));
        }
        let pieces = (0..size.div_ceil(1000)).map(|i| Bytes::from(vec![b'a' + (i % 26) as u8; 1000]));
        let mut response = Response::new(Body::pieces(pieces));
        maybe(&request, &mut response);
        response
    }

    fn read(body: Body) -> Vec<u8> {
        match body.as_bytes() {
            Some(bytes) => bytes.to_vec(),
            None => body.into_pieces().map(|pieces| pieces.flatten().collect()).unwrap_or_default(),
        }
    }

    #[test]
    fn large_lists_are_compressed_and_small_ones_measured() {
        let small = answer(5_000, true);
        assert!(!small.headers().contains_key(CONTENT_ENCODING));
        assert_eq!(small.body().as_bytes().map(<[u8]>::len), Some(5_000));
        let plain = answer(300_000, false);
        assert_eq!(read(plain.into_body()).len(), 300_000);
        let large = answer(300_000, true);
        assert_eq!(large.headers()[CONTENT_ENCODING], "gzip");
        let sent = read(large.into_body());
        assert!(sent.len() < 30_000);
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&sent[..]).read_to_end(&mut text).unwrap();
        assert_eq!(text.len(), 300_000);
    }
}
