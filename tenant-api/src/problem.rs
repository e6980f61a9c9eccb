//! Errors as RFC 9457 problem documents. `type` is a stable URI reference that programs may test; `detail` is for people and says what to do next.

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use wheelhouse_client::ClientError;

#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub status: StatusCode,
    /// The last part of `type`, e.g. `quota-exceeded`.
    pub kind: &'static str,
    pub title: &'static str,
    pub detail: String,
    /// Which fields of the body are wrong: `{"field": "replicas", "message": "…"}`.
    pub errors: Vec<Value>,
    pub retry_after: Option<u32>,
}

impl Problem {
    pub fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, kind, title, detail: detail.into(), errors: Vec::new(), retry_after: None }
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "The request is malformed", detail)
    }

    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let mut problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "The request has invalid fields", format!("{field}: {message}"));
        problem.errors.push(json!({"field": field, "message": message}));
        problem
    }

    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "No valid API key", detail)
    }

    pub fn not_found(what: &str, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", format!("there is no {what} {name:?}"))
    }

    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "It conflicts with what is there", detail)
    }

    pub fn unavailable(detail: impl Into<String>) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The service is not available right now", detail);
        problem.retry_after = Some(2);
        problem
    }

    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "An internal error", detail)
    }

    pub fn suspended() -> Self {
        let detail = "this tenant is suspended: its data is kept, and nothing is served until the operator resumes it";
        Self::new(StatusCode::FORBIDDEN, "suspended", "The tenant is suspended", detail)
    }

    pub fn too_large(limit: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large", format!("a body may have {limit} bytes"))
    }

    pub fn too_many(detail: impl Into<String>, retry_after: u32) -> Self {
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests", detail);
        problem.retry_after = Some(retry_after);
        problem
    }

    /// The problem behind an answer of the system API, or of a tenant's cluster, to a request about `what`.
    pub fn from_client(what: &str, name: &str, error: &ClientError) -> Self {
        match error.code() {
            404 => Self::not_found(what, name),
            409 if error.is_already_exists() => Self::conflict(format!("a {what} named {name:?} exists already")),
            409 => Self::conflict("it was changed by somebody else at the same moment; read it again and repeat the change"),
            422 => match error {
                ClientError::Status(status) => {
                    let causes = status.details.iter().flat_map(|details| &details.causes);
                    let errors: Vec<Value> = causes.map(|cause| json!({"field": public_field(&cause.field), "message": cause.message})).collect();
                    let texts: Vec<String> = errors
                        .iter()
                        .map(|e| format!("{}: {}", e["field"].as_str().unwrap_or_default(), e["message"].as_str().unwrap_or_default()))
                        .collect();
                    let mut problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "The request has invalid fields", texts.join("; "));
                    problem.errors = errors;
                    problem
                }
                _ => Self::bad_request(error.to_string()),
            },
            403 => Self::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed", error.to_string()),
            429 => Self::too_many("the control plane is busy", 1),
            0 | 503 | 504 => {
                tracing::warn!(error = error as &dyn std::error::Error, what, name, "the control plane did not answer");
                Self::unavailable(format!("the control plane that holds the {what} did not answer; try again"))
            }
            _ => {
                tracing::error!(error = error as &dyn std::error::Error, what, name, "unexpected answer");
                Self::internal(format!("the {what} could not be handled; the operators' log has the reason"))
            }
        }
    }
}

/// `spec.replicas` of the Cluster object is `replicas` of the API.
fn public_field(path: &str) -> &str {
    path.strip_prefix("spec.").or_else(|| path.strip_prefix("metadata.")).unwrap_or(path)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": format!("https://wheelhouse.dev/problems/{}", self.kind),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if !self.errors.is_empty() {
            body["errors"] = Value::Array(self.errors);
        }
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"wheelhouse\""));
        }
        response
    }
}

pub async fn no_route(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no-route", "Not found", format!("there is no route {}; /openapi.json lists all", uri.path()))
}

pub async fn no_method(uri: Uri) -> Problem {
    let detail = format!("{} does not take this method; /openapi.json lists those it takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail)
}
