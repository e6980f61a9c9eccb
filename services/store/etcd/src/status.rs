//! The one table from what went wrong here to what an etcd client is told. Clients compare the messages, so they are etcd's to the letter.

use tonic::{Code, Status};
use wheelhouse_mvcc::Refusal;
use wheelhouse_store::{CommitError, ReadError};

/// Everything that a request can fail with.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error("more operations than {0}")]
    TooManyOps(usize),
    #[error("unknown sort order or target")]
    InvalidSortOption,
    #[error("an operation without a request")]
    EmptyOperation,
    #[error("the time to live is over {0} s")]
    TtlTooLarge(i64),
    /// The command was applied, but answered with another command's outcome.
    #[error("the store answers another question")]
    WrongOutcome,
    /// A hosted cluster's state is changed through the Kubernetes API only.
    #[error("read only")]
    ReadOnly,
    #[error("{0}")]
    Unsupported(&'static str),
}

impl ApiError {
    fn code_and_message(&self) -> (Code, &'static str) {
        match self {
            Self::Refused(refusal) => refused(refusal),
            Self::Read(ReadError::Unavailable) | Self::Commit(CommitError::Unavailable) => (Code::Unavailable, "etcdserver: no leader"),
            Self::Read(ReadError::Behind { .. }) | Self::Commit(CommitError::Unknown(_)) => (Code::Unavailable, "etcdserver: request timed out"),
            Self::Read(ReadError::Stopped) | Self::Commit(CommitError::Stopped) => (Code::Unavailable, "etcdserver: server stopped"),
            Self::Commit(CommitError::NotLeader) => (Code::FailedPrecondition, "etcdserver: not leader"),
            Self::Commit(CommitError::Overloaded) => (Code::ResourceExhausted, "etcdserver: too many requests"),
            Self::Commit(CommitError::DiskFull) => (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
            Self::Commit(CommitError::TooLarge { .. }) => (Code::InvalidArgument, "etcdserver: request is too large"),
            Self::TooManyOps(_) => (Code::InvalidArgument, "etcdserver: too many operations in txn request"),
            Self::InvalidSortOption => (Code::InvalidArgument, "etcdserver: invalid sort option"),
            Self::EmptyOperation => (Code::InvalidArgument, "etcdserver: key not found"),
            Self::TtlTooLarge(_) => (Code::OutOfRange, "etcdserver: too large lease TTL"),
            Self::WrongOutcome => (Code::Internal, "etcdserver: the store answered another command"),
            Self::ReadOnly => (Code::PermissionDenied, "etcdserver: permission denied: use the Kubernetes API"),
            Self::Unsupported(what) => (Code::Unimplemented, what),
        }
    }
}

fn refused(refusal: &Refusal) -> (Code, &'static str) {
    match refusal {
        Refusal::Compacted { .. } => (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
        Refusal::FutureRevision { .. } => (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
        Refusal::LeaseNotFound(_) => (Code::NotFound, "etcdserver: requested lease not found"),
        Refusal::LeaseExists(_) => (Code::FailedPrecondition, "etcdserver: lease already exists"),
        Refusal::KeyNotFound => (Code::InvalidArgument, "etcdserver: key not found"),
        Refusal::DuplicateKey => (Code::InvalidArgument, "etcdserver: duplicate key given in txn request"),
        Refusal::EmptyKey => (Code::InvalidArgument, "etcdserver: key is not provided"),
        Refusal::ValueProvided => (Code::InvalidArgument, "etcdserver: value is provided"),
        Refusal::LeaseProvided => (Code::InvalidArgument, "etcdserver: lease is provided"),
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let (code, message) = error.code_and_message();
        Self::new(code, message)
    }
}
