//! Random changes, compactions and polls: a watch tells exactly its range's events in order, whatever path they take to it, or that it lagged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use wheelhouse_mvcc::{Batch, Command, KeyRange, State, Txn};
use wheelhouse_store::{Changes, HubWatch, Watch, WatchError, WatchHub};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

const KEYS: [&str; 6] =
    ["/registry/core/pods/a/1", "/registry/core/pods/b/1", "/registry/core/nodes/n", "/registry/apps/deployments/a/d", "/other", "plain"];

fn range(random: &mut Random) -> KeyRange {
    match random.below(6) {
        0 => KeyRange::prefix("/registry/core/pods/"),
        1 => KeyRange::prefix("/registry/core/pods/a/"),
        2 => KeyRange::key(KEYS[random.below(6) as usize]),
        3 => KeyRange::prefix("/registry/"),
        4 => KeyRange::prefix("/"),
        _ => KeyRange { start: "/registry/core/pods/".into(), end: Some("\0".into()) },
    }
}

struct Watcher {
    watch: HubWatch,
    range: KeyRange,
    /// Told so far, or from where it began.
    told: u64,
}

fn poll(watch: &mut HubWatch) -> Poll<Result<Changes, WatchError>> {
    let mut next = watch.next();
    next.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

struct World {
    random: Random,
    state: State,
    hub: Arc<WatchHub>,
    batches: Vec<Arc<Batch>>,
    watchers: VecDeque<Watcher>,
    lagged: usize,
    events: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let state = State::new();
        let hub = WatchHub::new(state.snapshot());
        Self { random: Random(seed), state, hub, batches: Vec::new(), watchers: VecDeque::new(), lagged: 0, events: 0 }
    }

    /// Some commands under one publication, as a log entry of several transactions.
    fn apply(&mut self) {
        let count = if self.random.below(40) == 0 { 400 } else { 1 + self.random.below(4) };
        let mut published = Vec::new();
        for _ in 0..count {
            let mut txn = Txn::default();
            for key in KEYS {
                match self.random.below(12) {
                    0..2 => txn = txn.put(key, "v"),
                    2 => txn = txn.delete(key),
                    _ => {}
                }
            }
            published.extend(self.state.apply(&Command::Txn { txn, fence: None }, 1).batch);
        }
        self.batches.extend(published.iter().cloned());
        if self.random.below(15) == 0 {
            let revision = self.state.root().revision().saturating_sub(self.random.below(300));
            self.state.apply(&Command::Compact { revision }, 1);
        }
        self.hub.publish(&published, self.state.snapshot());
    }

    fn subscribe(&mut self) {
        let (range, newest) = (range(&mut self.random), self.state.root().revision());
        let after = (newest + 3).saturating_sub(self.random.below(500));
        match self.hub.subscribe(range.clone(), after) {
            Ok(watch) => self.watchers.push_back(Watcher { watch, range, told: after }),
            Err(error) => assert!(after + 1 < self.state.root().history_start(), "{error}"),
        }
    }

    fn poll_some(&mut self) {
        let Some(mut watcher) = self.watchers.pop_front() else { return };
        for _ in 0..self.random.below(60) {
            let expected = self.batches[self.batches.partition_point(|batch| batch.revision <= watcher.told)..].iter().find_map(|batch| {
                let events: Vec<_> = batch.events.iter().filter(|event| watcher.range.contains(&event.kv.key)).cloned().collect();
                (!events.is_empty()).then_some(Changes { revision: batch.revision, events })
            });
            let position = watcher.watch.position();
            assert!(position >= watcher.told && expected.as_ref().is_none_or(|next| position < next.revision), "position {position}");
            match (poll(&mut watcher.watch), expected) {
                (Poll::Ready(Ok(changes)), Some(expected)) => {
                    assert_eq!((changes.revision, &changes.events), (expected.revision, &expected.events));
                    watcher.told = changes.revision;
                    self.events += 1;
                }
                (Poll::Pending, None) => {
                    watcher.told = watcher.told.max(self.state.root().revision());
                    assert_eq!(watcher.watch.position(), watcher.told, "an idle watch knows the present");
                    break;
                }
                (Poll::Ready(Err(WatchError::Lagged)), _) => {
                    assert!(watcher.told + 1 < self.state.root().history_start(), "it lags, but nothing it needs is gone");
                    self.lagged += 1;
                    return;
                }
                // The runtime's budget is spent; the next round goes on.
                (Poll::Pending, Some(_)) => break,
                (Poll::Ready(told), expected) => panic!("told {told:?} where {expected:?} was to come"),
            }
        }
        self.watchers.push_back(watcher);
    }
}

#[test]
fn watches_tell_exactly_what_happened() {
    let (mut events, mut lagged) = (0, 0);
    for seed in 0..30 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            match world.random.below(10) {
                0..4 => world.apply(),
                4 if world.watchers.len() < 12 => world.subscribe(),
                5 if world.random.below(4) == 0 => drop(world.watchers.pop_back()),
                _ => world.poll_some(),
            }
        }
        let open = world.watchers.len();
        assert_eq!(world.hub.watchers(), open);
        (events, lagged) = (events + world.events, lagged + world.lagged);
    }
    assert!(events > 10_000 && lagged > 10, "{events} events and {lagged} lagging watches are too few to mean anything");
}
