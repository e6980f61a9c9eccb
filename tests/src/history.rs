//! Clients at work on one cluster while things break around it. They note everything for the judge.
//!
//! ```text
//! writers ─┐                                    ┌─ watches, each resuming elsewhere when it breaks
//! readers ─┼─▶ endpoints ─▶ cluster ─▶ endpoints ┤
//!          │   another one after each failure    └─ the Leases by which leaders tell their terms
//!          └────────────▶ Seen ◀─────────────────┘
//! ```
//!
//! The objects are ConfigMaps of one namespace, a few names with many writers each, so that compares fail and names come back. What one watch told is
//! the order of all changes; that it told all of them shows where a write was acknowledged and is not in it, and where the watches differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use wheelhouse_client::kubeconfig::Connection;
use wheelhouse_client::{Client, ClientError, ListOptions, PatchKind, TransportError, WatchEvent};
use wheelhouse_history::{Change, Claim, Mark, Read, Seen, Step, Write, WriteResult};
use wheelhouse_kinds::plan::DeleteOptions;

const WRITERS: usize = 4;
const READERS: usize = 2;
const WATCHES: usize = 3;

/// Few, so that writers meet.
const KEYS: usize = 5;

/// The last change: whoever has seen it has seen everything.
const END: &str = "end";

/// The annotation by which a leader says which term it leads.
const TERM: &str = "control-plane.wheelhouse.dev/term";

/// A request without an answer by then is given up, with an unknown outcome: a new leader is there long before.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// A watch that tells nothing for so long begins again elsewhere, as clients' own do after some minutes.
const WATCH_LIMIT: Duration = Duration::from_secs(3);

/// Between attempts of one client.
const PAUSE_MILLIS: u64 = 20;

/// A cluster whose hosts all run answers by then.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// Clients at work.
pub struct Load {
    world: Arc<World>,
    clients: Vec<JoinHandle<()>>,
    watches: Vec<JoinHandle<()>>,
    claims: JoinHandle<()>,
}

/// The end of it.
#[derive(Debug)]
pub struct Settled {
    /// What was seen, for people.
    pub summary: String,
    pub revisions: usize,
}

struct World {
    connections: Vec<Connection>,
    namespace: String,
    seen: Mutex<Seen>,
    over: AtomicBool,
    /// Where the watches begin.
    begin: String,
}

/// A client that goes to another endpoint when one fails.
struct Caller {
    world: Arc<World>,
    at: usize,
    client: Client,
}

impl Load {
    /// Begins in a fresh namespace, with one kubeconfig for each endpoint.
    pub async fn start(kubeconfigs: &[String], namespace: &str, seed: u64) -> Result<Self> {
        let connections: Vec<Connection> = kubeconfigs.iter().map(|text| Connection::parse(text)).collect::<Result<_, _>>()?;
        let client = connections.first().context("one endpoint at least")?.client()?;
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let made: Value = client.api("", "v1", "namespaces", "").create(&object).await.context("making the namespace")?;
        let begin = text(&made, "/metadata/resourceVersion").to_owned();
        let world = Arc::new(World { connections, namespace: namespace.to_owned(), seen: Mutex::default(), over: AtomicBool::new(false), begin });
        let rng = |n: usize| StdRng::seed_from_u64(seed ^ ((n as u64 + 1) << 32));
        let mut clients = Vec::new();
        for n in 0..WRITERS {
            clients.push(tokio::spawn(write_loop(Caller::new(&world, n)?, n, rng(n))));
        }
        for n in 0..READERS {
            clients.push(tokio::spawn(read_loop(Caller::new(&world, n)?, rng(WRITERS + n))));
        }
        let mut watches = Vec::new();
        for n in 0..WATCHES {
            watches.push(tokio::spawn(watch_loop(Caller::new(&world, n)?, format!("client {n}"))));
        }
        let claims = tokio::spawn(claim_loop(Caller::new(&world, 0)?));
        Ok(Self { world, clients, watches, claims })
    }

    /// Ends the clients, waits until the watches have seen everything, and lets the judge speak.
    pub async fn settle(self) -> Result<Settled> {
        let Self { world, clients, watches, claims } = self;
        world.over.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.context("a client failed")?;
        }
        let mut caller = Caller::new(&world, 0)?;
        timeout(SETTLE_LIMIT, caller.put_end()).await.context("the cluster takes no write any more")?;
        for (n, mut watch) in watches.into_iter().enumerate() {
            if timeout(SETTLE_LIMIT, &mut watch).await.is_err() {
                watch.abort();
                let told = world.seen.lock().watched.get(&format!("client {n}")).map_or(0, Vec::len);
                bail!("client {n}'s watch does not come to its end; it told {told} revisions");
            }
        }
        timeout(SETTLE_LIMIT, caller.list_until_answered()).await.context("the cluster answers no list any more")?;
        claims.abort();
        let seen = world.seen.lock();
        let steps = seen.watched.get("client 0").context("the first watch told nothing")?;
        let summary = seen.summary();
        seen.judge(steps).map_err(|broken| anyhow::anyhow!("{broken} ({summary})"))?;
        ensure!(!seen.claims.is_empty(), "no leader published its term");
        Ok(Settled { summary, revisions: steps.len() })
    }
}

