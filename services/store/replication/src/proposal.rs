//! What one log entry carries: the commands of one or many clients, sealed by the leader that proposes them.
//!
//! Sealing once, at the leader, spares the followers the work: they store and pass on the sealed bytes, and open them only to apply.
//! The leader keeps the opened commands beside the bytes, so it never opens its own.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use wheelhouse_mvcc::Command;
use wheelhouse_mvcc::codec::{decode_command, encode_command};
use wheelhouse_rocks::Sealer;
use wheelhouse_rocks::codec::{Reader, Writer};

/// A proposal is bound to its cluster by the key and to its use by this; its place in the log is chosen after it is sealed.
const PLACE: &[u8] = b"proposal";

const VERSION: u8 = 1;

#[derive(Clone)]
pub struct Proposal {
    sealed: Bytes,
    opened: Option<Arc<[Command]>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProposalError {
    #[error(transparent)]
    Open(#[from] wheelhouse_rocks::OpenError),
    #[error(transparent)]
    Decode(#[from] wheelhouse_rocks::codec::DecodeError),
    #[error(transparent)]
    Command(#[from] wheelhouse_mvcc::codec::CodecError),
    #[error("encoded by a newer program: version {0}")]
    Version(u8),
}

impl Proposal {
    pub fn seal(sealer: &Sealer, commands: Vec<Command>) -> Self {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u64(commands.len() as u64);
        let mut body = Vec::new();
        for command in &commands {
            body.clear();
            encode_command(command, &mut body);
            w.bytes(&body);
        }
        Self { sealed: sealer.seal(PLACE, &w.0).into(), opened: Some(commands.into()) }
    }

    /// From the log or a peer.
    pub fn from_sealed(sealed: Bytes) -> Self {
        Self { sealed, opened: None }
    }

    pub fn sealed(&self) -> &Bytes {
        &self.sealed
    }

    pub fn open(&self, sealer: &Sealer) -> Result<Arc<[Command]>, ProposalError> {
        if let Some(opened) = &self.opened {
            return Ok(opened.clone());
        }
        let mut r = Reader::new(sealer.open(PLACE, &self.sealed)?);
        match r.u8()? {
            VERSION => {}
            other => return Err(ProposalError::Version(other)),
        }
        let commands = (0..r.count()?).map(|_| Ok(decode_command(&r.bytes()?)?)).collect::<Result<Vec<_>, ProposalError>>()?;
        r.finish()?;
        Ok(commands.into())
    }
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} bytes)", self.sealed.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
