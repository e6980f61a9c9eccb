//! Constructors for every API error, with upstream's reason, code, message and details.

use std::fmt;

use super::{Status, StatusCause, StatusDetails};
use crate::field::ErrorList;
use crate::gotext::quote;
use crate::gvk::{GroupKind, GroupResource};

/// The message part of a conflict found by comparing resource versions.
pub const OPTIMISTIC_LOCK: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// A continue token whose revision is compacted; the answer carries a fresh token in `metadata.continue`.
pub const CONTINUE_TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the \
provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was \
returned and now may show up in the list.";

/// An inconsistent continue token that is itself too old.
pub const INCONSISTENT_CONTINUE_TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You must \
start a new list without the continue parameter.";

/// A list at an exact revision that is compacted.
pub const RESOURCE_VERSION_TOO_OLD: &str = "The resourceVersion for the provided list is too old.";

/// The cause's reason when a replica is behind the revision asked for; client-go retries on it.
pub const RESOURCE_VERSION_TOO_LARGE: &str = "ResourceVersionTooLarge";

/// Seconds a client waits before it retries after `ResourceVersionTooLarge`.
const TOO_LARGE_RETRY_SECONDS: u32 = 1;

/// Machine-readable reasons of a failure (`metav1.StatusReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The empty reason.
    Unknown,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    ServerTimeout,
    StoreReadError,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    Expired,
    ServiceUnavailable,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Invalid => "Invalid",
            Self::ServerTimeout => "ServerTimeout",
            Self::StoreReadError => "StoreReadError",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }
}

fn details(resource: &GroupResource, name: &str) -> StatusDetails {
    StatusDetails { name: name.to_owned(), group: resource.group.clone(), kind: resource.resource.clone(), ..StatusDetails::default() }
}

