//! Priority and fairness as a state machine: arrivals and completions in, starts out.
//!
//! ```text
//! arrive --seat free--> Started                         complete, cancel --> whatever can start now
//!        --none-------> hand of queues, the shortest -> Queued | Rejected
//! ```
//!
//! The server has a number of seats. Each level has a nominal part of them by its shares; of that, what it does not use and is willing to lend,
//! others may use. A seat is given when the level stays within what it may borrow, and when every other level still has the part that it does not
//! lend. Upstream moves the limits every ten seconds after what was asked for; deciding at each start needs no clock and guarantees the same.
//!
//! Within a level queues are served by start-time fair queuing: each queue has a virtual time, in milliseconds of seats, at which its next
//! request may start; the earliest goes first. A start is paid for with an estimate, which is set right by what the request really took.

use std::collections::{BTreeMap, VecDeque};

use super::hand::deal;
use super::level::{Kind, Level, Limited, Response};

/// What a request is thought to take until it is known, in milliseconds; upstream's estimate.
const ESTIMATE: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// The right to run. Goes back with [`Machine::complete`].
#[derive(Debug, PartialEq, Eq)]
pub struct Seat {
    level: String,
    queue: Option<usize>,
    seats: u64,
    started: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    Started(Seat),
    Queued(Ticket),
    /// Why, as upstream's metrics call it.
    Rejected(&'static str),
}

/// A queued request that may run now.
pub type Start = (Ticket, Seat);

/// A request that arrives. Times are milliseconds since some start.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub level: &'a str,
    /// Of the flow: schema and distinguisher.
    pub hash: u64,
    /// How much it weighs; a list of many objects weighs more.
    pub seats: u64,
    pub now: u64,
}

/// How a level stands, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub nominal: u64,
    pub seats: u64,
    pub executing: u64,
    pub waiting: u64,
}

#[derive(Debug)]
pub struct Machine {
    total: u64,
    levels: BTreeMap<String, Running>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Running {
    kind: Kind,
    nominal: u64,
    used: u64,
    executing: u64,
    waiting: u64,
    /// Where the level's virtual time is.
    virtual_now: u64,
    queues: Vec<Queue>,
    /// The level's object is gone; it lives until nothing of it runs or waits.
    leaving: bool,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Ticket, u64)>,
    executing: u64,
    next_start: u64,
}

impl Running {
    fn new(kind: Kind) -> Self {
        Self { kind, nominal: 0, used: 0, executing: 0, waiting: 0, virtual_now: 0, queues: Vec::new(), leaving: false }
    }

    fn limited(&self) -> Option<&Limited> {
        match &self.kind {
            Kind::Exempt => None,
            Kind::Limited(limited) => Some(limited),
        }
    }

    /// The seats that nobody else gets.
    fn reserved(&self) -> u64 {
        self.limited().map_or(0, |limited| self.nominal - percent(self.nominal, limited.lendable))
    }

    fn most(&self, total: u64) -> u64 {
        let borrowed = self.limited().and_then(|limited| limited.borrowing).map(|part| percent(self.nominal, part));
        borrowed.map_or(total, |borrowed| self.nominal + borrowed).min(total).max(1)
    }

    /// The queue whose head comes next.
    fn next_queue(&self) -> Option<usize> {
        let waiting = self.queues.iter().enumerate().filter(|(_, queue)| !queue.waiting.is_empty());
        waiting.min_by_key(|(at, queue)| (queue.next_start, *at)).map(|(at, _)| at)
    }

    fn is_empty(&self) -> bool {
        self.executing == 0 && self.waiting == 0
    }
}

fn percent(of: u64, part: u64) -> u64 {
    (of * part + 50) / 100
}

impl Machine {
    /// A server with so many seats.
    pub fn new(total: u64) -> Self {
        Self { total, levels: BTreeMap::new(), next_ticket: 0 }
    }

    /// Puts levels in force. What runs or waits in a level that is gone goes on to its end.
    pub fn configure(&mut self, levels: &[Level], now: u64) -> Vec<Start> {
        for running in self.levels.values_mut() {
            running.leaving = true;
        }
        let shares: u64 = levels.iter().filter_map(|level| limited(level)).map(|limited| limited.shares).sum();
        for level in levels {
            let running = self.levels.entry(level.name.clone()).or_insert_with(|| Running::new(level.kind.clone()));
            running.leaving = false;
            running.kind = level.kind.clone();
            running.nominal = limited(level).map_or(0, |limited| (self.total * limited.shares).div_ceil(shares.max(1)));
            if let Some(Limited { response: Response::Queue { queues, .. }, .. }) = running.limited().cloned()
                && running.queues.len() < queues
            {
                running.queues.resize_with(queues, Queue::default);
            }
        }
        self.levels.retain(|_, running| !(running.leaving && running.is_empty()));
        self.dispatch(now)
    }

