//! `meta.v1 Status`: every answer that is not an object, and every API error.
//!
//! [`Status`] is the one error type of the API: a handler that fails returns one, and its `code` is the HTTP status. The constructors
//! in `errors` hold upstream's reasons, codes, messages and details; nothing else in the house writes them.

mod errors;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use errors::{CONTINUE_TOO_OLD, INCONSISTENT_CONTINUE_TOO_OLD, OPTIMISTIC_LOCK, RESOURCE_VERSION_TOO_LARGE, RESOURCE_VERSION_TOO_OLD, Reason};

/// A `meta.v1 Status`, serialised with upstream's field order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(default = "Status::kind_name")]
    pub kind: String,
    #[serde(default = "Status::api_version")]
    pub api_version: String,
    #[serde(default)]
    pub metadata: ListMeta,
    /// `Success` or `Failure`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Empty when the server has no machine-readable reason, as for plain internal errors.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status.
    #[serde(default, skip_serializing_if = "is_zero_code")]
    pub code: u16,
}

/// What a Status is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource for most errors, the kind for `Invalid`: upstream mixes them and so do the answers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Also sent as the `Retry-After` header.
    #[serde(skip_serializing_if = "is_zero_seconds")]
    pub retry_after_seconds: u32,
}

/// One reason out of several for a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// The `metadata` of lists and of a Status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

impl Status {
    fn kind_name() -> String {
        "Status".to_owned()
    }

    fn api_version() -> String {
        "v1".to_owned()
    }

    /// A failure with the given parts. Prefer a named constructor.
    pub fn failure(code: u16, reason: Reason, message: impl Into<String>, details: Option<StatusDetails>) -> Self {
        Self {
            kind: Self::kind_name(),
            api_version: Self::api_version(),
            metadata: ListMeta::default(),
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.as_str().to_owned(),
            details,
            code,
        }
    }

    /// The answer to a delete that left nothing to show, or to a request with no object of its own. Upstream sends no code in it.
    pub fn success(details: Option<StatusDetails>) -> Self {
        Self {
            kind: Self::kind_name(),
            api_version: Self::api_version(),
            metadata: ListMeta::default(),
            status: "Success".to_owned(),
            message: String::new(),
            reason: String::new(),
            details,
            code: 0,
        }
    }

    pub fn is_failure(&self) -> bool {
        self.status == "Failure"
    }

    /// Whether this is a failure with the given reason.
    pub fn is(&self, reason: Reason) -> bool {
        self.is_failure() && self.reason == reason.as_str()
    }

    /// What `Retry-After` should say, if anything.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details.as_ref().map(|d| d.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// Compact JSON, as sent.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a Status has only string keys and plain values")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

fn is_zero_code(code: &u16) -> bool {
    *code == 0
}

fn is_zero_seconds(seconds: &u32) -> bool {
    *seconds == 0
}

#[cfg(test)]
mod golden;
