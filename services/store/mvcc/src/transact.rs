//! Transactions: choose the branches, check them, then run them. Nothing can fail once the first record has changed.
//!
//! ```text
//!   Txn --choose--> Chosen (a tree: which branch of every nested transaction) --check--> --run--> TxnOutcome + Batch
//! ```
//!
//! All compares, nested ones too, see the state before the transaction. Operations see what earlier ones of the same transaction did.

use crate::command::{Op, OpOutcome, Outcome, Put, Refusal, Txn, TxnOutcome};
use crate::snapshot::Snapshot;
use crate::state::{Applied, Change, State};

impl State {
    pub(crate) fn transact(&mut self, txn: &Txn) -> Applied {
        let chosen = match self.root.prepare(txn) {
            Ok(chosen) => chosen,
            Err(refusal) => return refusal.into(),
        };
        // An explicit revision means the state before this transaction at the newest, so a root of it is kept aside.
        let before = chosen.any_op(&|op| matches!(op, Op::Range(range) if range.revision != 0)).then(|| self.root.clone());
        let mut change = Change::begin(&mut self.root);
        let mut outcome = run(&chosen, &mut change, before.as_ref());
        let batch = change.finish();
        outcome.revision = self.root.revision;
        Applied { outcome: Outcome::Txn(outcome), batch }
    }
}

impl Snapshot {
    /// Answers a transaction that changes nothing ([`Txn::is_read_only`]) from this root, as applying it would.
    pub fn transact_read_only(&self, txn: &Txn) -> Result<TxnOutcome, Refusal> {
        let chosen = self.prepare(txn)?;
        let responses = chosen.ops.iter().filter_map(|op| if let Op::Range(range) = op { Some(self.read(range)) } else { None });
        Ok(TxnOutcome { succeeded: chosen.succeeded, revision: self.revision, responses: responses.collect::<Result<_, _>>()? })
    }

    fn prepare<'t>(&self, txn: &'t Txn) -> Result<Chosen<'t>, Refusal> {
        txn.validate()?;
        let chosen = Chosen::by(self, txn);
        // etcd checks every put before it checks any range.
        chosen.try_ops(&|op| if let Op::Put(put) = op { self.check_put(put) } else { Ok(()) })?;
        chosen.try_ops(&|op| if let Op::Range(range) = op { self.check_revision(range.revision) } else { Ok(()) })?;
        Ok(chosen)
    }

    fn check_put(&self, put: &Put) -> Result<(), Refusal> {
        if (put.ignore_value || put.ignore_lease) && !self.live.contains_key(&put.key) {
            return Err(Refusal::KeyNotFound);
        }
        if put.lease != 0 && !self.leases.contains_key(&put.lease) {
            return Err(Refusal::LeaseNotFound(put.lease));
        }
        Ok(())
    }
}

/// A transaction with its branch chosen, and so for every transaction nested in that branch.
struct Chosen<'t> {
    succeeded: bool,
    ops: &'t [Op],
    /// One per [`Op::Txn`] in `ops`, in order.
    nested: Vec<Chosen<'t>>,
}

impl<'t> Chosen<'t> {
    fn by(root: &Snapshot, txn: &'t Txn) -> Self {
        let succeeded = root.holds(&txn.compare);
        let ops = if succeeded { &txn.success } else { &txn.failure };
        let nested = ops.iter().filter_map(|op| if let Op::Txn(txn) = op { Some(Self::by(root, txn)) } else { None }).collect();
        Self { succeeded, ops, nested }
    }

    fn try_ops(&self, check: &impl Fn(&Op) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let mut nested = self.nested.iter();
        self.ops.iter().try_for_each(|op| match op {
            Op::Txn(_) => nested.next().map_or(Ok(()), |chosen| chosen.try_ops(check)),
            op => check(op),
        })
    }

    fn any_op(&self, wanted: &impl Fn(&Op) -> bool) -> bool {
        self.ops.iter().any(wanted) || self.nested.iter().any(|chosen| chosen.any_op(wanted))
    }
}

fn run(chosen: &Chosen<'_>, change: &mut Change<'_>, before: Option<&Snapshot>) -> TxnOutcome {
    let mut nested = chosen.nested.iter();
    let responses = chosen.ops.iter().map(|op| match op {
        Op::Range(range) => {
            let before = before.filter(|_| range.revision != 0);
            before.map_or_else(|| change.root.read_here(range), |before| before.read(range).expect("its revision was checked against this root"))
        }
        Op::Put(put) => {
            let prev = change.put(&put.key, (!put.ignore_value).then_some(&put.value), (!put.ignore_lease).then_some(put.lease));
            OpOutcome::Put { prev: prev.filter(|_| put.prev_kv) }
        }
        Op::Delete(delete) => {
            let prevs = change.delete(&delete.range);
            OpOutcome::Delete { deleted: prevs.len(), prevs: if delete.prev_kv { prevs } else { Vec::new() } }
        }
        Op::Txn(_) => OpOutcome::Txn(run(nested.next().expect("one per nested transaction"), change, before)),
    });
    let responses = responses.collect();
    // A nested transaction reports the revision as it stood when it ended.
    TxnOutcome { succeeded: chosen.succeeded, revision: change.root.revision + u64::from(change.changed()), responses }
}
