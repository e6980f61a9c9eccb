//! Kubernetes' protobuf both ways, driven by the schema table.
//!
//! ```text
//! "k8s\0"  runtime.Unknown { typeMeta {apiVersion, kind}, raw, contentEncoding, contentType }
//!                                                          └─ the object's own message
//! watch:   length (4 bytes, big endian)  runtime.Unknown { raw = WatchEvent { type, object { raw = "k8s\0" … } } }
//! ```
//!
//! The messages are proto2 as gogo-protobuf writes them for Go structs, which is stricter than the format: fields ascend,
//! a field that is no pointer is written even when zero, an embedded or plain struct is written even when empty, map
//! entries are sorted by key. Bytes are compared with recorded ones in this module's tests. Reading accepts any order,
//! packed lists, unknown fields and repeated parts of one message.
//!
//! Scalars with a JSON form of their own are small messages: Time `{1: seconds, 2: nanos}` (empty when unset),
//! IntOrString `{1: which, 2: number, 3: text}`, Quantity `{1: text}`, RawExtension, JSON and FieldsV1 `{1: JSON bytes}`.

mod envelope;
mod read;
pub(crate) mod wire;
mod write;

pub use envelope::{MAGIC, Unknown, encode_object, list_object, open, seal, watch_frame};
pub use read::decode;
pub use write::encode;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProtobufError {
    /// The bytes are no message; the text is upstream's where it has one (`unexpected EOF`).
    #[error("{0}")]
    Malformed(&'static str),
    /// The type has no protobuf form (Table, custom resources).
    #[error("{0} has no protobuf form")]
    NoMessage(String),
    /// A value does not fit its field.
    #[error("{path}: {reason}")]
    Value { path: String, reason: String },
}

impl ProtobufError {
    fn value(reason: impl Into<String>) -> ProtobufError {
        ProtobufError::Value { path: String::new(), reason: reason.into() }
    }

    /// Names the field that the error is under.
    fn under(self, name: &str) -> ProtobufError {
        match self {
            ProtobufError::Value { path, reason } if path.is_empty() => ProtobufError::Value { path: name.to_owned(), reason },
            ProtobufError::Value { path, reason } => ProtobufError::Value { path: format!("{name}.{path}"), reason },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests;
