//! Frames over byte streams: one connection per pair of hosts, whoever needs it first dials.
//!
//! ```text
//! connection = "WHPR" | version (2, big-endian)        both sides, once
//! frame      = length (4, big-endian) | bytes          an empty frame only says that the sender lives
//! ```
//!
//! Frames that wait are written together, so a busy connection makes few system calls and few TLS records. Both sides send something at
//! least every half second; silence for two seconds means that the connection is of no use, and it is dropped.
//!
//! If both dial at once there are two connections for a while. Each side sends on the one that the host with the lesser name dialled, and
//! reads both, so nothing is lost; the other one falls silent and ends.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use wheelhouse_base::HostName;
use wheelhouse_runtime::Tasks;

use crate::transport::{FrameReceiver, MAX_FRAME_BYTES, NotSent, PeerTransport};

const MAGIC: &[u8; 4] = b"WHPR";
const VERSION: u16 = 1;

/// How long a connection may take to be dialled and greeted.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A frame at least this often; silence for four of them is the end.
const KEEP_ALIVE: Duration = Duration::from_millis(500);
const SILENCE: Duration = Duration::from_secs(2);

/// Between two tries to reach a host that cannot be reached.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Frames that wait for one host at most. What does not fit is not sent, and its sender knows.
const WAITING_FRAMES: usize = 8192;

/// Frames written together at most.
const FRAMES_PER_WRITE: usize = 256;
const READ_BUFFER: usize = 64 << 10;

/// A stream to another host, already authenticated.
pub type BoxedIo = Box<dyn Io>;

pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Opens a stream to another host and makes sure that it is that host.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    async fn dial(&self, host: &HostName) -> io::Result<BoxedIo>;
}

/// One host's connections to all others.
pub struct StreamTransport {
    host: HostName,
    dial: Arc<dyn Dial>,
    tasks: Tasks,
    receiver: OnceLock<Weak<dyn FrameReceiver>>,
    links: Mutex<HashMap<HostName, Link>>,
    this: Weak<Self>,
}

/// What is known of one other host.
#[derive(Default)]
struct Link {
    /// Where frames go now.
    sending: Option<Sending>,
    /// Connections that are open or being dialled.
    open: usize,
    connections: u64,
    back_off: Option<(Instant, Duration)>,
}

struct Sending {
    connection: u64,
    outbox: mpsc::Sender<Bytes>,
    /// Who dialled it.
    dialled_by: HostName,
}

