//! Answers of other servers, for as long as these allow.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// Answers that are held: some 10 MB if all are long. The oldest goes first.
const MAX_ENTRIES: usize = 10_000;

/// No answer is kept longer, whatever it allows: what changed should be seen within minutes.
const MAX_POSITIVE: Duration = Duration::from_secs(300);

/// The same for "there is none" (RFC 2308 allows hours, and people create names after they asked for them).
const MAX_NEGATIVE: Duration = Duration::from_secs(30);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    name: Name,
    kind: RecordType,
    dnssec: bool,
}

struct Entry {
    answer: Upstream,
    stored: Instant,
    lifetime: Duration,
}

/// What of another server's message is passed on.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub code: ResponseCode,
    pub answers: Vec<Record>,
    pub authorities: Vec<Record>,
    pub additionals: Vec<Record>,
    pub authentic: bool,
}

impl Upstream {
    pub fn of(message: Message) -> Self {
        Self {
            code: message.metadata.response_code,
            answers: message.answers,
            authorities: message.authorities,
            additionals: message.additionals,
            authentic: message.metadata.authentic_data,
        }
    }

    /// What a client hears when nobody answered.
    pub fn failure() -> Self {
        Self { code: ResponseCode::ServFail, answers: Vec::new(), authorities: Vec::new(), additionals: Vec::new(), authentic: false }
    }

    /// How long it may be kept; none for failures and for absence without a SOA record, which says how long.
    fn lifetime(&self) -> Option<Duration> {
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        let negative = || {
            let soa = self.authorities.iter().find_map(|record| match &record.data {
                RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
                _ => None,
            });
            soa.map(|ttl| seconds(ttl).min(MAX_NEGATIVE))
        };
        match self.code {
            ResponseCode::NoError if !self.answers.is_empty() => {
                self.answers.iter().map(|record| record.ttl).min().map(|ttl| seconds(ttl).min(MAX_POSITIVE))
            }
            ResponseCode::NoError | ResponseCode::NXDomain => negative(),
            _ => None,
        }
    }
}

#[derive(Default)]
pub struct Cache {
    entries: HashMap<Key, Entry>,
    /// In the order in which they were stored; a key that was stored again is in here twice.
    order: VecDeque<(Key, Instant)>,
}

impl Cache {
    /// The answer with what is left of its times.
    pub fn get(&self, question: &Query, dnssec: bool, now: Instant) -> Option<Upstream> {
        let entry = self.entries.get(&key(question, dnssec))?;
        let age = now.saturating_duration_since(entry.stored);
        if age >= entry.lifetime {
            return None;
        }
        let mut answer = entry.answer.clone();
        let seconds = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
        for record in answer.answers.iter_mut().chain(&mut answer.authorities).chain(&mut answer.additionals) {
            record.ttl = record.ttl.saturating_sub(seconds);
        }
        Some(answer)
    }

    pub fn put(&mut self, question: &Query, dnssec: bool, answer: &Upstream, now: Instant) {
        let Some(lifetime) = answer.lifetime().filter(|lifetime| !lifetime.is_zero()) else { return };
        let key = key(question, dnssec);
        self.entries.insert(key.clone(), Entry { answer: answer.clone(), stored: now, lifetime });
        self.order.push_back((key, now));
        while self.entries.len() > MAX_ENTRIES || self.order.len() > 2 * MAX_ENTRIES {
            let Some((oldest, stored)) = self.order.pop_front() else { return };
            if self.entries.get(&oldest).is_some_and(|entry| entry.stored == stored) {
                self.entries.remove(&oldest);
            }
        }
    }
}

fn key(question: &Query, dnssec: bool) -> Key {
    Key { name: question.name.to_lowercase(), kind: question.query_type, dnssec }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::{A, SOA};

    use super::*;

    fn question(name: &str) -> Query {
        Query::query(Name::from_ascii(name).unwrap(), RecordType::A)
    }

    fn answer(ttl: u32) -> Upstream {
        let record = Record::from_rdata(Name::from_ascii("a.example.").unwrap(), ttl, RData::A(A::new(192, 0, 2, 1)));
        Upstream { code: ResponseCode::NoError, answers: vec![record], ..Upstream::failure() }
    }

    #[test]
    fn times_run_down_and_end() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        cache.put(&question("A.example."), false, &answer(60), now);
        let later = cache.get(&question("a.EXAMPLE."), false, now + Duration::from_secs(20)).unwrap();
        assert_eq!(later.answers[0].ttl, 40);
        assert!(cache.get(&question("a.example."), true, now).is_none(), "asked with DNSSEC");
        assert!(cache.get(&question("a.example."), false, now + Duration::from_secs(60)).is_none());
        cache.put(&question("b.example."), false, &answer(86_400), now);
        assert!(cache.get(&question("b.example."), false, now + MAX_POSITIVE).is_none());
    }

    #[test]
    fn absence_is_kept_as_long_as_its_zone_says_and_failures_are_not() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        let name = Name::from_ascii("example.").unwrap();
        let soa = Record::from_rdata(name.clone(), 900, RData::SOA(SOA::new(name.clone(), name, 1, 1, 1, 1, 10)));
        let absent = Upstream { code: ResponseCode::NXDomain, authorities: vec![soa], ..Upstream::failure() };
        cache.put(&question("no.example."), false, &absent, now);
        assert!(cache.get(&question("no.example."), false, now + Duration::from_secs(9)).is_some());
        assert!(cache.get(&question("no.example."), false, now + Duration::from_secs(10)).is_none());
        cache.put(&question("bad.example."), false, &Upstream::failure(), now);
        cache.put(&question("bare.example."), false, &Upstream { code: ResponseCode::NXDomain, ..Upstream::failure() }, now);
        assert!(cache.get(&question("bad.example."), false, now).is_none() && cache.get(&question("bare.example."), false, now).is_none());
    }

    #[test]
    fn it_is_bounded() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        for number in 0..MAX_ENTRIES + 100 {
            cache.put(&question(&format!("n{number}.example.")), false, &answer(60), now + Duration::from_millis(number as u64));
        }
        assert_eq!(cache.entries.len(), MAX_ENTRIES);
        assert!(cache.get(&question("n99.example."), false, now).is_none());
        assert!(cache.get(&question("n100.example."), false, now + Duration::from_secs(1)).is_some());
    }
}
