//! The memory store against the suite, and the watch hub where the suite cannot reach.

use std::sync::Arc;
use std::time::Duration;

use wheelhouse_mvcc::{Command, Fence, KeyRange, State, Txn};
use wheelhouse_store::{CommitError, MemoryStore, Store, Watch, WatchError, WatchHub, suite};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_store_passes_the_suite() {
    suite::run(|| async { Arc::new(MemoryStore::default()) as Arc<dyn Store> }).await;
}

fn put(key: &str) -> Command {
    Command::Txn { txn: Txn::default().put(key.to_owned(), "v"), fence: None }
}

#[tokio::test]
async fn a_new_term_ends_older_fences() {
    let store = MemoryStore::default();
    let fenced = |term| Command::Txn { txn: Txn::default().put("a", "v"), fence: Some(Fence { term }) };
    assert!(store.commit(fenced(1)).await.is_ok());
    store.next_term();
    assert!(matches!(store.commit(fenced(1)).await, Err(CommitError::NotLeader)));
    assert!(store.commit(fenced(2)).await.is_ok());
}

#[tokio::test]
async fn stopping_ends_watches_and_writes() {
    let store = MemoryStore::default();
    let mut watch = store.watch(KeyRange::prefix("/registry/core/pods/"), 1).expect("nothing was compacted");
    let (ended, ()) = tokio::join!(watch.next(), async { store.stop() });
    assert!(matches!(ended, Err(WatchError::Stopped)));
    assert!(matches!(store.commit(put("a")).await, Err(CommitError::Stopped)));
}

struct Applier {
    state: State,
    hub: Arc<WatchHub>,
}

impl Applier {
    fn new() -> Self {
        let state = State::new();
        let hub = WatchHub::new(state.snapshot());
        Self { state, hub }
    }

    fn apply(&mut self, command: &Command) {
        let applied = self.state.apply(command, 1);
        self.hub.publish(applied.batch.as_slice(), self.state.snapshot());
    }
}

#[tokio::test]
async fn a_slow_watch_catches_up_from_the_history() {
    let mut applier = Applier::new();
    let mut watch = applier.hub.subscribe(KeyRange::prefix("/registry/core/pods/"), 1).expect("nothing was compacted");
    for n in 0..2_000 {
        applier.apply(&put(if n % 2 == 0 { "/registry/core/pods/a" } else { "/registry/core/nodes/a" }));
    }
    for n in 0..1_000 {
        assert_eq!(watch.next().await.expect("it is retained").revision, 2 + 2 * n);
    }
    assert_eq!(watch.position(), 2_001, "the last change was not a pod's");
}

#[tokio::test]
async fn a_watch_that_fell_out_of_the_history_is_told() {
    let mut applier = Applier::new();
    let pods = || KeyRange::prefix("/registry/core/pods/");
    let mut slow = applier.hub.subscribe(pods(), 1).expect("nothing was compacted");
    let mut idle = applier.hub.subscribe(KeyRange::prefix("/registry/core/nodes/"), 1).expect("nothing was compacted");
    for _ in 0..10 {
        applier.apply(&put("/registry/core/pods/a"));
    }
    applier.apply(&Command::Compact { revision: 10 });
    applier.apply(&put("/registry/core/pods/a"));
    applier.apply(&put("/registry/core/nodes/a"));
    assert!(matches!(slow.next().await, Err(WatchError::Lagged)));
    assert_eq!(idle.next().await.expect("nothing it wanted was compacted").revision, 13);
    assert!(matches!(applier.hub.subscribe(pods(), 8), Err(WatchError::Compacted { requested: 9, compacted: 10 })));
}

#[tokio::test]
async fn an_installed_snapshot_without_history_ends_older_watches() {
    let mut applier = Applier::new();
    let mut watch = applier.hub.subscribe(KeyRange::prefix("/registry/core/pods/"), 1).expect("nothing was compacted");
    applier.apply(&put("/registry/core/pods/a"));
    assert_eq!(watch.next().await.expect("it is retained").revision, 2);
    for _ in 0..5 {
        applier.state.apply(&put("/registry/core/pods/a"), 1);
    }
    let root = applier.state.snapshot();
    let bare = State::restore(&root.header(), root.range(b"", None).map(|kv| (**kv).clone()), []).expect("it fits together");
    applier.hub.reset(bare.snapshot());
    assert!(matches!(watch.next().await, Err(WatchError::Lagged)));
    let mut new = applier.hub.subscribe(KeyRange::prefix("/registry/core/pods/"), root.revision()).expect("the present is known");
    applier.state = bare;
    applier.apply(&put("/registry/core/pods/a"));
    assert_eq!(new.next().await.expect("it is new").revision, root.revision() + 1);
}

#[tokio::test]
async fn only_a_change_under_its_resource_wakes_a_watch() {
    let mut applier = Applier::new();
    let mut watch = applier.hub.subscribe(KeyRange::prefix("/registry/core/pods/"), 1).expect("nothing was compacted");
    let mut next = tokio_test_task(&mut watch);
    assert!(next.poll_pending());
    for _ in 0..3 {
        applier.apply(&put("/registry/core/nodes/a"));
        applier.apply(&put("/registry/core/podsecurity/a"));
    }
    assert_eq!(next.wakes(), 0);
    applier.apply(&put("/registry/core/pods/default/a"));
    assert_eq!(next.wakes(), 1);
}

#[tokio::test]
async fn buckets_go_with_their_last_watch() {
    let applier = Applier::new();
    let watches: Vec<_> = (0..500).map(|_| applier.hub.subscribe(KeyRange::prefix("/registry/core/pods/"), 1).expect("it is open")).collect();
    assert_eq!(applier.hub.watchers(), 500);
    drop(watches);
    assert_eq!(applier.hub.watchers(), 0);
}

/// Five hundred watches of one resource hear of every change, each in order, while other resources are busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_watches_hear_everything() {
    const CHANGES: u64 = 200;
    let store = Arc::new(MemoryStore::default());
    let watchers: Vec<_> = (0..500)
        .map(|_| {
            let mut watch = store.watch(KeyRange::prefix("/registry/core/pods/"), 1).expect("nothing was compacted");
            tokio::spawn(async move {
                for n in 0..CHANGES {
                    assert_eq!(watch.next().await.expect("it is retained").revision, 2 + 2 * n);
                }
            })
        })
        .collect();
    for _ in 0..CHANGES {
        store.commit(put("/registry/core/pods/a")).await.expect("it is up");
        store.commit(put("/registry/core/nodes/a")).await.expect("it is up");
    }
    for watcher in watchers {
        tokio::time::timeout(Duration::from_secs(20), watcher).await.expect("every event arrives").expect("in order");
    }
}

/// A future polled by hand that counts its wake-ups.
fn tokio_test_task(watch: &mut dyn Watch) -> Polled<'_> {
    Polled { future: Box::pin(async move { watch.next().await.map(|_| ()) }), wakes: Arc::default() }
}

struct Polled<'w> {
    future: std::pin::Pin<Box<dyn Future<Output = Result<(), WatchError>> + Send + 'w>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Polled<'_> {
    fn poll_pending(&mut self) -> bool {
        let waker = std::task::Waker::from(self.wakes.clone());
        self.future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending()
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}
