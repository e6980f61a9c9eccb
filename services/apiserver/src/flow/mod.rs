//! API priority and fairness (KEP-1040): who waits when there is more to do than the cluster's share of the machine allows.
//!
//! ```text
//! user, request --Rules::classify--> schema, level --Machine::arrive--> seat at once | queue | 429
//! answer made   --Permit dropped---> Machine::complete --> the next ones start
//! ```
//!
//! Every decision is the [`machine`]'s; this file holds the lock, the clock and the waiting. It is in front of authorization, as upstream's, so a
//! flood of refused requests is bounded too. Calls of the control plane itself do not come here.

pub mod bootstrap;
mod hand;
mod level;
mod machine;
mod rules;
mod schema;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use wheelhouse_access::User;
use wheelhouse_store::Store;

use crate::metrics::ServerMetrics;
use crate::request::path::RequestInfo;
use crate::security::View;
use machine::{Arrival, Machine, Request, Seat, Start, Ticket};
use rules::Rules;

/// A request waits in a queue for at most this long: a quarter of its time, as upstream has it.
const MAX_WAIT: Duration = Duration::from_secs(15);

/// One cluster's flow control.
pub struct FlowControl {
    rules: View<Rules>,
    state: Mutex<State>,
    began: Instant,
}

struct State {
    machine: Machine,
    waiting: HashMap<Ticket, oneshot::Sender<Seat>>,
    /// Of the rules that the machine was configured with.
    version: u64,
}

/// Where a request belongs; the two uids go into its answer's headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub schema: String,
    pub schema_uid: String,
    pub level: String,
    pub level_uid: String,
    hash: u64,
}

/// A seat; dropping it gives it back.
pub struct Permit<'a> {
    flow: &'a FlowControl,
    seat: Option<Seat>,
}

/// A place in a queue; dropping it leaves the queue.
struct Place<'a, 'c> {
    flow: &'a FlowControl,
    level: &'c str,
    ticket: Ticket,
    arrived: oneshot::Receiver<Seat>,
}

impl FlowControl {
    /// `seats`: how many ordinary requests may run at once.
    pub fn new(seats: usize) -> Self {
        let machine = Machine::new(seats as u64);
        Self { rules: View::new(), state: Mutex::new(State { machine, waiting: HashMap::new(), version: 0 }), began: Instant::now() }
    }

    pub fn classify(&self, store: &dyn Store, user: &User, info: &RequestInfo) -> Class {
        let rules = self.rules.current(store);
        let (schema, level) = rules.classify(user, info);
        let mut hasher = DefaultHasher::new();
        (&schema.name, schema.distinguish(user, info)).hash(&mut hasher);
        let class = Class {
            schema: schema.name.clone(),
            schema_uid: schema.uid.clone(),
            level: level.name.clone(),
            level_uid: level.uid.clone(),
            hash: hasher.finish(),
        };
        let mut state = self.state.lock();
        if state.version != rules.version {
            state.version = rules.version;
            let started = state.machine.configure(&rules.levels(), self.now());
            self.hand_out(&mut state, started);
        }
        class
    }

    /// Waits for a seat. The error says why there is none, as upstream's metrics call it.
    pub async fn admit(&self, class: &Class, seats: u64, metrics: &ServerMetrics) -> Result<Permit<'_>, &'static str> {
        let arrival = self.arrive(class, seats);
        let since = Instant::now();
        let admitted = match arrival {
            Ok(permit) => Ok(permit),
            Err(Wait::Refused(why)) => Err(why),
            Err(Wait::Queued(mut place)) => match tokio::time::timeout(MAX_WAIT, &mut place.arrived).await {
                Ok(Ok(seat)) => Ok(Permit { flow: self, seat: Some(seat) }),
                _ => Err("time-out"),
            },
        };
        metrics.flow_decided(&class.schema, &class.level, admitted.as_ref().err().copied(), since.elapsed());
        admitted
    }

