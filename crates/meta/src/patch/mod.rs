//! The three patches of the API that need no field managers: JSON patch, JSON merge patch, strategic merge patch.
//!
//! All take the object as clients see it and the patch as bytes, and return the patched object; decoding, defaulting and
//! validation come after. Differences from the RFCs are upstream's and are named where they occur.

mod convert;
mod json;
mod merge;
mod strategic;

use serde_json::Value;
use wheelhouse_schema::{DecodeError, FieldValidation, Schema};

pub use json::{MAX_COPY_BYTES, MAX_OPERATIONS, json_patch};
pub use merge::{merge_patch, merge_value};
pub use strategic::{strategic_merge, strategic_merge_patch};

use crate::field::{ErrorList, FieldError, Path};
use crate::gotext::{plain, quote};
use crate::gvk::{GroupKind, GroupResource};
use crate::status::Status;

/// Why a patch was refused. [`PatchError::into_status`] is its wire form.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PatchError {
    /// The body is not the JSON that the patch type demands.
    #[error("error decoding patch: {0}")]
    Decode(String),
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// A JSON patch that does not fit the object. Clients see only upstream's general text for a 422.
    #[error("{0}")]
    NotApplicable(String),
    /// A strategic merge patch of the wrong form.
    #[error("{0}")]
    BadRequest(String),
    /// The merged object does not fit its type. `patch` is the patch as Go prints it.
    #[error("patch: Invalid value: {}: {reason}", quote(.patch))]
    Unconvertible { patch: String, reason: String },
    /// What upstream reports as a plain error, with code 500 and no reason.
    #[error("{0}")]
    Plain(String),
}

impl PatchError {
    pub fn into_status(self) -> Status {
        match self {
            Self::Decode(_) | Self::BadRequest(_) => Status::bad_request(self.to_string()),
            Self::TooManyOperations(_) => Status::request_entity_too_large(self),
            Self::NotApplicable(text) => Status::generic_server_response(422, "", &GroupResource::default(), "", &text, 0),
            Self::Unconvertible { patch, reason } => {
                let error = FieldError::invalid(&Path::new("patch"), patch, reason);
                // Upstream knows neither kind nor name here.
                Status::invalid(&GroupKind::default(), "", &ErrorList::from(vec![error]))
            }
            Self::Plain(text) => Status::plain(text),
        }
    }

    /// A strategic merge patch whose result is refused when it is decoded, for example for unknown fields.
    pub fn unconvertible(patch: &Value, reason: impl Into<String>) -> Self {
        Self::Unconvertible { patch: plain(patch), reason: reason.into() }
    }
}

impl From<PatchError> for Status {
    fn from(error: PatchError) -> Self {
        error.into_status()
    }
}

/// Reads any JSON, with Go's words for what is wrong with it.
fn parse_json(bytes: &[u8]) -> Result<Value, PatchError> {
    match wheelhouse_schema::decode(bytes, &Schema::Any, FieldValidation::Ignore) {
        Ok(decoded) => Ok(decoded.value),
        Err(error) => Err(PatchError::Decode(go_text(&error))),
    }
}

fn go_text(error: &DecodeError) -> String {
    error.to_string()
}

/// A JSON object, or the complaint of Go's decoder about `target`.
fn parse_object(bytes: &[u8]) -> Result<serde_json::Map<String, Value>, PatchError> {
    match parse_json(bytes)? {
        Value::Object(map) => Ok(map),
        Value::Null => Err(PatchError::BadRequest("Invalid JSON Patch".to_owned())),
        other => Err(PatchError::Decode(format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", json_kind(&other)))),
    }
}

/// What Go's decoder calls a value.
fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod golden;
