//! Kubernetes' protobuf both ways, driven by the schema table.

use serde_json::Value;

use crate::types::Schema;

/// A `runtime.Unknown`: the envelope behind the magic bytes `k8s\0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown<'a> {
    pub api_version: String,
    pub kind: String,
    /// The object's message, or JSON when `content_type` says so.
    pub raw: &'a [u8],
    pub content_encoding: String,
    pub content_type: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProtobufError {
    #[error("{0}")]
    Malformed(&'static str),
    /// The type has no protobuf form (Table, custom resources).
    #[error("{0} has no protobuf form")]
    NoMessage(String),
    /// A value does not fit its field.
    #[error("{path}: {reason}")]
    Value { path: String, reason: String },
}

/// Opens an enveloped body. Fails without the magic bytes.
pub fn open(bytes: &[u8]) -> Result<Unknown<'_>, ProtobufError> {
    let _ = bytes;
    todo!()
}

/// Reads the bare message of a type (`Unknown::raw`) into JSON, in the form Go would write; apiVersion and kind are the
/// caller's to add.
pub fn decode(raw: &[u8], schema: &Schema) -> Result<Value, ProtobufError> {
    let _ = (raw, schema);
    todo!()
}

/// Writes the bare message of a type.
pub fn encode(value: &Value, schema: &Schema) -> Result<Vec<u8>, ProtobufError> {
    let _ = (value, schema);
    todo!()
}

/// Writes `k8s\0` and the envelope; apiVersion and kind are taken from the value.
pub fn encode_object(value: &Value, schema: &Schema) -> Result<Vec<u8>, ProtobufError> {
    let _ = (value, schema);
    todo!()
}

/// One frame of a protobuf watch: four bytes of length, then an envelope that holds a WatchEvent whose object is
/// `object`, itself enveloped (what [`encode_object`] wrote).
pub fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let _ = (event_type, object);
    todo!()
}
