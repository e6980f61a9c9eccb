//! Why the store did not do it. Each variant tells the caller whether it may have happened.

use wheelhouse_base::Revision;

#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    #[error("no leader with a quorum is reachable")]
    Unavailable,
    #[error("this replica is at revision {current}, behind the requested {requested}")]
    Behind { requested: Revision, current: Revision },
    #[error("this replica has stopped")]
    Stopped,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// Certainly not done.
    #[error("no leader with a quorum is reachable")]
    Unavailable,
    /// Certainly not done: the fence names another leadership than the one that could propose it.
    #[error("this replica does not lead the term that the command is fenced to")]
    NotLeader,
    /// May or may not take effect: never retried inside.
    #[error("the outcome is unknown: {0}")]
    Unknown(&'static str),
    /// Certainly not done.
    #[error("too many writes are waiting")]
    Overloaded,
    /// Certainly not done.
    #[error("the host is out of disk space: deletes are served, other writes are refused")]
    DiskFull,
    #[error("a value of {size} bytes is over the limit of {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error("this replica has stopped")]
    Stopped,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchError {
    /// The history after the requested revision is gone; list again and watch from there.
    #[error("required revision {requested} has been compacted; the oldest is {compacted}")]
    Compacted { requested: Revision, compacted: Revision },
    #[error("the watcher fell behind the retained history")]
    Lagged,
    #[error("this replica has stopped")]
    Stopped,
}
