//! What clients noted while they worked.

use std::collections::BTreeMap;

use bytes::Bytes;
use wheelhouse_base::{Revision, Term};

use crate::Step;

/// Everything that clients saw, with a clock that orders what began and ended.
#[derive(Debug, Default)]
pub struct Seen {
    clock: u64,
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    /// What each watch told, over all its connections.
    pub watched: BTreeMap<String, Vec<Step>>,
    /// What controllers wrote about the leadership that they acted under, in the order of the store.
    pub claims: Vec<(Revision, Claim)>,
    /// Broken promises noticed on the way.
    pub broken: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Write {
    pub invoked: u64,
    pub completed: u64,
    /// For people.
    pub name: String,
    pub key: Bytes,
    /// Unlike any other write's; `None` deletes the key.
    pub value: Option<Bytes>,
    /// The modification revision that it required: 0 for a key that must not be there.
    pub compare: Option<Revision>,
    pub mark: Mark,
    pub result: WriteResult,
}

/// How a write is recognised in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It also puts this key, which nobody else writes.
    Key(Bytes),
    /// By its own value; a delete by what it compared with, so that an acknowledged one can be told and a refused one cannot.
    Itself,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// Acknowledged; at this revision, where the answer says so.
    Done(Option<Revision>),
    /// The compare did not hold at this revision.
    Lost(Revision),
    /// Certainly not done.
    NotDone,
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Read {
    pub invoked: u64,
    pub completed: u64,
    /// The state's revision, where the answer says so.
    pub revision: Option<Revision>,
    pub key: Bytes,
    /// The value and its modification revision.
    pub found: Option<(Bytes, Revision)>,
}

/// A controller's word: who leads which term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub holder: String,
    pub term: Term,
}

impl Seen {
    /// The time now; every call answers a later one.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// How much of what there was, for people.
    pub fn summary(&self) -> String {
        let count = |wanted: fn(&WriteResult) -> bool| self.writes.iter().filter(|write| wanted(&write.result)).count();
        format!(
            "writes: {} done, {} lost, {} refused, {} unknown; {} reads, {} claims of leadership",
            count(|r| matches!(r, WriteResult::Done(_))),
            count(|r| matches!(r, WriteResult::Lost(_))),
            count(|r| matches!(r, WriteResult::NotDone)),
            count(|r| matches!(r, WriteResult::Unknown)),
            self.reads.len(),
            self.claims.len()
        )
    }
}
