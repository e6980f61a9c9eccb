//! Reading a watch: JSON events, one per line.

use bytes::{Buf, BytesMut};
use http::Method;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::Value;
use wheelhouse_base::limits::MAX_REQUEST_BYTES;

use crate::client::refusal;
use crate::{ClientError, ResponseBody};

/// The longest line that is read: the largest object, its event around it, and room for what the server adds.
const MAX_LINE_BYTES: usize = 2 * MAX_REQUEST_BYTES;

#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    Added(Value),
    Modified(Value),
    /// The object as it was, at the revision of its deletion.
    Deleted(Value),
    /// Nothing that matters to this watch happened up to this resourceVersion.
    Bookmark(String),
}

/// An open watch. Dropping it closes the stream.
pub struct Watcher {
    path: String,
    body: ResponseBody,
    buffer: BytesMut,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

impl Watcher {
    pub(crate) fn new(path: String, body: ResponseBody) -> Self {
        Self { path, body, buffer: BytesMut::new() }
    }

    /// The next event; `None` when the server ended the stream, which it does regularly: watch again from the last resourceVersion.
    pub async fn next(&mut self) -> Option<Result<WatchEvent, ClientError>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                if line.is_empty() {
                    continue;
                }
                return Some(self.parse(&line));
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Some(Err(ClientError::Body("a watch event is over the size limit".into())));
            }
            match self.body.frame().await? {
                Err(source) => return Some(Err(ClientError::Body(source))),
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn parse(&self, line: &[u8]) -> Result<WatchEvent, ClientError> {
        let decode = |source| ClientError::Decode { method: Method::GET, path: self.path.clone(), source };
        let Line { kind, object } = serde_json::from_slice(line).map_err(decode)?;
        Ok(match kind.as_str() {
            "ADDED" => WatchEvent::Added(object),
            "MODIFIED" => WatchEvent::Modified(object),
            "DELETED" => WatchEvent::Deleted(object),
            "BOOKMARK" => WatchEvent::Bookmark(object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()),
            _ => {
                let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
                return Err(refusal(Method::GET, &self.path, code, object.to_string().as_bytes()));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::full_body;

    #[tokio::test]
    async fn events_are_read_line_by_line() {
        let text = "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n\
                    {\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"reason\":\"Expired\",\"code\":410}}\n";
        let mut watcher = Watcher::new("/x".into(), full_body(text));
        assert_eq!(watcher.next().await.unwrap().unwrap(), WatchEvent::Added(serde_json::json!({"a": 1})));
        assert_eq!(watcher.next().await.unwrap().unwrap(), WatchEvent::Bookmark("7".into()));
        assert!(watcher.next().await.unwrap().unwrap_err().is_gone());
        assert!(watcher.next().await.is_none());
    }
}
