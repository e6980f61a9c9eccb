//! JSON under a schema: strict field validation, pruning and upstream's type errors.
//!
//! serde_json drives a visitor that carries the schema, so that order and duplicates are still seen and unknown fields are
//! never built. A defect of the value (`replicas: "3"`) ends the reading at once, as the first error upstream reports; a
//! defect of the fields (unknown, duplicate) is noted and reading goes on. Texts are kept out of band in [`Reading`],
//! because serde_json would append a position to them.
//!
//! Nulls never survive under a built-in type: in a struct they mean absent, in a list or map the zero value, as in Go.
//! Under a run-time schema values of the wrong type are kept as they are, since upstream leaves those to validation.

mod go;
mod reading;
mod visit;

use serde::de::DeserializeSeed;
use serde_json::Value;

use crate::types::{Schema, StructRef};
use reading::Reading;
use visit::Seed;

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
    /// `unknown field "spec.foo"`, `duplicate field "kind"` in the order met, each once, at most [`MAX_PROBLEMS`]; empty
    /// under `Ignore`. Under Warn each is one `Warning` header, under Strict [`strict_error`] joins them.
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

/// An object of a built-in type may hold at most this many values, in JSON as in protobuf. Two or three bytes make an empty
/// list item whose canonical form takes hundreds, so without a cap a 3 MiB body could claim a gigabyte; the largest real
/// objects have tens of thousands.
pub const MAX_VALUES: usize = 300_000;

/// Upstream stops noting unknown and duplicate fields here.
pub const MAX_PROBLEMS: usize = 100;

/// Reads a JSON object of a known type.
pub fn decode(bytes: &[u8], schema: &Schema, validation: FieldValidation) -> Result<Decoded, DecodeError> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        // Go replaces bytes that are no UTF-8, unless the grammar is broken anyway.
        return match crate::syntax::json_syntax_error(bytes) {
            Some(text) => Err(DecodeError::Syntax(text)),
            None => decode(String::from_utf8_lossy(bytes).as_bytes(), schema, validation),
        };
    };
    let mut reading = Reading::new(validation);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = Seed::root(schema, &mut reading).deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    match read {
        Ok(value) => Ok(reading.finish(value, is_run_time(schema))),
        Err(refusal) => Err(explain(bytes, reading.error, &refusal)),
    }
}

/// The same for a value already parsed, such as the result of a patch. Duplicates cannot be seen here.
pub fn decode_value(value: Value, schema: &Schema, validation: FieldValidation) -> Result<Decoded, DecodeError> {
    let mut reading = Reading::new(validation);
    match Seed::root(schema, &mut reading).deserialize(value) {
        Ok(value) => Ok(reading.finish(value, is_run_time(schema))),
        Err(other) => Err(reading.error.unwrap_or_else(|| DecodeError::Type(other.to_string()))),
    }
}

/// `strict decoding error: unknown field "a", duplicate field "b"`; `None` without problems.
pub fn strict_error(problems: &[String]) -> Option<String> {
    (!problems.is_empty()).then(|| format!("strict decoding error: {}", problems.join(", ")))
}

/// The text for a body serde_json refused. Go checks the whole grammar before it looks at types.
fn explain(bytes: &[u8], noted: Option<DecodeError>, refusal: &serde_json::Error) -> DecodeError {
    if let Some(text) = crate::syntax::json_syntax_error(bytes) {
        return DecodeError::Syntax(text);
    }
    match noted {
        Some(noted) => noted,
        None if refusal.to_string().starts_with("recursion limit") => DecodeError::TooDeep,
        None => DecodeError::Syntax(refusal.to_string()),
    }
}

fn is_run_time(schema: &Schema) -> bool {
    matches!(schema, Schema::Struct(StructRef::Owned(_)))
}

#[cfg(test)]
mod tests;
