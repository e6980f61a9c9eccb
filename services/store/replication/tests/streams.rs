//! Frames over byte streams: one connection per pair of hosts, found again after it breaks, dropped when the other side is silent or speaks
//! something else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use wheelhouse_base::HostName;
use wheelhouse_replication::{BoxedIo, Dial, FrameReceiver, PeerTransport, StreamTransport};
use wheelhouse_runtime::Tasks;

fn host(name: &str) -> HostName {
    name.parse().unwrap()
}

/// Connects hosts by pipes in memory; what it opened last can be broken.
#[derive(Default)]
struct Pipes {
    hosts: Mutex<HashMap<HostName, Arc<StreamTransport>>>,
    dialled: Mutex<Vec<HostName>>,
    /// Dials that go nowhere end here instead.
    hole: Mutex<Option<mpsc::Sender<DuplexStream>>>,
}

struct From(HostName, Arc<Pipes>);

#[async_trait::async_trait]
impl Dial for From {
    async fn dial(&self, host: &HostName) -> io::Result<BoxedIo> {
        let Self(me, pipes) = self;
        pipes.dialled.lock().unwrap().push(host.clone());
        let (mine, theirs) = tokio::io::duplex(1 << 20);
        let hole = pipes.hole.lock().unwrap().clone();
        if let Some(hole) = hole {
            hole.send(theirs).await.unwrap();
            return Ok(Box::new(mine));
        }
        let other = pipes.hosts.lock().unwrap().get(host).cloned();
        other.ok_or(io::ErrorKind::ConnectionRefused)?.accept(me.clone(), Box::new(theirs));
        Ok(Box::new(mine))
    }
}

enum Heard {
    Frame(HostName, Bytes),
    Disconnected(HostName),
    Refused(HostName),
}

struct Ear(mpsc::UnboundedSender<Heard>);

impl FrameReceiver for Ear {
    fn received(&self, from: &HostName, frame: Bytes) {
        let _ = self.0.send(Heard::Frame(from.clone(), frame));
    }

    fn disconnected(&self, host: &HostName) {
        let _ = self.0.send(Heard::Disconnected(host.clone()));
    }

    fn refused(&self, host: &HostName) {
        let _ = self.0.send(Heard::Refused(host.clone()));
    }
}

struct End {
    transport: Arc<StreamTransport>,
    tasks: Tasks,
    heard: mpsc::UnboundedReceiver<Heard>,
    _ear: Arc<dyn FrameReceiver>,
}

impl End {
    fn new(name: &str, pipes: &Arc<Pipes>) -> Self {
        let tasks = Tasks::new(name);
        let transport = StreamTransport::new(host(name), Arc::new(From(host(name), pipes.clone())), tasks.clone());
        let (tx, heard) = mpsc::unbounded_channel();
        let ear: Arc<dyn FrameReceiver> = Arc::new(Ear(tx));
        let weak: Weak<dyn FrameReceiver> = Arc::downgrade(&ear);
        transport.attach(weak);
        pipes.hosts.lock().unwrap().insert(host(name), transport.clone());
        Self { transport, tasks, heard, _ear: ear }
    }

    async fn frame(&mut self) -> (HostName, Bytes) {
        match self.heard.recv().await.unwrap() {
            Heard::Frame(from, frame) => (from, frame),
            Heard::Disconnected(host) | Heard::Refused(host) => panic!("{host} is gone"),
        }
    }

    async fn refused(&mut self) -> HostName {
        loop {
            if let Heard::Refused(host) = self.heard.recv().await.unwrap() {
                return host;
            }
        }
    }

    async fn disconnected(&mut self) -> HostName {
        match self.heard.recv().await.unwrap() {
            Heard::Disconnected(host) => host,
            Heard::Frame(_, frame) => panic!("a frame of {} bytes", frame.len()),
            Heard::Refused(host) => panic!("{host} refused"),
        }
    }

