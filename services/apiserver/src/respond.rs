//! Answers as HTTP.
//!
//! A handler returns a [`Reply`] or a Status; only this file knows headers. Every API answer carries `Cache-Control: no-cache, private`.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use http::{HeaderMap, Response, StatusCode};
use wheelhouse_meta::Status;

use crate::body::Body;
use crate::request::media::Encoding;

/// A successful answer.
pub struct Reply {
    pub code: StatusCode,
    pub content_type: &'static str,
    pub body: Body,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Texts for `Warning` headers, before they are deduplicated.
    pub warnings: Vec<String>,
}

impl Reply {
    pub fn new(code: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Self {
        Self { code, content_type, body: body.into(), headers: Vec::new(), warnings: Vec::new() }
    }

    pub fn ok(content_type: &'static str, body: impl Into<Body>) -> Self {
        Self::new(StatusCode::OK, content_type, body)
    }

    pub fn text(body: impl Into<String>) -> Self {
        Self::ok("text/plain; charset=utf-8", body.into())
    }

    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        if !self.content_type.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        add_warnings(headers, &self.warnings);
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }
}

/// The answer that a Status is, in the client's encoding.
pub fn status_response(status: &Status, encoding: Encoding, warnings: &[String]) -> Response<Body> {
    let code = if status.code == 0 { 200 } else { status.code };
    let mut response = Response::new(Body::from(encode_status(status, encoding)));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Some(seconds) = status.retry_after_seconds() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    add_warnings(headers, warnings);
    response
}

/// A Status in any encoding; JSON if the encoding fails.
pub fn encode_status(status: &Status, encoding: Encoding) -> Bytes {
    let json = status.to_json();
    match encoding {
        Encoding::Json => json.into(),
        Encoding::Yaml => yaml(&json),
        Encoding::Protobuf => {
            let value = serde_json::from_slice(&json).unwrap_or_default();
            let schema = wheelhouse_schema::catalog().kind("", "v1", "Status").map(|kind| &kind.schema);
            let encoded = schema.and_then(|schema| wheelhouse_schema::protobuf::encode_object(&value, schema).ok());
            encoded.unwrap_or(json).into()
        }
    }
}

/// JSON text as YAML.
pub fn yaml(json: &[u8]) -> Bytes {
    let value: serde_json::Value = serde_json::from_slice(json).unwrap_or_default();
    crate::yaml::to_string(&value).into()
}

/// All warnings of one answer together hold at most this many bytes; upstream's limit for the header block.
const MAX_WARNING_BYTES: usize = 4 * 1024;
/// Longer texts are cut when the total is exceeded.
const TRUNCATED_WARNING_BYTES: usize = 256;

/// `299 - "text"`, each text once, cut like upstream's when there is too much.
fn add_warnings(headers: &mut HeaderMap, warnings: &[String]) {
    let mut seen: Vec<&str> = Vec::new();
    for warning in warnings {
        if !warning.is_empty() && !seen.contains(&warning.as_str()) {
            seen.push(warning);
        }
    }
    let total: usize = seen.iter().map(|w| w.len()).sum();
    let mut written = 0;
    for text in seen {
        let mut text = text;
        if total > MAX_WARNING_BYTES {
            text = truncate(text, TRUNCATED_WARNING_BYTES);
            if written + text.len() > MAX_WARNING_BYTES {
                break;
            }
        }
        written += text.len();
        let quoted: String = text
            .chars()
            .filter(|c| !c.is_control() || *c == '\n')
            .flat_map(|c| match c {
                '"' => vec!['\\', '"'],
                '\\' => vec!['\\', '\\'],
                '\n' => vec![' '],
                c => vec![c],
            })
            .collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            headers.append(WARNING, value);
        }
    }
}

fn truncate(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_said_once_and_quoted() {
        let texts = ["a \"b\"".to_owned(), "a \"b\"".to_owned(), "c\\".to_owned(), String::new()];
        let mut headers = HeaderMap::new();
        add_warnings(&mut headers, &texts);
        let values: Vec<_> = headers.get_all(WARNING).iter().map(|v| v.to_str().unwrap()).collect();
        assert_eq!(values, ["299 - \"a \\\"b\\\"\"", "299 - \"c\\\\\""]);
    }

    #[test]
    fn too_many_warnings_are_cut() {
        let texts: Vec<String> = (0..100).map(|i| format!("{i}{}", "é".repeat(300))).collect();
        let mut headers = HeaderMap::new();
        add_warnings(&mut headers, &texts);
        let total: usize = headers.get_all(WARNING).iter().map(|v| v.len()).sum();
        assert!(total < MAX_WARNING_BYTES + 1024, "{total}");
    }
}
