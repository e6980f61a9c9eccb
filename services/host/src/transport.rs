//! Raft's frames between hosts, over mutual TLS.
//!
//! ```text
//! send(host, frame) ─▶ queue ─▶ one writer per host: dials, checks that it is that host, writes what is queued in one go
//! accepted connection (peers listener, identity from its certificate) ─▶ reader ─▶ receiver
//! ```
//!
//! Each host writes on the connection that it dialled and reads from those it accepted, so there are two per pair and no negotiation about which
//! of two to keep. A frame is four bytes of length and its bytes. All groups share the connection.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wheelhouse_base::HostName;
use wheelhouse_base::routes::host_server_name;
use wheelhouse_replication::{FrameReceiver, MAX_FRAME_BYTES, NotSent, PeerTransport};
use wheelhouse_runtime::{Stop, Tasks};

use crate::routes::Routes;

pub const ALPN: &[u8] = b"wheelhouse-raft/1";

/// Frames that wait for one host; with more the host is as good as unreachable, and Raft resends what matters.
const QUEUE: usize = 4096;

/// What is written at once: enough to fill segments, little enough to begin early.
const BATCH_BYTES: usize = 256 * 1024;

/// TCP and TLS on a local network take milliseconds.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// After a failed connect, or a connection that did not last as long, nothing is tried for so long: below the beats' interval, so that each beat
/// looks whether a host is back.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Unacknowledged bytes for so long mean a dead path; Raft has moved on by then, this frees the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(3);

/// The buffer that frames are read through.
const READ_BUFFER: usize = 128 * 1024;

pub struct MtlsTransport {
    routes: Routes,
    base_domain: String,
    tls: Arc<ClientConfig>,
    tasks: Tasks,
    receiver: OnceLock<Weak<dyn FrameReceiver>>,
    writers: Mutex<HashMap<HostName, Writer>>,
}

enum Writer {
    /// Connecting or connected; what is queued will be written or dropped with the connection.
    Open(mpsc::Sender<Bytes>),
    /// The last attempt failed.
    Failed(Instant),
}

