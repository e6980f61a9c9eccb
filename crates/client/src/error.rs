//! What can go wrong with a request.

use wheelhouse_meta::Status;

/// No answer came. Whether the request took effect is unknown unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Certainly not sent.
    #[error("cannot connect to {address}")]
    Connect {
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the connection to {address} broke before an answer came")]
    Broken {
        address: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("no answer within {0:?}")]
    Timeout(std::time::Duration),
    #[error("the API server is shutting down")]
    Stopped,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The API server answered with a `Status`.
    #[error("{}", .0.message)]
    Status(Box<Status>),
    /// The answer was not what the request asked for.
    #[error("the answer to {method} {path} does not decode")]
    Decode {
        method: http::Method,
        path: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the answer to {method} {path} is not a Status: HTTP {code}: {text}")]
    Foreign { method: http::Method, path: String, code: u16, text: String },
    #[error("the body of the answer broke off")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the request is not valid")]
    Request(#[source] http::Error),
}

impl ClientError {
    /// HTTP status code of the answer; 0 when none came.
    pub fn code(&self) -> u16 {
        match self {
            ClientError::Status(status) => status.code,
            ClientError::Foreign { code, .. } => *code,
            _ => 0,
        }
    }

    /// `Status.reason`, empty when there is none.
    pub fn reason(&self) -> String {
        match self {
            ClientError::Status(status) => status.reason.clone(),
            _ => String::new(),
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    pub fn is_conflict(&self) -> bool {
        self.code() == 409 && self.reason() == "Conflict"
    }

    pub fn is_already_exists(&self) -> bool {
        self.code() == 409 && self.reason() == "AlreadyExists"
    }

    /// A watch's history is gone: list again.
    pub fn is_gone(&self) -> bool {
        self.code() == 410
    }
}
