//! Asks the node's own resolvers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::answer::MAX_DATAGRAM;
use crate::cache::Upstream;

/// How long one server may take. Two servers and two rounds fit into the five seconds after which resolvers give up.
const TIMEOUT: Duration = Duration::from_millis(1200);

/// Rounds over all servers before the client is told that nobody answers.
const ROUNDS: usize = 2;

/// Servers of one file that are used, as in the C library.
const MAX_SERVERS: usize = 3;

/// How often the file is looked at.
const RELOAD: Duration = Duration::from_secs(5);

const PORT: u16 = 53;

/// The servers of a `resolv.conf`, read again when the file changes.
pub struct Upstreams {
    file: PathBuf,
    /// Our own addresses: asking ourselves would go in a circle.
    own: Vec<IpAddr>,
    state: Mutex<State>,
    /// The server that answered last goes first.
    preferred: AtomicUsize,
}

struct State {
    servers: Vec<SocketAddr>,
    modified: Option<SystemTime>,
    looked: Option<Instant>,
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("no answer in time")]
    Timeout,
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("an answer that does not decode")]
    Malformed,
}

impl Upstreams {
    pub fn new(file: PathBuf, own: Vec<IpAddr>) -> Self {
        Self { file, own, state: Mutex::new(State { servers: Vec::new(), modified: None, looked: None }), preferred: AtomicUsize::new(0) }
    }

    fn servers(&self) -> Vec<SocketAddr> {
        let mut state = self.state.lock();
        if state.looked.is_none_or(|looked| looked.elapsed() >= RELOAD) {
            state.looked = Some(Instant::now());
            let modified = std::fs::metadata(&self.file).and_then(|meta| meta.modified()).ok();
            if modified.is_none() || modified != state.modified {
                // A file that is missing for a moment, as when it is replaced, changes nothing.
                if let Ok(text) = std::fs::read_to_string(&self.file) {
                    state.servers = parse(&text, &self.own);
                    state.modified = modified;
                }
            }
        }
        state.servers.clone()
    }

    /// The answer of the first server that gives one; SERVFAIL when none does.
    pub async fn ask(&self, question: &Query, dnssec: bool) -> Upstream {
        let servers = self.servers();
        let first = self.preferred.load(Ordering::Relaxed);
        for _ in 0..ROUNDS {
            for offset in 0..servers.len() {
                let at = (first + offset) % servers.len();
                match ask(servers[at], question, dnssec).await {
                    Ok(message) => {
                        self.preferred.store(at, Ordering::Relaxed);
                        return Upstream::of(message);
                    }
                    Err(error) => tracing::debug!(server = %servers[at], name = %question.name, %error, "a resolver did not answer"),
                }
            }
        }
        Upstream::failure()
    }
}

fn parse(text: &str, own: &[IpAddr]) -> Vec<SocketAddr> {
    let lines = text.lines().filter_map(|line| line.split('#').next()?.trim().strip_prefix("nameserver"));
    // A zone after an address (`fe80::1%eth0`) names an interface; such servers are left out.
    let addresses = lines.filter_map(|rest| rest.trim().parse::<IpAddr>().ok()).filter(|address| !own.contains(address));
    addresses.map(|address| SocketAddr::new(address, PORT)).take(MAX_SERVERS).collect()
}

fn query(question: &Query, dnssec: bool) -> Message {
    let mut message = Message::new(rand::random(), MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(question.clone());
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_DATAGRAM as u16);
    edns.set_dnssec_ok(dnssec);
    message.set_edns(edns);
    message
}

async fn ask(server: SocketAddr, question: &Query, dnssec: bool) -> Result<Message, AskError> {
    let message = query(question, dnssec);
    let bytes = message.to_vec().map_err(|_| AskError::Malformed)?;
    let answer = tokio::time::timeout(TIMEOUT, datagram(server, &message, &bytes)).await.map_err(|_| AskError::Timeout)??;
    if !answer.metadata.truncation {
        return Ok(answer);
    }
    tokio::time::timeout(TIMEOUT, stream(server, &message, &bytes)).await.map_err(|_| AskError::Timeout)?
}

/// A fresh socket and so a fresh port for each question: with the random id that makes forged answers hard.
async fn datagram(server: SocketAddr, asked: &Message, bytes: &[u8]) -> Result<Message, AskError> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Anything that is not the answer to this question is somebody's attempt.
        if let Some(answer) = Message::from_vec(&buffer[..length]).ok().filter(|answer| belongs(answer, asked)) {
            return Ok(answer);
        }
    }
}

async fn stream(server: SocketAddr, asked: &Message, bytes: &[u8]) -> Result<Message, AskError> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(|_| AskError::Malformed)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    Message::from_vec(&answer).ok().filter(|answer| belongs(answer, asked)).ok_or(AskError::Malformed)
}

fn belongs(answer: &Message, asked: &Message) -> bool {
    answer.metadata.id == asked.metadata.id && answer.metadata.message_type == MessageType::Response && answer.queries == asked.queries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_file() {
        let text = "# made by dhcp\nsearch example.org\nnameserver 192.0.2.1 # first\nnameserver 10.96.0.10\nnameserver fe80::1%eth0\nnameserver 2001:db8::1\noptions ndots:5\n";
        let servers = parse(text, &["10.96.0.10".parse().unwrap()]);
        assert_eq!(servers, ["192.0.2.1:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap()]);
    }
}
