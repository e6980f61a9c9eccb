//! Errors as people meet them: what went wrong, what to do next, and an exit code for scripts.

use std::process::ExitCode;

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The tenant API said no.
    #[error("{detail}")]
    Refused { code: u16, detail: String },
    #[error("cannot reach {address}: {reason}\n  is the service running? `wheelhouse up` starts one on this machine; --endpoint names another")]
    Unreachable { address: String, reason: String },
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
    #[error("{what} after {seconds} s; it goes on in the background")]
    TimedOut { what: String, seconds: u64 },
    #[error("{path}: {source}")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

impl CliError {
    pub fn report(&self) {
        eprintln!("error: {self}");
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            CliError::Usage(_) => 2,
            CliError::Refused { code: 404, .. } => 3,
            CliError::Refused { code: 401 | 403, .. } => 4,
            CliError::TimedOut { .. } => 5,
            _ => 1,
        })
    }

    pub fn file(path: &std::path::Path, source: std::io::Error) -> Self {
        CliError::File { path: path.display().to_string(), source }
    }
}