impl StreamTransport {
    /// `host` is this host; its tasks belong to `tasks`.
    pub fn new(host: HostName, dial: Arc<dyn Dial>, tasks: Tasks) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { host, dial, tasks, receiver: OnceLock::new(), links: Mutex::default(), this: this.clone() })
    }

    /// Takes a stream that `host` has opened. The caller has checked that it is that host.
    pub fn accept(&self, host: HostName, io: BoxedIo) {
        let (outbox, frames) = mpsc::channel(WAITING_FRAMES);
        let connection = self.begin(&host, outbox, host.clone());
        let Some(transport) = self.this.upgrade() else { return };
        self.tasks.spawn("peer-accepted", async move {
            let ended = transport.carry(&host, io, frames).await;
            transport.end(&host, connection, &ended);
        });
    }

    /// Whether a connection to `host` is open or being opened.
    pub fn is_linked(&self, host: &HostName) -> bool {
        self.links.lock().get(host).is_some_and(|link| link.sending.is_some())
    }

    /// Notes a connection, and sends on it unless a preferred one is there.
    fn begin(&self, host: &HostName, outbox: mpsc::Sender<Bytes>, dialled_by: HostName) -> u64 {
        let mut links = self.links.lock();
        let link = links.entry(host.clone()).or_default();
        link.connections += 1;
        link.open += 1;
        let connection = link.connections;
        let preferred = (&self.host).min(host);
        let keep = link.sending.as_ref().is_some_and(|old| old.dialled_by == *preferred && dialled_by != *preferred && !old.outbox.is_closed());
        if !keep {
            link.sending = Some(Sending { connection, outbox, dialled_by });
        }
        connection
    }

    fn end(&self, host: &HostName, connection: u64, ended: &io::Error) {
        tracing::debug!(%host, reason = %ended, "a connection between hosts ended");
        let last = {
            let mut links = self.links.lock();
            let Some(link) = links.get_mut(host) else { return };
            link.open -= 1;
            if link.sending.as_ref().is_some_and(|sending| sending.connection == connection) {
                link.sending = None;
            }
            link.open == 0
        };
        if last && let Some(receiver) = self.receiver.get().and_then(Weak::upgrade) {
            receiver.disconnected(host);
        }
    }

    /// Dials in the background; frames may be queued at once.
    fn dial(&self, host: &HostName) -> Option<mpsc::Sender<Bytes>> {
        let transport = self.this.upgrade()?;
        let (outbox, frames) = mpsc::channel(WAITING_FRAMES);
        let connection = self.begin(host, outbox.clone(), self.host.clone());
        let host = host.clone();
        self.tasks.spawn("peer-dialled", async move {
            let ended = match tokio::time::timeout(CONNECT_TIMEOUT, transport.dial.dial(&host)).await {
                Ok(Ok(io)) => transport.carry(&host, io, frames).await,
                Ok(Err(error)) => {
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        && let Some(receiver) = transport.receiver.get().and_then(Weak::upgrade)
                    {
                        receiver.refused(&host);
                    }
                    error
                }
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
            transport.end(&host, connection, &ended);
        });
        Some(outbox)
    }

    fn outbox(&self, host: &HostName) -> Option<mpsc::Sender<Bytes>> {
        {
            let mut links = self.links.lock();
            let link = links.entry(host.clone()).or_default();
            if let Some(sending) = &link.sending
                && !sending.outbox.is_closed()
            {
                return Some(sending.outbox.clone());
            }
            let now = Instant::now();
            let (at, wait) = link.back_off.unwrap_or((now, BACK_OFF.0));
            if now < at {
                return None;
            }
            link.back_off = Some((now + wait, (wait * 2).min(BACK_OFF.1)));
        }
        self.dial(host)
    }

    /// Carries frames in both directions until the connection ends; answers why it did.
    async fn carry(&self, host: &HostName, mut io: BoxedIo, outbox: mpsc::Receiver<Bytes>) -> io::Error {
        match tokio::time::timeout(CONNECT_TIMEOUT, greet(&mut io)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(_) => return io::ErrorKind::TimedOut.into(),
        }
        if let Some(link) = self.links.lock().get_mut(host) {
            link.back_off = None;
        }
        let (reading, writing) = tokio::io::split(io);
        let mut stop = self.tasks.stop_signal();
        tokio::select! {
            biased;
            () = stop.stopped() => io::ErrorKind::Interrupted.into(),
            ended = self.read(host, reading) => ended,
            ended = write(writing, outbox) => ended,
        }
    }

    async fn read(&self, host: &HostName, mut io: impl AsyncRead + Unpin) -> io::Error {
        let mut buffer = BytesMut::with_capacity(READ_BUFFER);
        loop {
            loop {
                match next_frame(&mut buffer) {
                    Ok(Some(frame)) if frame.is_empty() => {}
                    Ok(Some(frame)) => {
                        let Some(receiver) = self.receiver.get().and_then(Weak::upgrade) else { return io::ErrorKind::Interrupted.into() };
                        receiver.received(host, frame);
                    }
                    Ok(None) => break,
                    Err(error) => return error,
                }
            }
            buffer.reserve(READ_BUFFER);
            match tokio::time::timeout(SILENCE, io.read_buf(&mut buffer)).await {
                Ok(Ok(0)) => return io::ErrorKind::UnexpectedEof.into(),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return error,
                Err(_) => return io::Error::new(io::ErrorKind::TimedOut, "the other host is silent"),
            }
        }
    }
}

impl PeerTransport for StreamTransport {
    fn attach(&self, receiver: Weak<dyn FrameReceiver>) {
        // A second receiver would be a mistake in wiring; the first stays.
        let _ = self.receiver.set(receiver);
    }

    fn send(&self, to: &HostName, frame: Bytes) -> Result<(), NotSent> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(NotSent);
        }
        self.outbox(to).ok_or(NotSent)?.try_send(frame).map_err(|_| NotSent)
    }
}

async fn greet(io: &mut BoxedIo) -> io::Result<()> {
    let mut mine = [0; 6];
    mine[..4].copy_from_slice(MAGIC);
    mine[4..].copy_from_slice(&VERSION.to_be_bytes());
    io.write_all(&mine).await?;
    io.flush().await?;
    let mut theirs = [0; 6];
    io.read_exact(&mut theirs).await?;
    if theirs[..4] != MAGIC[..] || theirs[4..] != VERSION.to_be_bytes() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the other side does not speak this version of the peer protocol"));
    }
    Ok(())
}

fn next_frame(buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is larger than any can be"));
    }
    if buffer.len() < 4 + length {
        buffer.reserve(4 + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

async fn write(mut io: impl AsyncWrite + Unpin, mut outbox: mpsc::Receiver<Bytes>) -> io::Error {
    let mut frames = Vec::with_capacity(FRAMES_PER_WRITE);
    let mut buffer = BytesMut::new();
    loop {
        match tokio::time::timeout(KEEP_ALIVE, outbox.recv_many(&mut frames, FRAMES_PER_WRITE)).await {
            // Nothing is sent here any more, but the other side may still send: reading decides when it is over.
            Ok(0) => std::future::pending().await,
            Ok(_) => {}
            Err(_) => frames.push(Bytes::new()),
        }
        for frame in frames.drain(..) {
            buffer.put_u32(u32::try_from(frame.len()).expect("frames are bounded when they are queued"));
            buffer.put_slice(&frame);
        }
        let written = async {
            io.write_all(&buffer).await?;
            io.flush().await
        };
        if let Err(error) = written.await {
            return error;
        }
        buffer.clear();
        // One large snapshot part must not be remembered for ever.
        if buffer.capacity() > 4 * READ_BUFFER {
            buffer = BytesMut::new();
        }
    }
}