    /// Sends as soon as the transport takes it.
    async fn send(&self, to: &str, frame: impl Into<Bytes>) {
        let frame = frame.into();
        while self.transport.send(&host(to), frame.clone()).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_connection_carries_both_directions_in_order() {
    let pipes = Arc::new(Pipes::default());
    let (mut a, mut b) = (End::new("host-a", &pipes), End::new("host-b", &pipes));
    for i in 0..1000_u32 {
        a.send("host-b", i.to_be_bytes().to_vec()).await;
    }
    for i in 0..1000_u32 {
        assert_eq!(b.frame().await, (host("host-a"), Bytes::from(i.to_be_bytes().to_vec())));
    }
    b.send("host-a", vec![7; 3 << 20]).await;
    assert_eq!(a.frame().await.1, vec![7; 3 << 20]);
    assert_eq!(pipes.dialled.lock().unwrap().len(), 1, "the answer went back on the same connection");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_stays_and_a_dead_host_is_noticed_and_found_again() {
    let pipes = Arc::new(Pipes::default());
    let (mut a, b) = (End::new("host-a", &pipes), End::new("host-b", &pipes));
    a.send("host-b", "hello").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(a.transport.is_linked(&host("host-b")));
    pipes.hosts.lock().unwrap().remove(&host("host-b"));
    b.tasks.stop(Duration::from_secs(1)).await;
    assert_eq!(a.disconnected().await, host("host-b"));
    assert!(!a.transport.is_linked(&host("host-b")));
    // Nobody answers: few tries are made.
    let before = pipes.dialled.lock().unwrap().len();
    for _ in 0..1000 {
        let _ = a.transport.send(&host("host-b"), Bytes::from_static(b"lost"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let tries = pipes.dialled.lock().unwrap().len() - before;
    assert!((5..=20).contains(&tries), "{tries} tries in 10 s");
    assert_eq!(a.refused().await, host("host-b"), "its process is gone");
    let mut b = End::new("host-b", &pipes);
    a.send("host-b", "again").await;
    while b.frame().await.1 != "again" {}
}

#[tokio::test(start_paused = true)]
async fn a_silent_host_is_dropped() {
    let pipes = Arc::new(Pipes::default());
    let (hole, mut dialled) = mpsc::channel(1);
    *pipes.hole.lock().unwrap() = Some(hole);
    let mut a = End::new("host-a", &pipes);
    a.send("host-b", "hello").await;
    let mut silent = dialled.recv().await.unwrap();
    let mut greeting = [0; 6];
    silent.read_exact(&mut greeting).await.unwrap();
    silent.write_all(&greeting).await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(a.disconnected().await, host("host-b"));
    assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn another_protocol_is_refused() {
    for garbage in [&b"GET / "[..], b"WHPR\x00\x63", b"WHPR\x00\x01\xff\xff\xff\xff"] {
        let pipes = Arc::new(Pipes::default());
        let (hole, mut dialled) = mpsc::channel(1);
        *pipes.hole.lock().unwrap() = Some(hole);
        let mut a = End::new("host-a", &pipes);
        a.send("host-b", "hello").await;
        let mut other = dialled.recv().await.unwrap();
        other.write_all(garbage).await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(a.disconnected().await, host("host-b"));
        assert!(began.elapsed() < Duration::from_secs(1), "refused at once, not by silence");
    }
}

#[tokio::test(start_paused = true)]
async fn two_hosts_that_dial_at_once_lose_nothing() {
    let pipes = Arc::new(Pipes::default());
    let (mut a, mut b) = (End::new("host-a", &pipes), End::new("host-b", &pipes));
    for i in 0..100_u32 {
        a.send("host-b", i.to_be_bytes().to_vec()).await;
        b.send("host-a", i.to_be_bytes().to_vec()).await;
        tokio::task::yield_now().await;
    }
    let mut seen = (Vec::new(), Vec::new());
    for _ in 0..100 {
        seen.0.push(a.frame().await.1);
        seen.1.push(b.frame().await.1);
    }
    seen.0.sort();
    seen.1.sort();
    let all: Vec<_> = (0..100_u32).map(|i| Bytes::from(i.to_be_bytes().to_vec())).collect();
    assert_eq!(seen, (all.clone(), all));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(a.transport.is_linked(&host("host-b")) && b.transport.is_linked(&host("host-a")));
}
