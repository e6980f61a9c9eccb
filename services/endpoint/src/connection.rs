//! One client's connection: read its hello, reach a replica, carry bytes until both sides are done.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::Instrument;
use wheelhouse_runtime::metrics::Counter;
use wheelhouse_runtime::{proxy, trace_context};

use crate::hello::{self, Hello, MAX_HELLO};
use crate::listener::{Admitted, Endpoint};
use crate::table::{Candidate, Route};

/// A hello arrives within a few round trips; who takes longer holds a connection and does nothing with it.
const HELLO_TIME: Duration = Duration::from_secs(5);

/// A host on the same network answers a SYN in a millisecond; a dead one costs this much before the next is tried.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// How long a replica may take to answer a hello. It is CPU time and a queue, no disk.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Nothing in either direction for so long ends a connection: upstream's limit for idle streams (exec, port-forward).
const IDLE_TIME: Duration = Duration::from_secs(4 * 60 * 60);

/// A dead peer is noticed after 30 s idle and three probes of 10 s, or when sent bytes stay unacknowledged for 30 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// One read. Large answers are lists; bigger buffers bring nothing with a socket in between.
const BUFFER: usize = 64 * 1024;

/// Buffers that are kept for the next read, not counting those in use.
const SPARE_BUFFERS: usize = 64;

/// Runs a connection to its end.
pub(crate) async fn carry(endpoint: Arc<Endpoint>, mut admitted: Admitted, mut client: TcpStream, address: SocketAddr) {
    tune(&client);
    let result = match timeout(HELLO_TIME, read_hello(&mut client)).await {
        Err(_) => "slow",
        Ok(Err(_)) => "closed",
        Ok(Ok((Hello::PlainHttp, _))) => refuse(&mut client, hello::PLAIN_HTTP_ANSWER, "plain_http").await,
        Ok(Ok((Hello::Malformed | Hello::Incomplete, _))) => refuse(&mut client, &hello::DECODE_ERROR, "malformed").await,
        Ok(Ok((Hello::ServerName(name), received))) => {
            let route = name.and_then(|name| Route::of(&name, &endpoint.base_domain)).filter(|r| endpoint.table.read().knows(&r.cluster));
            match route {
                None => refuse(&mut client, &hello::UNRECOGNIZED_NAME, "unknown_name").await,
                Some(route) if !admitted.enter_cluster(&route.cluster) => refuse(&mut client, &hello::INTERNAL_ERROR, "limit").await,
                Some(route) => {
                    // Ends with the connection; what is asked over it are the replica's spans below this one.
                    let span = tracing::debug_span!("connection", cluster = %route.cluster, host = tracing::field::Empty);
                    pass_on(&endpoint, &mut admitted, &route, client, address, &received).instrument(span).await
                }
            }
        }
    };
    endpoint.metrics.ended(result);
}

/// Reads until the hello is whole, or is none.
async fn read_hello(client: &mut TcpStream) -> io::Result<(Hello, Vec<u8>)> {
    let mut received = Vec::with_capacity(2048);
    loop {
        if client.read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match hello::parse(&received) {
            Hello::Incomplete if received.len() > MAX_HELLO => return Ok((Hello::Malformed, received)),
            Hello::Incomplete => {}
            verdict => return Ok((verdict, received)),
        }
    }
}

async fn refuse(client: &mut TcpStream, answer: &[u8], result: &'static str) -> &'static str {
    // Whether the client still listens does not matter.
    let _ = client.write_all(answer).await;
    let _ = client.shutdown().await;
    // Closing with unread bytes would reset the connection and take the answer with it.
    let mut rest = [0; 1024];
    let drain = async { while client.read(&mut rest).await.is_ok_and(|n| n > 0) {} };
    let _ = timeout(Duration::from_millis(500), drain).await;
    result
}

async fn pass_on(
    endpoint: &Arc<Endpoint>,
    admitted: &mut Admitted,
    route: &Route,
    mut client: TcpStream,
    address: SocketAddr,
    hello: &[u8],
) -> &'static str {
    for candidate in endpoint.candidates(route) {
        match reach(&candidate, &client, address, hello).await {
            Ok((replica, answer)) => {
                tracing::Span::current().record("host", tracing::field::display(&candidate.host));
                admitted.enter_host(&candidate.host);
                if client.write_all(&answer).await.is_ok() {
                    splice(endpoint, route, &client, &replica).await;
                }
                return "ok";
            }
            Err(error) => {
                tracing::info!(cluster = %route.cluster, host = %candidate.host, %error, "a replica did not answer");
                endpoint.eject(&candidate.host);
            }
        }
    }
    refuse(&mut client, &hello::INTERNAL_ERROR, "no_replica").await
}

/// Connects, hands over the hello, and waits for the first bytes of the answer: a replica that closes before has done nothing.
async fn reach(candidate: &Candidate, client: &TcpStream, address: SocketAddr, hello: &[u8]) -> io::Result<(TcpStream, Vec<u8>)> {
    let mut replica = timeout(CONNECT_TIME, TcpStream::connect(&candidate.address)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    tune(&replica);
    let mut first = proxy::header(address, client.local_addr()?, trace_context::current().as_deref());
    first.extend_from_slice(hello);
    replica.write_all(&first).await?;
    let mut answer = Vec::with_capacity(4096);
    match timeout(ANSWER_TIME, replica.read_buf(&mut answer)).await {
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
        Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => read.map(|_| (replica, answer)),
    }
}

/// Both directions until both have ended; an error in one ends both.
async fn splice(endpoint: &Endpoint, route: &Route, client: &TcpStream, replica: &TcpStream) {
    let (inbound, outbound) = endpoint.metrics.bytes(&route.cluster);
    let both = async { tokio::try_join!(one_way(client, replica, &inbound), one_way(replica, client, &outbound)) };
    // How a connection broke is the two ends' affair.
    let _ = both.await;
}

/// Copies until the source ends, then says so to the sink. A buffer is held only while bytes are on their way, so an idle connection costs none.
async fn one_way(from: &TcpStream, to: &TcpStream, bytes: &Counter) -> io::Result<()> {
    loop {
        timeout(IDLE_TIME, from.readable()).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let mut buffer = Buffer::take();
        let read = match from.try_read(&mut buffer.0) {
            Ok(0) => return shut_down_write(to),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        bytes.add(read as u64);
        let mut rest = &buffer.0[..read];
        while !rest.is_empty() {
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                Err(error) => return Err(error),
            }
        }
    }
}

fn shut_down_write(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write)
}

/// Small messages at once, and dead peers noticed. What cannot be set is not worth a connection.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
}

/// A buffer out of the common store, returned when it is dropped.
struct Buffer(Vec<u8>);

static SPARES: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

impl Buffer {
    fn take() -> Self {
        Self(SPARES.lock().pop().unwrap_or_else(|| vec![0; BUFFER]))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut spares = SPARES.lock();
        if spares.len() < SPARE_BUFFERS {
            spares.push(std::mem::take(&mut self.0));
        }
    }
}