    pub fn arrive(&mut self, request: Request<'_>) -> Arrival {
        let fits = |machine: &Self, seats: u64| machine.may_start(request.level, seats);
        let Some(running) = self.levels.get(request.level) else { return Arrival::Rejected("concurrency-limit") };
        let Some(limited) = running.limited().cloned() else {
            return Arrival::Started(self.start(request.level, None, 0, request.now));
        };
        let seats = request.seats.clamp(1, running.most(self.total));
        let Response::Queue { queues, hand, length } = limited.response else {
            if running.waiting == 0 && fits(self, seats) {
                return Arrival::Started(self.start(request.level, None, seats, request.now));
            }
            return Arrival::Rejected("concurrency-limit");
        };
        let load = |queue: &usize| (running.queues[*queue].waiting.len() as u64 + running.queues[*queue].executing, *queue);
        let Some(at) = deal(request.hash, queues.min(running.queues.len()), hand).into_iter().min_by_key(load) else {
            return Arrival::Rejected("concurrency-limit");
        };
        if running.waiting == 0 && fits(self, seats) {
            return Arrival::Started(self.start(request.level, Some(at), seats, request.now));
        }
        if running.queues[at].waiting.len() >= length {
            return Arrival::Rejected("queue-full");
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        if let Some(running) = self.levels.get_mut(request.level) {
            let virtual_now = running.virtual_now;
            running.waiting += 1;
            let queue = &mut running.queues[at];
            if queue.waiting.is_empty() && queue.executing == 0 {
                // Having been idle is no credit.
                queue.next_start = queue.next_start.max(virtual_now);
            }
            queue.waiting.push_back((ticket, seats));
        }
        Arrival::Queued(ticket)
    }

    /// A request is over.
    pub fn complete(&mut self, seat: Seat, now: u64) -> Vec<Start> {
        let Some(running) = self.levels.get_mut(&seat.level) else { return Vec::new() };
        running.used -= seat.seats;
        running.executing -= 1;
        if let Some(queue) = seat.queue.and_then(|at| running.queues.get_mut(at)) {
            queue.executing -= 1;
            let took = now.saturating_sub(seat.started);
            queue.next_start = (queue.next_start + seat.seats * took).saturating_sub(seat.seats * ESTIMATE);
        }
        self.forget(&seat.level);
        self.dispatch(now)
    }

    /// A queued request is not wanted any more.
    pub fn cancel(&mut self, level: &str, ticket: Ticket, now: u64) -> Vec<Start> {
        let Some(running) = self.levels.get_mut(level) else { return Vec::new() };
        for queue in &mut running.queues {
            if let Some(at) = queue.waiting.iter().position(|(waiting, _)| *waiting == ticket) {
                queue.waiting.remove(at);
                running.waiting -= 1;
                break;
            }
        }
        self.forget(level);
        // It may have been a wide one that others waited behind.
        self.dispatch(now)
    }

    pub fn standings(&self) -> impl Iterator<Item = (&str, Standing)> {
        self.levels.iter().map(|(name, running)| {
            let Running { nominal, used, executing, waiting, .. } = *running;
            (name.as_str(), Standing { nominal, seats: used, executing, waiting })
        })
    }

    fn forget(&mut self, level: &str) {
        if self.levels.get(level).is_some_and(|running| running.leaving && running.is_empty()) {
            self.levels.remove(level);
        }
    }

    fn may_start(&self, level: &str, seats: u64) -> bool {
        let Some(running) = self.levels.get(level) else { return false };
        let after = running.used + seats;
        let others = self.levels.iter().filter(|(name, _)| *name != level).map(|(_, other)| other.used.max(other.reserved()));
        let capacity = self.total.max(self.levels.values().map(|running| running.nominal).sum());
        after <= running.most(self.total) && after.max(running.reserved()) + others.sum::<u64>() <= capacity
    }

    fn start(&mut self, level: &str, queue: Option<usize>, seats: u64, now: u64) -> Seat {
        if let Some(running) = self.levels.get_mut(level) {
            running.used += seats;
            running.executing += 1;
            if let Some(at) = queue {
                let virtual_now = running.virtual_now;
                let queue = &mut running.queues[at];
                if queue.waiting.is_empty() && queue.executing == 0 {
                    queue.next_start = queue.next_start.max(virtual_now);
                }
                running.virtual_now = virtual_now.max(queue.next_start);
                queue.next_start += seats * ESTIMATE;
                queue.executing += 1;
            }
        }
        Seat { level: level.to_owned(), queue, seats, started: now }
    }

    /// Starts what can start; the levels that use least of what is theirs come first.
    fn dispatch(&mut self, now: u64) -> Vec<Start> {
        let mut started = Vec::new();
        loop {
            let mut waiting: Vec<(u64, String)> = self
                .levels
                .iter()
                .filter(|(_, running)| running.waiting > 0)
                .map(|(name, running)| (running.used * 1000 / running.nominal.max(1), name.clone()))
                .collect();
            waiting.sort_unstable();
            let next = waiting.into_iter().find_map(|(_, level)| {
                let running = self.levels.get(&level)?;
                let at = running.next_queue()?;
                let (_, seats) = *running.queues[at].waiting.front()?;
                let seats = seats.min(running.most(self.total));
                self.may_start(&level, seats).then_some((level, at, seats))
            });
            let Some((level, at, seats)) = next else { return started };
            let seat = self.start(&level, Some(at), seats, now);
            let taken = self.levels.get_mut(&level).and_then(|running| {
                running.waiting -= 1;
                running.queues[at].waiting.pop_front()
            });
            let Some((ticket, _)) = taken else { return started };
            started.push((ticket, seat));
        }
    }
}

fn limited(level: &Level) -> Option<&Limited> {
    match &level.kind {
        Kind::Exempt => None,
        Kind::Limited(limited) => Some(limited),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(name: &str, shares: u64, lendable: u64, borrowing: Option<u64>, response: Response) -> Level {
        Level { name: name.into(), uid: String::new(), kind: Kind::Limited(Limited { shares, lendable, borrowing, response }) }
    }

    const QUEUES: Response = Response::Queue { queues: 16, hand: 2, length: 3 };

    impl Machine {
        /// What must hold after every event.
        fn check(&self) {
            let capacity = self.total.max(self.levels.values().map(|running| running.nominal).sum());
            assert!(self.levels.values().map(|running| running.used).sum::<u64>() <= capacity);
            for (name, running) in &self.levels {
                let (waiting, executing) = running.queues.iter().fold((0, 0), |(w, e), queue| (w + queue.waiting.len() as u64, e + queue.executing));
                assert_eq!(waiting, running.waiting, "{name}");
                assert!(executing <= running.executing, "{name}");
                if running.waiting > 0 {
                    let head = running.queues[running.next_queue().unwrap()].waiting[0].1;
                    assert!(!self.may_start(name, head), "{name} lets a request wait that could run");
                }
            }
        }
    }

    fn arrive(machine: &mut Machine, level: &str, hash: u64, now: u64) -> Arrival {
        let arrival = machine.arrive(Request { level, hash, seats: 1, now });
        machine.check();
        arrival
    }

    #[test]
    fn exempt_requests_never_wait() {
        let mut machine = Machine::new(1);
        machine.configure(&[Level::exempt(), Level::catch_all()], 0);
        let seats: Vec<Arrival> = (0..50).map(|_| arrive(&mut machine, "exempt", 1, 0)).collect();
        assert!(seats.iter().all(|arrival| matches!(arrival, Arrival::Started(_))));
        assert!(matches!(arrive(&mut machine, "catch-all", 1, 0), Arrival::Started(_)));
        assert_eq!(arrive(&mut machine, "catch-all", 1, 0), Arrival::Rejected("concurrency-limit"));
    }

    #[test]
    fn a_flood_does_not_starve_another_flow() {
        let mut machine = Machine::new(1);
        machine.configure(&[level("a", 1, 0, None, Response::Queue { queues: 16, hand: 1, length: 100 })], 0);
        let Arrival::Started(mut seat) = arrive(&mut machine, "a", 1, 0) else { panic!() };
        let mut flood = Vec::new();
        for _ in 0..50 {
            let Arrival::Queued(ticket) = arrive(&mut machine, "a", 1, 0) else { panic!() };
            flood.push(ticket);
        }
        let Arrival::Queued(lone) = arrive(&mut machine, "a", 2, 0) else { panic!() };
        let mut position = None;
        for turn in 1..=51 {
            let started = machine.complete(seat, turn * 10);
            machine.check();
            let [(ticket, next)] = <[Start; 1]>::try_from(started).unwrap();
            if ticket == lone {
                position = Some(turn);
            }
            seat = next;
        }
        assert!(position.is_some_and(|turn| turn <= 2), "{position:?}");
    }

    #[test]
    fn queues_fill_up_and_a_cancelled_request_leaves_its_place() {
        let mut machine = Machine::new(1);
        machine.configure(&[level("a", 1, 0, None, Response::Queue { queues: 16, hand: 1, length: 3 })], 0);
        let Arrival::Started(seat) = arrive(&mut machine, "a", 7, 0) else { panic!() };
        let waiting: Vec<Arrival> = (0..3).map(|_| arrive(&mut machine, "a", 7, 0)).collect();
        assert_eq!(arrive(&mut machine, "a", 7, 0), Arrival::Rejected("queue-full"));
        let Arrival::Queued(first) = waiting[0] else { panic!() };
        assert!(machine.cancel("a", first, 1).is_empty());
        assert!(matches!(arrive(&mut machine, "a", 7, 1), Arrival::Queued(_)));
        let Arrival::Queued(second) = waiting[1] else { panic!() };
        assert_eq!(machine.complete(seat, 2).into_iter().map(|(ticket, _)| ticket).collect::<Vec<_>>(), [second]);
        machine.check();
    }

    #[test]
    fn idle_seats_are_lent_and_reserved_ones_are_not() {
        let mut machine = Machine::new(100);
        // Nominal 50 each; b keeps 40 for itself.
        machine.configure(&[level("a", 50, 0, None, QUEUES), level("b", 50, 20, None, QUEUES)], 0);
        let mut started = 0;
        for flow in 0..200 {
            if matches!(arrive(&mut machine, "a", flow * 7919, 0), Arrival::Started(_)) {
                started += 1;
            }
        }
        assert_eq!(started, 60);
        let b: Vec<Arrival> = (0..45).map(|flow| arrive(&mut machine, "b", flow * 104_729, 0)).collect();
        assert_eq!(b.iter().filter(|arrival| matches!(arrival, Arrival::Started(_))).count(), 40);

        let mut bounded = Machine::new(100);
        bounded.configure(&[level("a", 50, 0, Some(10), Response::Reject), level("b", 50, 100, None, Response::Reject)], 0);
        let started = (0..200).filter(|_| matches!(arrive(&mut bounded, "a", 1, 0), Arrival::Started(_))).count();
        assert_eq!(started, 55);
    }

    #[test]
    fn a_wide_request_waits_for_room_and_is_paid_for() {
        let mut machine = Machine::new(10);
        machine.configure(&[level("a", 1, 0, None, QUEUES)], 0);
        let Arrival::Started(small) = arrive(&mut machine, "a", 1, 0) else { panic!() };
        let Arrival::Queued(wide) = machine.arrive(Request { level: "a", hash: 2, seats: 100, now: 0 }) else { panic!() };
        let started = machine.complete(small, 5);
        assert_eq!(started.len(), 1);
        assert_eq!((started[0].0, started[0].1.seats), (wide, 10));
        assert!(matches!(arrive(&mut machine, "a", 3, 5), Arrival::Queued(_)));
    }

    #[test]
    fn a_level_that_is_gone_serves_out_what_it_has() {
        let mut machine = Machine::new(1);
        machine.configure(&[level("a", 1, 0, None, QUEUES)], 0);
        let Arrival::Started(seat) = arrive(&mut machine, "a", 1, 0) else { panic!() };
        let Arrival::Queued(ticket) = arrive(&mut machine, "a", 1, 0) else { panic!() };
        machine.configure(&[Level::catch_all()], 1);
        machine.check();
        let mut started = machine.complete(seat, 2);
        assert_eq!(started.len(), 1);
        let (next, seat) = started.remove(0);
        assert_eq!(next, ticket);
        machine.complete(seat, 3);
        assert_eq!(machine.standings().map(|(name, _)| name).collect::<Vec<_>>(), ["catch-all"]);
        assert_eq!(arrive(&mut machine, "a", 1, 4), Arrival::Rejected("concurrency-limit"));
    }
}
