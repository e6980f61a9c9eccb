//! What all services share: the store, who this replica is, and what may leave or change.

use std::sync::Arc;

use wheelhouse_base::Revision;
use wheelhouse_mvcc::{Command, Outcome};
use wheelhouse_store::Store;

use crate::convert::KvCopy;
use crate::generated::etcdserverpb as pb;
use crate::status::ApiError;

/// How the cluster presents itself to etcd's clients.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    pub cluster_id: u64,
    pub members: Vec<Member>,
}

/// One replica in `MemberList`.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// The replica's id.
    pub id: u64,
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    pub learner: bool,
}

#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) copy: KvCopy,
    pub(crate) writable: bool,
}

impl Backend {
    pub(crate) fn header(&self, revision: Revision) -> pb::ResponseHeader {
        pb::ResponseHeader {
            cluster_id: self.identity.cluster_id,
            member_id: self.store.replica().0,
            revision: i64::try_from(revision).unwrap_or(i64::MAX),
            raft_term: self.store.leadership().borrow().term,
        }
    }

    /// The header of an answer that is about no revision in particular.
    pub(crate) fn current_header(&self) -> pb::ResponseHeader {
        self.header(self.store.snapshot().revision())
    }

    pub(crate) fn check_writable(&self) -> Result<(), ApiError> {
        if self.writable { Ok(()) } else { Err(ApiError::ReadOnly) }
    }

    pub(crate) async fn commit(&self, command: Command) -> Result<Outcome, ApiError> {
        self.check_writable()?;
        match self.store.commit(command).await? {
            Outcome::Failed(refusal) => Err(refusal.into()),
            outcome => Ok(outcome),
        }
    }
}
