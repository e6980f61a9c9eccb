//! Records `Event` objects: equal ones become a series, and a storm about one object is cut off.
//!
//! The limits are upstream's (`client-go` event correlator): 25 events per object at once and one more every five minutes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use wheelhouse_base::{Clock, Timestamp};
use wheelhouse_kinds::plan::EventNote;
use wheelhouse_kinds::time::api_time;

use crate::{Client, ClientError, PatchKind};

/// Events about one object that may be recorded at once.
const BURST: f64 = 25.0;
/// One more event per object after this long.
const REFILL: Duration = Duration::from_secs(300);
/// Objects and events remembered per recorder; the oldest half is forgotten beyond it.
const REMEMBERED: usize = 4096;

/// Writes events in one component's name.
pub struct EventRecorder {
    client: Client,
    component: &'static str,
    clock: Arc<dyn Clock>,
    state: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// Equal events, by everything that makes them equal.
    known: HashMap<String, Known>,
    /// Tokens left per object.
    buckets: HashMap<String, (f64, Timestamp)>,
}

#[derive(Clone)]
struct Known {
    name: String,
    count: u32,
    last: Timestamp,
}

impl EventRecorder {
    pub fn new(client: Client, component: &'static str, clock: Arc<dyn Clock>) -> Self {
        Self { client, component, clock, state: Mutex::default() }
    }

    /// Records one event. Losing one to an error is upstream's behaviour too: events inform, nothing depends on them.
    pub async fn record(&self, note: &EventNote) -> Result<(), ClientError> {
        let now = self.clock.now();
        let Some(known) = self.state.lock().admit(note, now) else { return Ok(()) };
        let namespace = if note.key.namespace.is_empty() { "default" } else { &note.key.namespace };
        let api = self.client.api("", "v1", "events", namespace);
        if known.count > 1 {
            let patch = json!({"count": known.count, "lastTimestamp": api_time(now)});
            match api.patch::<Value>(&known.name, "", PatchKind::Merge, "", &patch).await {
                Err(error) if error.is_not_found() => {} // its hour is over: begin a new one
                other => return other.map(drop),
            }
        }
        api.create::<Value>(&self.event(note, &known, namespace, now)).await.map(drop)
    }

    fn event(&self, note: &EventNote, known: &Known, namespace: &str, now: Timestamp) -> Value {
        let mut involved = json!({"kind": note.kind, "apiVersion": note.api_version, "name": &*note.key.name, "uid": note.uid});
        if !note.key.namespace.is_empty() {
            involved["namespace"] = json!(&*note.key.namespace);
        }
        json!({
            "kind": "Event", "apiVersion": "v1",
            "metadata": {"name": known.name, "namespace": namespace},
            "involvedObject": involved,
            "reason": note.reason, "message": note.message, "type": note.kind_of_event.as_str(),
            "source": {"component": self.component},
            "reportingComponent": self.component, "reportingInstance": "",
            "firstTimestamp": api_time(now), "lastTimestamp": api_time(now), "count": known.count,
        })
    }
}

impl Memory {
    /// The event's place in its series, or `None` when its object has used up its share.
    fn admit(&mut self, note: &EventNote, now: Timestamp) -> Option<Known> {
        let object = format!("{}\0{}\0{}\0{}", note.kind, note.key.namespace, note.key.name, note.uid);
        let (tokens, at) = self.buckets.entry(object.clone()).or_insert((BURST, now));
        *tokens = (*tokens + now.since(*at).as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        *at = now;
        if *tokens < 1.0 {
            return None;
        }
        *tokens -= 1.0;
        let same = format!("{object}\0{}\0{}\0{}", note.kind_of_event.as_str(), note.reason, note.message);
        let known = self.known.entry(same).or_insert_with(|| Known { name: event_name(&note.key.name, now), count: 0, last: now });
        known.count += 1;
        known.last = now;
        let known = known.clone();
        self.shrink();
        Some(known)
    }

    fn shrink(&mut self) {
        if self.known.len() > REMEMBERED {
            let median = middle(self.known.values().map(|known| known.last));
            self.known.retain(|_, known| known.last > median);
        }
        if self.buckets.len() > REMEMBERED {
            let median = middle(self.buckets.values().map(|bucket| bucket.1));
            self.buckets.retain(|_, bucket| bucket.1 > median);
        }
    }
}

fn middle(times: impl Iterator<Item = Timestamp>) -> Timestamp {
    let mut times: Vec<Timestamp> = times.collect();
    let at = times.len() / 2;
    *times.select_nth_unstable(at).1
}

/// Upstream's form: the object's name and a time in hexadecimal; cut so that it stays a valid name (253 characters).
fn event_name(object: &str, now: Timestamp) -> String {
    let cut = object.char_indices().nth(230).map_or(object.len(), |(at, _)| at);
    format!("{}.{:016x}", &object[..cut], now.as_micros().saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_kinds::plan::EventType;
    use wheelhouse_kinds::view::Key;

    fn note(message: &str) -> EventNote {
        EventNote {
            api_version: "v1".into(),
            kind: "Pod".into(),
            key: Key::new("a", "p"),
            uid: "u".into(),
            kind_of_event: EventType::Warning,
            reason: "FailedScheduling".into(),
            message: message.into(),
        }
    }

    #[test]
    fn equal_events_count_up_and_a_storm_is_cut() {
        let mut memory = Memory::default();
        let now = Timestamp::from_secs(1_000);
        assert_eq!(memory.admit(&note("x"), now).map(|k| k.count), Some(1));
        let again = memory.admit(&note("x"), now.plus(Duration::from_secs(1))).unwrap();
        assert_eq!((again.count, again.name.as_str()), (2, memory.known.values().next().unwrap().name.as_str()));
        let admitted = (0..100).filter(|i| memory.admit(&note(&i.to_string()), now).is_some()).count();
        assert_eq!(admitted, 23, "25 per object, two are gone");
        assert!(memory.admit(&note("later"), now.plus(REFILL + Duration::from_secs(1))).is_some());
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        for i in 0..10_000i64 {
            let mut note = note("x");
            note.key = Key::new("a", i.to_string());
            memory.admit(&note, Timestamp::from_micros(i));
        }
        assert!(memory.known.len() <= REMEMBERED + 1 && memory.buckets.len() <= REMEMBERED + 1);
    }
}
