//! JSON under a schema: strict field validation, pruning and upstream's type errors.

use serde_json::Value;

use crate::types::Schema;

/// The `fieldValidation` query parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    /// Upstream's default.
    #[default]
    Warn,
    Strict,
}

/// A decoded object, unknown fields removed.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// `unknown field "spec.foo"`, `duplicate field "kind"` in the order met; empty under `Ignore`. Under Warn each is one
    /// `Warning` header, under Strict [`strict_error`] joins them.
    pub problems: Vec<String>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// Not JSON; the text is Go's.
    #[error("{0}")]
    Syntax(String),
    /// `json: cannot unmarshal string into Go struct field PodSpec.spec.replicas of type int32`, or what the type's own
    /// parser says (quantities, times).
    #[error("{0}")]
    Type(String),
    /// Deeper than [`MAX_DEPTH`].
    #[error("exceeded max depth")]
    TooDeep,
}

/// Objects nest at most this deep; encoding/json's own limit is 10,000, ours protects the stack of a request's thread.
pub const MAX_DEPTH: usize = 100;

/// Reads a JSON object of a known type.
pub fn decode(bytes: &[u8], schema: &Schema, validation: FieldValidation) -> Result<Decoded, DecodeError> {
    let _ = (bytes, schema, validation);
    todo!()
}

/// The same for a value already parsed, such as the result of a patch. Duplicates cannot be seen here.
pub fn decode_value(value: Value, schema: &Schema, validation: FieldValidation) -> Result<Decoded, DecodeError> {
    let _ = (value, schema, validation);
    todo!()
}

/// `strict decoding error: unknown field "a", duplicate field "b"`; `None` without problems.
pub fn strict_error(problems: &[String]) -> Option<String> {
    (!problems.is_empty()).then(|| format!("strict decoding error: {}", problems.join(", ")))
}
