//! What every [`Store`] must do, whatever it is made of. A test of an implementation calls [`run`]; the first broken promise panics with its name.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wheelhouse_base::Revision;
use wheelhouse_base::limits::MAX_VALUE_BYTES;
use wheelhouse_mvcc::{Command, EventKind, Fence, KeyRange, Op, OpOutcome, Outcome, Put, Range, Refusal, Txn, TxnOutcome};

use crate::{Changes, CommitError, ReadError, Store, Watch, WatchError};

/// How long anything may take that must happen. Long enough for three real processes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a wait for something that must not happen lasts.
const SHORT: Duration = Duration::from_millis(20);

/// Runs every case, each on its own store from `make`: empty, with this replica leading.
pub async fn run<F, Made>(make: F)
where
    F: Fn() -> Made,
    Made: Future<Output = Arc<dyn Store>>,
{
    commits_count_revisions(make().await).await;
    reads_see_what_was_acknowledged(make().await).await;
    a_lost_race_answers_with_the_winner(make().await).await;
    waits_end_when_the_revision_is_there(make().await).await;
    watches_tell_everything_in_order(make().await).await;
    watches_are_confined_to_their_range(make().await).await;
    a_dropped_wait_loses_no_event(make().await).await;
    compaction_ends_what_needs_the_past(make().await).await;
    a_revoked_lease_takes_its_keys_along(make().await).await;
    fences_hold(make().await).await;
    oversized_values_are_refused(make().await).await;
    concurrent_increments_are_all_counted(make().await).await;
}

async fn txn(store: &dyn Store, txn: Txn) -> TxnOutcome {
    match store.commit(Command::Txn { txn, fence: None }).await {
        Ok(Outcome::Txn(outcome)) => outcome,
        other => panic!("a plain transaction answers {other:?}"),
    }
}

async fn put(store: &dyn Store, key: &'static str, value: &'static str) -> Revision {
    txn(store, Txn::default().put(key, value)).await.revision
}

async fn next(watch: &mut Box<dyn Watch>) -> Changes {
    match tokio::time::timeout(PATIENCE, watch.next()).await {
        Ok(Ok(changes)) => changes,
        Ok(Err(error)) => panic!("a watch ends: {error}"),
        Err(_) => panic!("an event does not arrive"),
    }
}

async fn commits_count_revisions(store: Arc<dyn Store>) {
    let first = put(&*store, "/registry/core/pods/a", "1").await;
    let second = put(&*store, "/registry/core/pods/a", "2").await;
    assert_eq!(second, first + 1, "each change has its own revision");
    let nothing = txn(&*store, Txn::default().delete("/registry/core/pods/none")).await;
    assert_eq!(nothing.revision, second, "a transaction that changes nothing has none");
    let snapshot = store.barrier().await.expect("a quorum is there");
    let kv = snapshot.get(b"/registry/core/pods/a").expect("it was put");
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version, &kv.value[..]), (first, second, 2, &b"2"[..]));
}

async fn reads_see_what_was_acknowledged(store: Arc<dyn Store>) {
    let revision = put(&*store, "a", "1").await;
    assert!(store.barrier().await.expect("a quorum is there").revision() >= revision, "a barrier is at least as new");
    assert_eq!(store.snapshot().get(b"a").map(|kv| kv.mod_revision), Some(revision), "the proposer reads its own write");
    let old = store.snapshot();
    let newer = put(&*store, "a", "2").await;
    assert_eq!(old.get(b"a").map(|kv| kv.mod_revision), Some(revision), "a snapshot never changes");
    let past = store.barrier().await.expect("a quorum is there").at(revision).expect("it is retained");
    assert_eq!(past.get(b"a").map(|kv| kv.mod_revision), Some(revision), "the past is readable");
    let future = Txn { success: vec![Op::Range(Range { revision: newer + 5, ..Range::of(KeyRange::key("a")) })], ..Txn::default() };
    let refused = store.commit(Command::Txn { txn: future, fence: None }).await.expect("a quorum is there");
    assert!(matches!(refused, Outcome::Failed(Refusal::FutureRevision { .. })), "{refused:?}");
}