impl Status {
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, Reason::BadRequest, message, None)
    }

    /// The body of every 401. Upstream never says more.
    pub fn unauthorized() -> Self {
        Self::failure(401, Reason::Unauthorized, "Unauthorized", None)
    }

    /// `pods "x" is forbidden: WHY`; without a name or a resource the sentence shrinks accordingly.
    pub fn forbidden(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = if resource.resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Self::failure(403, Reason::Forbidden, message, Some(details(resource, name)))
    }

    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::failure(404, Reason::NotFound, format!("{resource} {} not found", quote(name)), Some(details(resource, name)))
    }

    /// A path that no resource answers.
    pub fn path_not_found() -> Self {
        Self::failure(404, Reason::NotFound, "the server could not find the requested resource", Some(StatusDetails::default()))
    }

    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::failure(409, Reason::AlreadyExists, format!("{resource} {} already exists", quote(name)), Some(details(resource, name)))
    }

    /// Every generated name of a `generateName` was taken.
    pub fn generate_name_conflict(resource: &GroupResource, name: &str, retry_after_seconds: u32) -> Self {
        let message = format!("{resource} {} already exists, the server was not able to generate a unique name for the object", quote(name));
        let details = StatusDetails { retry_after_seconds, ..details(resource, name) };
        Self::failure(409, Reason::AlreadyExists, message, Some(details))
    }

    pub fn conflict(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::failure(409, Reason::Conflict, message, Some(details(resource, name)))
    }

    /// The resource version sent is not the object's.
    pub fn optimistic_lock(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(resource, name, OPTIMISTIC_LOCK)
    }

    /// A UID precondition that does not hold, in the storage layer's words. `key` is the storage key of the object.
    pub fn uid_precondition(resource: &GroupResource, name: &str, key: &str, wanted: &str, found: &str) -> Self {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
             precondition: {wanted}, UID in object meta: {found}"
        );
        Self::conflict(resource, name, why)
    }

    /// Server-side apply met fields of other managers.
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<StatusCause>) -> Self {
        Self::failure(409, Reason::Conflict, message, Some(StatusDetails { causes, ..StatusDetails::default() }))
    }

    pub fn gone(message: impl Into<String>) -> Self {
        Self::failure(410, Reason::Gone, message, None)
    }

    /// A resource version or token that history no longer covers.
    pub fn resource_expired(message: impl Into<String>) -> Self {
        Self::failure(410, Reason::Expired, message, None)
    }

    /// A watch asked to start before the oldest retained revision.
    pub fn watch_too_old(requested: u64, oldest: u64) -> Self {
        Self::resource_expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// A continue token whose revision is compacted; `fresh` resumes at the same key and the newest revision.
    pub fn continue_expired(fresh: impl Into<String>) -> Self {
        let mut status = Self::resource_expired(CONTINUE_TOO_OLD);
        status.metadata.continue_token = fresh.into();
        status
    }

    /// Validation failed. `kind` is the kind, not the resource.
    pub fn invalid(kind: &GroupKind, name: &str, errors: &ErrorList) -> Self {
        let causes = errors.iter().map(|e| StatusCause { reason: e.kind.reason().to_owned(), message: e.body(), field: e.field.clone() }).collect();
        let aggregate = errors.aggregate();
        let message = if aggregate.is_empty() {
            format!("{kind} {} is invalid", quote(name))
        } else {
            format!("{kind} {} is invalid: {aggregate}", quote(name))
        };
        let details = StatusDetails { name: name.to_owned(), group: kind.group.clone(), kind: kind.kind.clone(), causes, ..StatusDetails::default() };
        Self::failure(422, Reason::Invalid, message, Some(details))
    }

    /// The resource exists but does not offer the verb (`create`, `deletecollection` …).
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind {}", quote(&resource.to_string()));
        Self::failure(405, Reason::MethodNotAllowed, message, Some(details(resource, "")))
    }

    /// The path takes no such HTTP method.
    pub fn method_not_allowed() -> Self {
        Self::failure(
            405,
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
            Some(StatusDetails::default()),
        )
    }

    /// No media type in `Accept` can be served.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        Self::not_acceptable_because(format!("only the following media types are accepted: {}", accepted.join(", ")))
    }

    pub fn not_acceptable_because(message: impl Into<String>) -> Self {
        Self::failure(406, Reason::NotAcceptable, message, None)
    }

    /// The router's own 406, which lists the representations on a second paragraph.
    pub fn not_acceptable_by_router(available: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        Self::failure(406, Reason::NotAcceptable, message, Some(StatusDetails::default()))
    }

    /// The body's media type is not one of `accepted`.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let list = accepted.join(", ");
        let message = format!("the body of the request was in an unknown format - accepted media types include: {list}");
        Self::failure(415, Reason::UnsupportedMediaType, message, None)
    }

    /// The router's own 415, for a content type no route of the path consumes.
    pub fn unsupported_media_type_by_router() -> Self {
        Self::failure(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type", Some(StatusDetails::default()))
    }

    pub fn request_entity_too_large(why: impl fmt::Display) -> Self {
        Self::failure(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {why}"), None)
    }

    /// The caller should come back after the given seconds; 0 leaves the time open.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let details = StatusDetails { retry_after_seconds, ..StatusDetails::default() };
        Self::failure(429, Reason::TooManyRequests, message, Some(details))
    }

    /// The operation was refused for now; `action` is the verb as the message names it. The code is 500, as upstream's.
    pub fn server_timeout(resource: &GroupResource, action: &str, retry_after_seconds: u32) -> Self {
        let message = format!("The {action} operation against {resource} could not be completed at this time, please try again.");
        let details = StatusDetails { retry_after_seconds, ..details(resource, action) };
        Self::failure(500, Reason::ServerTimeout, message, Some(details))
    }

    /// The outcome is unknown: the write may still happen.
    pub fn timeout(why: impl fmt::Display, retry_after_seconds: u32) -> Self {
        let details = StatusDetails { retry_after_seconds, ..StatusDetails::default() };
        Self::failure(504, Reason::Timeout, format!("Timeout: {why}"), Some(details))
    }

    /// A replica did not reach the revision asked for in time.
    pub fn resource_version_too_large(requested: u64, current: u64) -> Self {
        let mut status = Self::timeout(format!("Too large resource version: {requested}, current: {current}"), TOO_LARGE_RETRY_SECONDS);
        if let Some(details) = &mut status.details {
            details.causes.push(StatusCause {
                reason: RESOURCE_VERSION_TOO_LARGE.to_owned(),
                message: "Too large resource version".to_owned(),
                field: String::new(),
            });
        }
        status
    }

    pub fn internal_error(why: impl fmt::Display) -> Self {
        let cause = StatusCause { message: why.to_string(), ..StatusCause::default() };
        let details = StatusDetails { causes: vec![cause], ..StatusDetails::default() };
        Self::failure(500, Reason::InternalError, format!("Internal error occurred: {why}"), Some(details))
    }

    /// An error that upstream never wrapped: code 500, no reason, no details.
    pub fn plain(message: impl Into<String>) -> Self {
        Self::failure(500, Reason::Unknown, message, None)
    }

    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, Reason::ServiceUnavailable, message, None)
    }

    /// What a client makes of an HTTP answer that held no Status. `resource` and `name` may be empty.
    pub fn generic_server_response(
        code: u16,
        verb: &str,
        resource: &GroupResource,
        name: &str,
        server_message: &str,
        retry_after_seconds: u32,
    ) -> Self {
        let (reason, mut message) = generic_text(code, verb, server_message);
        let verb = verb.to_lowercase();
        if !resource.is_empty() && !name.is_empty() {
            message = format!("{message} ({verb} {resource} {name})");
        } else if !resource.is_empty() {
            message = format!("{message} ({verb} {resource})");
        }
        let details = StatusDetails { retry_after_seconds, ..details(resource, name) };
        Self::failure(code, reason, message, Some(details))
    }

    /// Adds the causes that a caller has beyond the constructor's own.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        self.details.get_or_insert_default().causes.push(StatusCause {
            reason: reason.to_owned(),
            message: message.to_owned(),
            field: field.to_owned(),
        });
        self
    }
}