impl World {
    fn tick(&self) -> u64 {
        self.seen.lock().tick()
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

impl Caller {
    fn new(world: &Arc<World>, at: usize) -> Result<Self> {
        let client = world.connections[at % world.connections.len()].client()?;
        Ok(Self { world: Arc::clone(world), at, client })
    }

    /// A new connection to the next endpoint.
    fn elsewhere(&mut self) {
        self.at += 1;
        if let Ok(client) = self.world.connections[self.at % self.world.connections.len()].client() {
            self.client = client;
        }
    }

    fn maps(&self) -> wheelhouse_client::Api<'_> {
        self.client.api("", "v1", "configmaps", &self.world.namespace)
    }

    /// One object, as of now: `None` if there was no answer.
    async fn read(&mut self, key: &str) -> Option<Option<(Bytes, u64)>> {
        let invoked = self.world.tick();
        let answer = timeout(REQUEST_LIMIT, self.maps().find::<Value>(key)).await;
        let mut seen = self.world.seen.lock();
        let completed = seen.tick();
        let Ok(Ok(object)) = answer else {
            drop(seen);
            self.elsewhere();
            return None;
        };
        let found = object.as_ref().map(value_and_revision);
        seen.reads.push(Read { invoked, completed, revision: None, key: key.to_owned().into(), found: found.clone() });
        Some(found)
    }

    /// All objects at one revision. Says whether there was an answer.
    async fn list(&mut self) -> bool {
        let invoked = self.world.tick();
        let answer = timeout(REQUEST_LIMIT, self.maps().list::<Value>(&ListOptions::default())).await;
        let mut seen = self.world.seen.lock();
        let completed = seen.tick();
        let Ok(Ok(list)) = answer else {
            drop(seen);
            self.elsewhere();
            return false;
        };
        let revision = text(&list, "/metadata/resourceVersion").parse().ok();
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        for key in (0..KEYS).map(key_name) {
            let found = items.iter().find(|item| text(item, "/metadata/name") == key).map(value_and_revision);
            seen.reads.push(Read { invoked, completed, revision, key: key.into(), found });
        }
        true
    }

    async fn list_until_answered(&mut self) {
        while !self.list().await {
            sleep(Duration::from_millis(PAUSE_MILLIS)).await;
        }
    }

    async fn put_end(&mut self) {
        let object = object(END, "", None);
        loop {
            match timeout(REQUEST_LIMIT, self.maps().create::<Value>(&object)).await {
                Ok(Ok(_)) => return,
                Ok(Err(error)) if error.is_already_exists() => return,
                _ => self.elsewhere(),
            }
            sleep(Duration::from_millis(PAUSE_MILLIS)).await;
        }
    }

    async fn send(&self, key: &str, value: Option<&str>, compare: Option<u64>) -> Result<Value, ClientError> {
        match (value, compare) {
            (Some(value), Some(0)) => self.maps().create(&object(key, value, None)).await,
            (Some(value), Some(revision)) => self.maps().update(key, "", &object(key, value, Some(revision))).await,
            (Some(value), None) => self.maps().patch(key, "", PatchKind::Merge, "", &json!({"data": {"v": value}})).await,
            (None, compare) => {
                let options = DeleteOptions { resource_version: compare.map(|revision| revision.to_string()), ..DeleteOptions::default() };
                self.maps().delete(key, &options).await
            }
        }
    }
}

fn key_name(n: usize) -> String {
    format!("k{n}")
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn object(key: &str, value: &str, revision: Option<u64>) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": key}, "data": {"v": value}});
    if let Some(revision) = revision {
        object["metadata"]["resourceVersion"] = Value::from(revision.to_string());
    }
    object
}

fn value_and_revision(object: &Value) -> (Bytes, u64) {
    (text(object, "/data/v").to_owned().into(), revision_of(object))
}

fn revision_of(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or_default()
}

async fn write_loop(mut caller: Caller, number: usize, mut rng: StdRng) {
    for n in 0.. {
        if caller.world.is_over() {
            return;
        }
        sleep(Duration::from_millis(rng.random_range(0..PAUSE_MILLIS))).await;
        let key = key_name(rng.random_range(0..KEYS));
        let Some(found) = caller.read(&key).await else { continue };
        let fresh = format!("{number}-{n}");
        let (value, compare) = match found {
            None => (Some(fresh), Some(0)),
            Some((_, revision)) if rng.random_bool(0.15) => (None, Some(revision)),
            Some((_, revision)) if rng.random_bool(0.5) => (Some(fresh), Some(revision)),
            Some(_) => (Some(fresh), None),
        };
        write(&mut caller, key, value, compare).await;
    }
}

async fn write(caller: &mut Caller, key: String, value: Option<String>, compare: Option<u64>) {
    let invoked = caller.world.tick();
    let answer = timeout(REQUEST_LIMIT, caller.send(&key, value.as_deref(), compare)).await;
    let result = match &answer {
        // A deleted object's answer says that it is deleted, and not when.
        Ok(Ok(_)) if value.is_none() => WriteResult::Done(None),
        Ok(Ok(object)) => WriteResult::Done(Some(revision_of(object))),
        Ok(Err(error)) => outcome(error),
        Err(_) => WriteResult::Unknown,
    };
    {
        let mut seen = caller.world.seen.lock();
        let completed = seen.tick();
        let name = format!("{key}={}", value.as_deref().unwrap_or("deleted"));
        let (key, value) = (key.into(), value.map(Bytes::from));
        seen.writes.push(Write { invoked, completed, name, key, value, compare, mark: Mark::Itself, result });
    }
    if !matches!(answer, Ok(Ok(_))) {
        caller.elsewhere();
    }
}

/// What a client may conclude from an error: that nothing was done, only where the answer promises so.
fn outcome(error: &ClientError) -> WriteResult {
    match error {
        ClientError::Transport(TransportError::Connect { .. }) => WriteResult::NotDone,
        _ if matches!(error.code(), 404 | 409 | 429 | 503) => WriteResult::NotDone,
        _ => WriteResult::Unknown,
    }
}

async fn read_loop(mut caller: Caller, mut rng: StdRng) {
    while !caller.world.is_over() {
        sleep(Duration::from_millis(rng.random_range(0..PAUSE_MILLIS))).await;
        if rng.random_bool(0.5) {
            caller.list().await;
        } else {
            caller.read(&key_name(rng.random_range(0..KEYS))).await;
        }
    }
}

/// Watches the namespace until the end was told, from where the former connection ended.
async fn watch_loop(mut caller: Caller, name: String) {
    let mut after = caller.world.begin.clone();
    loop {
        let options = ListOptions { resource_version: after.clone(), ..ListOptions::default() };
        let opened = timeout(REQUEST_LIMIT, caller.maps().watch(&options)).await;
        if let Ok(Err(error)) = &opened
            && error.is_gone()
        {
            caller.world.seen.lock().broken.push(format!("{name} cannot watch after {after}: {error}"));
            return;
        }
        if let Ok(Ok(mut watch)) = opened {
            while let Ok(Some(event)) = timeout(WATCH_LIMIT, watch.next()).await {
                let (object, gone) = match event {
                    Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => (object, false),
                    Ok(WatchEvent::Deleted(object)) => (object, true),
                    Ok(WatchEvent::Bookmark(revision)) => {
                        after = revision;
                        continue;
                    }
                    Err(error) if error.is_gone() => {
                        caller.world.seen.lock().broken.push(format!("{name} cannot watch after {after}: {error}"));
                        return;
                    }
                    Err(_) => break,
                };
                after = text(&object, "/metadata/resourceVersion").to_owned();
                let key = text(&object, "/metadata/name").to_owned();
                let is_end = key == END;
                // The controllers' own.
                if is_end || key.starts_with('k') && key.len() == 2 {
                    let (value, revision) = value_and_revision(&object);
                    let change = Change { key: key.into(), value: (!gone).then_some(value) };
                    let step = Step { revision, changes: vec![change] };
                    caller.world.seen.lock().watched.entry(name.clone()).or_default().push(step);
                }
                if is_end {
                    return;
                }
            }
        }
        caller.elsewhere();
        sleep(Duration::from_millis(PAUSE_MILLIS)).await;
    }
}

/// Notes who published which term, by the Lease that each leader writes once.
async fn claim_loop(mut caller: Caller) {
    let mut after = String::new();
    loop {
        let followed = follow_claims(&caller, &mut after).await;
        if followed.is_err() {
            caller.elsewhere();
        }
        sleep(Duration::from_millis(PAUSE_MILLIS)).await;
    }
}

async fn follow_claims(caller: &Caller, after: &mut String) -> Result<()> {
    let leases = caller.client.api("coordination.k8s.io", "v1", "leases", "kube-system");
    let options = ListOptions { field_selector: "metadata.name=kube-controller-manager".to_owned(), ..ListOptions::default() };
    if after.is_empty() {
        let list: Value = timeout(REQUEST_LIMIT, leases.list(&options)).await??;
        for lease in list["items"].as_array().into_iter().flatten() {
            note_claim(caller, lease);
        }
        text(&list, "/metadata/resourceVersion").clone_into(after);
    }
    let options = ListOptions { resource_version: after.clone(), ..options };
    let mut watch = timeout(REQUEST_LIMIT, leases.watch(&options)).await??;
    while let Some(event) = timeout(WATCH_LIMIT, watch.next()).await? {
        match event? {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                note_claim(caller, &lease);
                text(&lease, "/metadata/resourceVersion").clone_into(after);
            }
            WatchEvent::Bookmark(revision) => *after = revision,
            WatchEvent::Deleted(_) => {}
        }
    }
    Ok(())
}

fn note_claim(caller: &Caller, lease: &Value) {
    let term = lease["metadata"]["annotations"][TERM].as_str().and_then(|term| term.parse().ok());
    if let Some(term) = term {
        let claim = Claim { holder: text(lease, "/spec/holderIdentity").to_owned(), term };
        caller.world.seen.lock().claims.push((revision_of(lease), claim));
    }
}