async fn a_lost_race_answers_with_the_winner(store: Arc<dyn Store>) {
    let create = || Txn::default().if_mod_revision("a", 0).put("a", "mine").else_get("a");
    assert!(txn(&*store, create()).await.succeeded, "the first creation succeeds");
    let lost = txn(&*store, create()).await;
    assert!(!lost.succeeded, "the second does not");
    let [OpOutcome::Range { kvs, .. }] = &lost.responses[..] else { panic!("the other branch answers {:?}", lost.responses) };
    assert_eq!(kvs.first().map(|kv| &kv.value[..]), Some(&b"mine"[..]));
}

async fn waits_end_when_the_revision_is_there(store: Arc<dyn Store>) {
    let revision = put(&*store, "a", "1").await;
    assert!(store.wait_for(revision, SHORT).await.is_ok_and(|snapshot| snapshot.revision() >= revision));
    match store.wait_for(revision + 1, SHORT).await {
        Err(ReadError::Behind { requested, current }) => assert_eq!((requested, current), (revision + 1, revision)),
        other => panic!("a wait for the future answers {:?}", other.map(|snapshot| snapshot.revision())),
    }
    let (waited, _) = tokio::join!(store.wait_for(revision + 1, PATIENCE), put(&*store, "a", "2"));
    assert!(waited.is_ok_and(|snapshot| snapshot.revision() > revision));
}

async fn watches_tell_everything_in_order(store: Arc<dyn Store>) {
    let mut from_nothing = store.watch(KeyRange::prefix("/registry/core/pods/"), 0).expect("nothing was compacted");
    assert!(tokio::time::timeout(SHORT, from_nothing.next()).await.is_err(), "nothing happened yet");
    let start = store.snapshot().revision();
    let first = put(&*store, "/registry/core/pods/a", "1").await;
    assert_eq!(next(&mut from_nothing).await.revision, first);
    let mut watch = store.watch(KeyRange::prefix("/registry/core/pods/"), start).expect("nothing was compacted");
    let created = next(&mut watch).await;
    assert_eq!((created.revision, created.events.len()), (first, 1), "the past is told");
    assert_eq!((created.events[0].kind, &created.events[0].prev), (EventKind::Put, &None));

    let second = txn(&*store, Txn::default().put("/registry/core/pods/a", "2").put("/registry/core/pods/b", "1")).await.revision;
    let changed = next(&mut watch).await;
    assert_eq!((changed.revision, changed.events.len()), (second, 2), "one transaction arrives whole");
    assert_eq!(changed.events[0].prev.as_ref(), Some(&created.events[0].kv), "with the old record");
    assert!(store.snapshot().revision() >= second, "the state shows what a watch tells");

    let third = txn(&*store, Txn::default().delete("/registry/core/pods/a")).await.revision;
    let deleted = next(&mut watch).await;
    assert_eq!((deleted.revision, deleted.events[0].kind, deleted.events[0].kv.mod_revision), (third, EventKind::Delete, third));
    assert_eq!(deleted.events[0].prev.as_ref(), Some(&changed.events[0].kv));
    assert_eq!(watch.position(), third);
}

