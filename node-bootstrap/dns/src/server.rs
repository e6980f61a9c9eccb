//! One query, whatever brought it.

use std::time::Instant;

use hickory_proto::op::{Message, Query};
use parking_lot::{Mutex, RwLock};
use wheelhouse_runtime::metrics::{Counter, Metrics};

use crate::answer::{Decision, Origin, decide, decode, encode_datagram};
use crate::cache::{Cache, Upstream};
use crate::forward::Upstreams;
use crate::zone::Zone;

pub struct Server {
    pub origin: Origin,
    pub zone: RwLock<ZoneState>,
    upstreams: Upstreams,
    cache: Mutex<Cache>,
    from_zone: Counter,
    from_cache: Counter,
    forwarded: Counter,
}

/// The zone, and whether it is all there.
#[derive(Default)]
pub struct ZoneState {
    pub zone: Zone,
    pub has_services: bool,
    pub has_slices: bool,
}

/// A reply with the request that it is for, which says how long it may be.
pub struct Reply {
    request: Message,
    message: Message,
}

/// A question for other servers.
pub struct Forward {
    request: Message,
    question: Query,
    reply: Message,
}

pub enum Taken {
    Nothing,
    Reply(Reply),
    Forward(Forward),
}

impl Reply {
    pub fn datagram(&self) -> Option<Vec<u8>> {
        encode_datagram(&self.message, &self.request)
    }

    /// With the length before it.
    pub fn stream(&self) -> Option<Vec<u8>> {
        let bytes = self.message.to_vec().ok()?;
        let length = u16::try_from(bytes.len()).ok()?;
        Some([&length.to_be_bytes(), bytes.as_slice()].concat())
    }
}

impl Server {
    pub fn new(origin: Origin, upstreams: Upstreams, metrics: &Metrics) -> Self {
        let counter = |source| metrics.counter("wheelhouse_dns_answers_total", "Answers by where they came from.", &[("source", source)]);
        Self {
            origin,
            zone: RwLock::default(),
            upstreams,
            cache: Mutex::default(),
            from_zone: counter("zone"),
            from_cache: counter("cache"),
            forwarded: counter("upstream"),
        }
    }

    /// Does what needs no other server.
    pub fn take(&self, bytes: &[u8]) -> Taken {
        let request = match decode(bytes) {
            Ok(request) => request,
            Err(Some(message)) => return Taken::Reply(Reply { request: (*message).clone(), message: *message }),
            Err(None) => return Taken::Nothing,
        };
        let decision = {
            let state = self.zone.read();
            let zone = (state.has_services && state.has_slices).then_some(&state.zone);
            decide(&request, zone, &self.origin)
        };
        match decision {
            Decision::Ignore => Taken::Nothing,
            Decision::Reply(message) => {
                self.from_zone.increment();
                Taken::Reply(Reply { request, message: *message })
            }
            Decision::Forward { question, reply } => {
                let cached = self.cache.lock().get(&question, wants_dnssec(&request), Instant::now());
                let forward = Forward { request, question, reply: *reply };
                match cached {
                    Some(answer) => {
                        self.from_cache.increment();
                        Taken::Reply(forward.complete(answer))
                    }
                    None => Taken::Forward(forward),
                }
            }
        }
    }

    /// Asks other servers, and remembers what they say.
    pub async fn forward(&self, forward: Forward) -> Reply {
        self.forwarded.increment();
        let dnssec = wants_dnssec(&forward.request);
        let answer = self.upstreams.ask(&forward.question, dnssec).await;
        self.cache.lock().put(&forward.question, dnssec, &answer, Instant::now());
        forward.complete(answer)
    }
}

fn wants_dnssec(request: &Message) -> bool {
    request.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok)
}

impl Forward {
    /// The other server's answer after what the zone said.
    fn complete(self, answer: Upstream) -> Reply {
        let mut message = self.reply;
        message.metadata.response_code = answer.code;
        message.metadata.authentic_data = answer.authentic && message.answers.is_empty();
        message.metadata.authoritative = false;
        message.add_answers(answer.answers);
        message.add_authorities(answer.authorities);
        message.add_additionals(answer.additionals);
        Reply { request: self.request, message }
    }
}
