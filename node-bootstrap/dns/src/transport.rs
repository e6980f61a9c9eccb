//! Sockets: datagrams and streams, with limits on both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use wheelhouse_runtime::Tasks;

use crate::server::{Server, Taken};

/// Queries that wait for other servers at one time; more are answered SERVFAIL by their resolvers' own time-out.
const MAX_WAITING: usize = 1000;

/// Open connections; more are closed at once.
const MAX_CONNECTIONS: usize = 256;

/// A connection without a question for this long is closed.
const IDLE: Duration = Duration::from_secs(10);

/// Answers datagrams. What the zone knows is answered in place, at some microseconds each; the rest gets a task.
pub fn serve_datagrams(tasks: &Tasks, socket: UdpSocket, server: Arc<Server>) {
    let (owner, mut stop) = (tasks.clone(), tasks.stop_signal());
    let waiting = Arc::new(Semaphore::new(MAX_WAITING));
    let socket = Arc::new(socket);
    tasks.spawn("dns datagrams", async move {
        let mut buffer = vec![0; 4096];
        loop {
            let Some(received) = stop.or(socket.recv_from(&mut buffer)).await else { return };
            // The error of an earlier send (the peer's port is closed) arrives here; it concerns nobody else.
            let Ok((length, peer)) = received else { continue };
            match server.take(&buffer[..length]) {
                Taken::Nothing => {}
                Taken::Reply(reply) => {
                    if let Some(bytes) = reply.datagram() {
                        let _ = socket.send_to(&bytes, peer).await;
                    }
                }
                Taken::Forward(forward) => {
                    let Ok(permit) = Arc::clone(&waiting).try_acquire_owned() else { continue };
                    let (server, socket) = (Arc::clone(&server), Arc::clone(&socket));
                    owner.spawn("dns forward", async move {
                        let reply = server.forward(forward).await;
                        drop(permit);
                        if let Some(bytes) = reply.datagram() {
                            let _ = socket.send_to(&bytes, peer).await;
                        }
                    });
                }
            }
        }
    });
}

/// Answers connections, each question in turn.
pub fn serve_streams(tasks: &Tasks, listener: TcpListener, server: Arc<Server>) {
    let (owner, mut stop) = (tasks.clone(), tasks.stop_signal());
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    tasks.spawn("dns streams", async move {
        loop {
            let Some(accepted) = stop.or(listener.accept()).await else { return };
            let Ok((stream, peer)) = accepted else { continue };
            let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else { continue };
            let server = Arc::clone(&server);
            owner.spawn("dns connection", async move {
                let _permit = permit;
                if let Err(error) = converse(stream, &server).await {
                    log_broken(peer, &error);
                }
            });
        }
    });
}

fn log_broken(peer: SocketAddr, error: &std::io::Error) {
    tracing::debug!(%peer, %error, "a connection broke");
}

async fn converse(mut stream: TcpStream, server: &Server) -> std::io::Result<()> {
    loop {
        let Ok(length) = tokio::time::timeout(IDLE, stream.read_u16()).await else { return Ok(()) };
        let length = match length {
            Ok(length) => usize::from(length),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; length];
        let Ok(read) = tokio::time::timeout(IDLE, stream.read_exact(&mut bytes)).await else { return Ok(()) };
        read?;
        let reply = match server.take(&bytes) {
            Taken::Nothing => return Ok(()),
            Taken::Reply(reply) => reply,
            Taken::Forward(forward) => server.forward(forward).await,
        };
        let Some(bytes) = reply.stream() else { return Ok(()) };
        stream.write_all(&bytes).await?;
    }
}
