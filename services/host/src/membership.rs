//! Moving a group's Raft membership to the ordered members. Decided here, purely, one step at a time; carried out by the group's leader.
//!
//! Add, then promote, then remove: at every moment the old quorum or a larger one holds the data. A learner is promoted when it is close
//! behind, a voter removed only when everybody who shall stay votes already; that the remaining quorum answers is proven by the store itself.

use wheelhouse_base::{HostName, ReplicaId};
use wheelhouse_kinds::fleet::cluster::Member as Ordered;
use wheelhouse_replication::{Member, MembershipError, PROMOTE_WITHIN, ReplicatedStore, Role};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    AddLearner(ReplicaId, HostName),
    Promote(ReplicaId),
    /// A learner is on its way; nothing to do but wait for it.
    WaitFor(ReplicaId),
    Remove(ReplicaId),
}

/// What to do next; `None` when the membership is as ordered. An empty order is none: a group never removes itself.
pub fn next(current: &[Member], ordered: &[Ordered]) -> Option<Step> {
    if ordered.is_empty() {
        return None;
    }
    let found = |id: ReplicaId| current.iter().find(|m| m.replica == id);
    if let Some(missing) = ordered.iter().find(|o| found(o.replica_id).is_none()) {
        return Some(Step::AddLearner(missing.replica_id, missing.host.clone()));
    }
    let learners: Vec<&Member> = current.iter().filter(|m| m.role == Role::Learner && ordered.iter().any(|o| o.replica_id == m.replica)).collect();
    if let Some(close) = learners.iter().find(|m| m.lag.is_some_and(|lag| lag <= PROMOTE_WITHIN)) {
        return Some(Step::Promote(close.replica));
    }
    if let Some(waiting) = learners.first() {
        return Some(Step::WaitFor(waiting.replica));
    }
    let former = current.iter().find(|m| !ordered.iter().any(|o| o.replica_id == m.replica))?;
    Some(Step::Remove(former.replica))
}

/// Carries one step out.
pub async fn carry_out(store: &ReplicatedStore, step: &Step) -> Result<(), MembershipError> {
    match step {
        Step::AddLearner(replica, host) => store.add_learner(*replica, host.clone()).await,
        Step::Promote(replica) => store.promote(*replica).await,
        Step::WaitFor(_) => Ok(()),
        Step::Remove(replica) => store.remove(*replica).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `1v` votes, `2l` is a learner that is close, `3L` one that is far behind.
    fn current(text: &str) -> Vec<Member> {
        let member = |word: &str| {
            let lag = match &word[1..] {
                "L" => Some(PROMOTE_WITHIN + 1),
                _ => Some(0),
            };
            let role = if word.ends_with('v') { Role::Voter } else { Role::Learner };
            Member { replica: ReplicaId(word[..1].parse().unwrap()), host: "h".parse().unwrap(), role, matched: Some(1), lag }
        };
        text.split_whitespace().map(member).collect()
    }

    fn ordered(ids: &[u64]) -> Vec<Ordered> {
        ids.iter().map(|id| Ordered { replica_id: ReplicaId(*id), host: "h".parse().unwrap() }).collect()
    }

    fn step(now: &str, ids: &[u64]) -> Option<Step> {
        next(&current(now), &ordered(ids))
    }

    #[test]
    fn growing_adds_promotes_and_rests() {
        assert_eq!(step("1v", &[1, 2, 3]), Some(Step::AddLearner(ReplicaId(2), "h".parse().unwrap())));
        assert_eq!(step("1v 2L", &[1, 2]), Some(Step::WaitFor(ReplicaId(2))));
        assert_eq!(step("1v 2L 3l", &[1, 2, 3]), Some(Step::Promote(ReplicaId(3))), "the slow one holds up nobody");
        assert_eq!(step("1v 2v 3v", &[1, 2, 3]), None);
    }

    #[test]
    fn nobody_leaves_before_everybody_who_stays_votes() {
        assert_eq!(step("1v 2v 3v", &[1, 2, 4]), Some(Step::AddLearner(ReplicaId(4), "h".parse().unwrap())));
        assert_eq!(step("1v 2v 3v 4L", &[1, 2, 4]), Some(Step::WaitFor(ReplicaId(4))));
        assert_eq!(step("1v 2v 3v 4v", &[1, 2, 4]), Some(Step::Remove(ReplicaId(3))));
        assert_eq!(step("1v 2v 3v 4v 5v", &[1, 2, 3]), Some(Step::Remove(ReplicaId(4))));
    }

    #[test]
    fn an_empty_order_changes_nothing() {
        assert_eq!(step("1v 2v", &[]), None);
    }
}