async fn watches_are_confined_to_their_range(store: Arc<dyn Store>) {
    let start = store.snapshot().revision();
    let mut pods = store.watch(KeyRange::prefix("/registry/core/pods/default/"), start).expect("nothing was compacted");
    let mut one = store.watch(KeyRange::key("/registry/core/pods/default/b"), start).expect("nothing was compacted");
    let mut all = store.watch(KeyRange { start: Bytes::from("/"), end: Some(Bytes::from_static(b"\0")) }, start).expect("nothing was compacted");
    let mut later = store.watch(KeyRange::prefix("/"), start + 3).expect("the future is open");
    let keys = ["/registry/core/pods/other/a", "/registry/core/nodes/n", "/registry/core/pods/default/a", "/registry/core/pods/default/b"];
    let mut revisions = Vec::new();
    for key in keys {
        revisions.push(put(&*store, key, "1").await);
    }
    assert_eq!(next(&mut pods).await.revision, revisions[2]);
    assert_eq!(next(&mut pods).await.revision, revisions[3]);
    assert_eq!(next(&mut one).await.revision, revisions[3]);
    for revision in &revisions {
        assert_eq!(next(&mut all).await.revision, *revision);
    }
    assert_eq!(next(&mut later).await.revision, revisions[3], "a watch of the future says nothing before it");

    let foreign = put(&*store, "/registry/core/nodes/n", "2").await;
    assert_eq!(next(&mut all).await.revision, foreign);
    assert!(tokio::time::timeout(SHORT, pods.next()).await.is_err(), "nothing happened to pods");
    assert_eq!(pods.position(), foreign, "and the watch knows it");
    let near = put(&*store, "/registry/core/pods/other/b", "1").await;
    assert_eq!(pods.position(), near, "also without being asked for the next event");
    let wanted = put(&*store, "/registry/core/pods/default/c", "1").await;
    assert_eq!(pods.position(), foreign, "but never past an event that it has not returned");
    assert_eq!(next(&mut pods).await.revision, wanted);
}

async fn a_dropped_wait_loses_no_event(store: Arc<dyn Store>) {
    let mut watch = store.watch(KeyRange::prefix("/registry/core/pods/"), store.snapshot().revision()).expect("nothing was compacted");
    for round in 0..20 {
        assert!(tokio::time::timeout(Duration::from_millis(u64::from(round % 2 == 0)), watch.next()).await.is_err());
        let revision = put(&*store, "/registry/core/pods/a", "1").await;
        assert_eq!(next(&mut watch).await.revision, revision);
    }
}

async fn compaction_ends_what_needs_the_past(store: Arc<dyn Store>) {
    let mut revisions = Vec::new();
    for value in ["1", "2", "3"] {
        revisions.push(put(&*store, "a", value).await);
    }
    let compact = |revision| store.commit(Command::Compact { revision });
    assert!(matches!(compact(revisions[1]).await, Ok(Outcome::Compacted)));
    assert!(matches!(compact(revisions[1]).await, Ok(Outcome::Failed(Refusal::Compacted { .. }))));
    assert!(matches!(compact(revisions[2] + 1).await, Ok(Outcome::Failed(Refusal::FutureRevision { .. }))));
    let snapshot = store.barrier().await.expect("a quorum is there");
    assert_eq!(snapshot.compacted(), revisions[1]);
    assert!(matches!(snapshot.at(revisions[0]), Err(Refusal::Compacted { .. })), "older reads are refused");
    assert!(snapshot.at(revisions[1]).is_ok(), "the compacted revision itself is readable");
    match store.watch(KeyRange::key("a"), revisions[0] - 1) {
        Err(WatchError::Compacted { requested, compacted }) => assert_eq!((requested, compacted), (revisions[0], revisions[1])),
        other => panic!("a watch of lost history answers {:?}", other.map(|watch| watch.position())),
    }
    let mut watch = store.watch(KeyRange::key("a"), revisions[0]).expect("a watch may start at the compacted revision");
    assert_eq!(next(&mut watch).await.revision, revisions[1]);
    assert_eq!(next(&mut watch).await.revision, revisions[2]);
}