fn generic_text(code: u16, verb: &str, server_message: &str) -> (Reason, String) {
    let (reason, text) = match code {
        409 if verb == "POST" => (Reason::AlreadyExists, "the server reported a conflict"),
        409 => (Reason::Conflict, "the server reported a conflict"),
        404 => (Reason::NotFound, "the server could not find the requested resource"),
        400 => (Reason::BadRequest, "the server rejected our request for an unknown reason"),
        401 => (Reason::Unauthorized, "the server has asked for the client to provide credentials"),
        403 => (Reason::Forbidden, server_message),
        406 if server_message.is_empty() || server_message == "unknown" => {
            (Reason::NotAcceptable, "the server was unable to respond with a content type that the client supports")
        }
        406 => (Reason::NotAcceptable, server_message),
        415 => (Reason::UnsupportedMediaType, server_message),
        405 => (Reason::MethodNotAllowed, "the server does not allow this method on the requested resource"),
        422 => (Reason::Invalid, "the server rejected our request due to an error in our request"),
        503 => (Reason::ServiceUnavailable, "the server is currently unable to handle the request"),
        504 => (Reason::Timeout, "the server was unable to return a response in the time allotted, but may still be processing the request"),
        429 => (Reason::TooManyRequests, "the server has received too many requests and has asked us to try again later"),
        code if code >= 500 => {
            let text = format!("an error on the server ({}) has prevented the request from succeeding", quote(server_message));
            return (Reason::InternalError, text);
        }
        code => {
            let text = format!("the server responded with the status code {code} but did not return more information");
            return (Reason::Unknown, text);
        }
    };
    (reason, text.to_owned())
}