    fn arrive<'a, 'c>(&'a self, class: &'c Class, seats: u64) -> Result<Permit<'a>, Wait<'a, 'c>> {
        let mut state = self.state.lock();
        let request = Request { level: &class.level, hash: class.hash, seats, now: self.now() };
        match state.machine.arrive(request) {
            Arrival::Started(seat) => Ok(Permit { flow: self, seat: Some(seat) }),
            Arrival::Rejected(why) => Err(Wait::Refused(why)),
            Arrival::Queued(ticket) => {
                let (sender, arrived) = oneshot::channel();
                state.waiting.insert(ticket, sender);
                Err(Wait::Queued(Place { flow: self, level: &class.level, ticket, arrived }))
            }
        }
    }

    /// Brings the gauges up to date.
    pub fn observe(&self, metrics: &ServerMetrics) {
        for (level, standing) in self.state.lock().machine.standings() {
            metrics.flow_level(level, standing.nominal, standing.seats, standing.executing, standing.waiting);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn complete(&self, seat: Seat) {
        let mut state = self.state.lock();
        let started = state.machine.complete(seat, self.now());
        self.hand_out(&mut state, started);
    }

    /// Gives seats to those who wait for them. Whoever left in between gives them back.
    fn hand_out(&self, state: &mut State, started: Vec<Start>) {
        let mut started = started;
        while let Some((ticket, seat)) = started.pop() {
            let refused = match state.waiting.remove(&ticket) {
                Some(sender) => sender.send(seat).err(),
                None => Some(seat),
            };
            if let Some(seat) = refused {
                started.extend(state.machine.complete(seat, self.now()));
            }
        }
    }
}

enum Wait<'a, 'c> {
    Queued(Place<'a, 'c>),
    Refused(&'static str),
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            self.flow.complete(seat);
        }
    }
}

impl Drop for Place<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.flow.state.lock();
        if state.waiting.remove(&self.ticket).is_some() {
            let started = state.machine.cancel(self.level, self.ticket, self.flow.now());
            self.flow.hand_out(&mut state, started);
        } else if let Ok(seat) = self.arrived.try_recv() {
            // It was handed a seat and left before it knew.
            let started = state.machine.complete(seat, self.flow.now());
            self.flow.hand_out(&mut state, started);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::query::Query;
    use futures::FutureExt;
    use http::Method;
    use std::sync::Arc;
    use wheelhouse_mvcc::{Command, Txn};
    use wheelhouse_store::MemoryStore;

    async fn put(store: &dyn Store, key: &str, value: &str) {
        let txn = Txn::default().put(key.as_bytes().to_vec(), value.as_bytes().to_vec());
        store.commit(Command::Txn { txn, fence: None }).await.unwrap();
    }

    #[tokio::test]
    async fn waiting_ends_with_a_seat_and_leaving_gives_the_place_up() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let prefix = "/registry/flowcontrol.apiserver.k8s.io";
        let level = r#""name":"catch-all","uid":"l"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":5,
            "limitResponse":{"type":"Queue","queuing":{"queues":1,"handSize":1,"queueLengthLimit":1}}}}}"#;
        put(&*store, &format!("{prefix}/prioritylevelconfigurations/catch-all"), level).await;
        let flow = FlowControl::new(1);
        let metrics = ServerMetrics::default();
        let info = RequestInfo::parse(&Method::GET, "/api/v1/pods", &Query::parse(""));
        let class = flow.classify(&*store, &User::default(), &info);
        assert_eq!((class.level.as_str(), class.level_uid.as_str(), class.schema.as_str()), ("catch-all", "l", "catch-all"));

        let first = flow.admit(&class, 1, &metrics).now_or_never().unwrap().unwrap();
        let mut second = Box::pin(flow.admit(&class, 1, &metrics));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(flow.admit(&class, 1, &metrics).now_or_never().unwrap().err(), Some("queue-full"));
        // The one that waits leaves; another takes its place and gets the seat.
        drop(second);
        let mut third = Box::pin(flow.admit(&class, 1, &metrics));
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        let third = third.await.unwrap();
        // A seat that was handed out to nobody comes back.
        let mut fourth = Box::pin(flow.admit(&class, 1, &metrics));
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(third);
        drop(fourth);
        assert!(flow.admit(&class, 1, &metrics).now_or_never().unwrap().is_ok());
        assert!(metrics.render().contains(
            "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"catch-all\",priority_level=\"catch-all\",reason=\"queue-full\"} 1"
        ));
    }
}