async fn a_revoked_lease_takes_its_keys_along(store: Arc<dyn Store>) {
    let grant = || store.commit(Command::LeaseGrant { id: 7, ttl_secs: 60 });
    assert!(matches!(grant().await, Ok(Outcome::LeaseGranted)));
    assert!(matches!(grant().await, Ok(Outcome::Failed(Refusal::LeaseExists(7)))));
    assert!(matches!(store.commit(Command::LeaseRenew { id: 7 }).await, Ok(Outcome::LeaseRenewed { ttl_secs: 60 })));
    let held = |key: &'static str, lease| {
        Op::Put(Put { key: Bytes::from(key), value: Bytes::from("v"), lease, prev_kv: false, ignore_value: false, ignore_lease: false })
    };
    let missing = Txn { success: vec![held("a", 8)], ..Txn::default() };
    let refused = store.commit(Command::Txn { txn: missing, fence: None }).await;
    assert!(matches!(refused, Ok(Outcome::Failed(Refusal::LeaseNotFound(8)))), "{refused:?}");
    let revision = txn(&*store, Txn { success: vec![held("a", 7), held("b", 7), held("c", 0)], ..Txn::default() }).await.revision;
    let mut watch = store.watch(KeyRange::prefix("b"), revision).expect("nothing was compacted");
    let revoked = store.commit(Command::LeaseRevoke { id: 7 }).await;
    assert!(matches!(revoked, Ok(Outcome::LeaseRevoked { revision: at }) if at == revision + 1), "{revoked:?}");
    assert_eq!(next(&mut watch).await.events[0].kind, EventKind::Delete);
    let left: Vec<_> = store.snapshot().range(b"", None).map(|kv| kv.key.clone()).collect();
    assert_eq!(left, ["c"]);
}

async fn fences_hold(store: Arc<dyn Store>) {
    let leadership = *store.leadership().borrow();
    assert!(leadership.here && leadership.leader == Some(store.replica()), "the suite runs at the leader: {leadership:?}");
    let fenced = |term| store.commit(Command::Txn { txn: Txn::default().put("a", "1"), fence: Some(Fence { term }) });
    assert!(matches!(fenced(leadership.term).await, Ok(Outcome::Txn(_))));
    let revision = store.snapshot().revision();
    for term in [leadership.term.wrapping_sub(1), leadership.term + 1] {
        let refused = fenced(term).await;
        assert!(matches!(refused, Err(CommitError::NotLeader) | Ok(Outcome::Fenced { .. })), "{refused:?}");
    }
    assert_eq!(store.barrier().await.expect("a quorum is there").revision(), revision, "a refused command changes nothing");
}

async fn oversized_values_are_refused(store: Arc<dyn Store>) {
    let large = Txn::default().put("a", vec![0; MAX_VALUE_BYTES + 1]);
    let refused = store.commit(Command::Txn { txn: large, fence: None }).await;
    assert!(matches!(refused, Err(CommitError::TooLarge { .. })), "{refused:?}");
}

/// Each worker reads, adds one and writes back if nobody was faster. No increment may be lost and none counted twice.
async fn concurrent_increments_are_all_counted(store: Arc<dyn Store>) {
    const WORKERS: u64 = 8;
    const EACH: u64 = 10;
    let worker = |store: Arc<dyn Store>| async move {
        let mut done = 0;
        while done < EACH {
            let snapshot = store.barrier().await.expect("a quorum is there");
            let (value, revision) = snapshot.get(b"n").map_or((0, 0), |kv| (number(&kv.value), kv.mod_revision));
            let attempt = Txn::default().if_mod_revision("n", revision).put("n", (value + 1).to_string());
            done += u64::from(txn(&*store, attempt).await.succeeded);
        }
    };
    let workers: Vec<_> = (0..WORKERS).map(|_| tokio::spawn(worker(store.clone()))).collect();
    for worker in workers {
        worker.await.expect("no worker panics");
    }
    let snapshot = store.barrier().await.expect("a quorum is there");
    let kv = snapshot.get(b"n").expect("it was put");
    assert_eq!((number(&kv.value), kv.version), (WORKERS * EACH, WORKERS * EACH));
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).expect("only numbers are written")
}