impl MtlsTransport {
    /// `routes` knows hosts' addresses.
    pub fn new(routes: Routes, base_domain: String, tls: Arc<ClientConfig>, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { routes, base_domain, tls, tasks, receiver: OnceLock::new(), writers: Mutex::default() })
    }

    fn receiver(&self) -> Option<Arc<dyn FrameReceiver>> {
        self.receiver.get()?.upgrade()
    }

    /// Reads frames from a connection that `from` dialled, until it ends.
    pub async fn read_from(&self, from: HostName, stream: impl AsyncRead + Unpin) -> io::Result<()> {
        let ended = self.read_frames(&from, stream).await;
        if let Some(receiver) = self.receiver() {
            receiver.disconnected(&from);
        }
        ended
    }

    async fn read_frames(&self, from: &HostName, mut stream: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = BytesMut::with_capacity(READ_BUFFER);
        loop {
            while let Some(frame) = split_frame(&mut buffer)? {
                let Some(receiver) = self.receiver() else { return Ok(()) };
                receiver.received(from, frame);
            }
            buffer.reserve(READ_BUFFER / 2);
            if stream.read_buf(&mut buffer).await? == 0 {
                return if buffer.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    async fn dial(&self, host: &HostName) -> io::Result<TlsStream<TcpStream>> {
        let known = self.routes.hosts().into_iter().find(|h| h.name == *host);
        let address = known.ok_or_else(|| io::Error::other("the host is not known"))?.peers;
        let name = ServerName::try_from(host_server_name(host, &self.base_domain)).map_err(io::Error::other)?;
        let connecting = async {
            let tcp = TcpStream::connect(&address).await?;
            tcp.set_nodelay(true)?;
            socket2::SockRef::from(&tcp).set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
            TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp).await
        };
        tokio::time::timeout(CONNECT_TIME, connecting).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// Dials, then writes until the connection breaks or the transport stops. The queue goes with the connection.
    async fn write_to(&self, host: &HostName, queue: &mut mpsc::Receiver<Bytes>) -> Ended {
        let stream = match self.dial(host).await {
            Ok(stream) => stream,
            Err(error) => return Ended::NotConnected(error),
        };
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut nothing = [0; 1];
        Ended::Connection(tokio::select! {
            // The other side never writes here: anything readable is its end.
            _ = reader.read(&mut nothing) => Err(io::ErrorKind::ConnectionReset.into()),
            written = write_frames(&mut writer, queue) => written,
        })
    }
}

/// How writing to a host ended.
enum Ended {
    NotConnected(io::Error),
    Connection(io::Result<()>),
}

async fn write_frames(writer: &mut (impl AsyncWrite + Unpin), queue: &mut mpsc::Receiver<Bytes>) -> io::Result<()> {
    let mut batch = BytesMut::with_capacity(BATCH_BYTES);
    while let Some(first) = queue.recv().await {
        batch.clear();
        let mut next = Some(first);
        while let Some(frame) = next {
            batch.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            batch.extend_from_slice(&frame);
            next = if batch.len() < BATCH_BYTES { queue.try_recv().ok() } else { None };
        }
        writer.write_all(&batch).await?;
        writer.flush().await?;
    }
    Ok(())
}

/// The first whole frame in the buffer.
fn split_frame(buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if buffer.len() < 4 + length {
        buffer.reserve(4 + length - buffer.len());
        return Ok(None);
    }
    let _length = buffer.split_to(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Gives the transport to Raft; it is what [`PeerTransport`] is implemented on, because writers need a handle of their own.
#[derive(Clone)]
pub struct Frames(pub Arc<MtlsTransport>);

impl PeerTransport for Frames {
    fn attach(&self, receiver: Weak<dyn FrameReceiver>) {
        // Called once, by contract; a second receiver would be a bug that the first one survives.
        let _ = self.0.receiver.set(receiver);
    }

    fn send(&self, to: &HostName, frame: Bytes) -> Result<(), NotSent> {
        let mut writers = self.0.writers.lock();
        match writers.get(to) {
            Some(Writer::Open(queue)) => return queue.try_send(frame).map_err(|_| NotSent),
            Some(Writer::Failed(at)) if at.elapsed() < BACK_OFF => return Err(NotSent),
            _ => {}
        }
        let (queue, frames) = mpsc::channel(QUEUE);
        queue.try_send(frame).map_err(|_| NotSent)?;
        writers.insert(to.clone(), Writer::Open(queue));
        self.0.tasks.spawn("peer-writer", run_writer(Arc::clone(&self.0), to.clone(), frames, self.0.tasks.stop_signal()));
        Ok(())
    }
}

async fn run_writer(transport: Arc<MtlsTransport>, host: HostName, mut queue: mpsc::Receiver<Bytes>, mut stop: Stop) {
    let began = Instant::now();
    let ended = stop.or(transport.write_to(&host, &mut queue)).await;
    // Later sends begin a new connection, at once if this one served for a while: whether the host is still there is known by dialling it. Frames
    // that were queued are lost, which their callers are told.
    {
        let mut writers = transport.writers.lock();
        match &ended {
            Some(Ended::Connection(_)) if began.elapsed() > BACK_OFF => drop(writers.remove(&host)),
            _ => drop(writers.insert(host.clone(), Writer::Failed(Instant::now()))),
        }
    }
    drop(queue);
    let (error, refused) = match ended {
        None => return,
        Some(Ended::NotConnected(error)) => (Some(error), true),
        Some(Ended::Connection(ended)) => (ended.err(), false),
    };
    let refused = refused && error.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if let Some(error) = error {
        tracing::debug!(%host, %error, after = ?began.elapsed(), "a connection to a host ended");
    }
    let Some(receiver) = transport.receiver() else { return };
    if refused {
        receiver.refused(&host);
    }
    receiver.disconnected(&host);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut buffer = BytesMut::new();
        for frame in [&b"one"[..], b"", b"three"] {
            buffer.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            buffer.extend_from_slice(frame);
        }
        let whole = buffer.clone();
        for cut in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..cut]);
            let mut frames = Vec::new();
            while let Some(frame) = split_frame(&mut part).unwrap() {
                frames.push(frame);
            }
            part.extend_from_slice(&whole[cut..]);
            while let Some(frame) = split_frame(&mut part).unwrap() {
                frames.push(frame);
            }
            assert_eq!(frames, [&b"one"[..], b"", b"three"]);
        }
    }

    #[test]
    fn absurd_lengths_end_the_connection() {
        assert!(split_frame(&mut BytesMut::from(&[0xff, 0xff, 0xff, 0xff][..])).is_err());
    }
}
