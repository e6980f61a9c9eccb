//! The store alone behind etcd's API, beside a real etcd: one member each, then three each, both with a sync for each batch of writes, the same load on
//! each, spread over the members.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use wheelhouse_etcd::generated::etcdserverpb as pb;
use wheelhouse_etcd::generated::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use wheelhouse_etcd::generated::etcdserverpb::kv_client::KvClient;
use wheelhouse_etcd::generated::etcdserverpb::request_op::Request;
use wheelhouse_etcd::generated::etcdserverpb::watch_client::WatchClient;

use crate::figure::Figure;
use crate::load;

const WORKERS: usize = 64;
/// The workers share so many connections, the same number to each member.
const CONNECTIONS: usize = 6;
/// For each rate.
const TIME: Duration = Duration::from_secs(4);
/// A ConfigMap of medium size.
const VALUE: usize = 1024;
/// Watchers of one prefix, each on a connection of its own as an API server's are, and who make the events.
const WATCHERS: usize = 20;
const WATCH_WRITERS: usize = 16;
/// Keys that are read, written before.
const READ: u64 = 1_000;
/// Until a server answers its first request.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Rates of one server, per second.
struct Rates {
    puts: f64,
    txns: f64,
    ranges: f64,
    watch_events: f64,
}

/// A figure's name and where it is found.
type Rate = (&'static str, fn(&Rates) -> f64);

pub fn run(runtime: &Runtime) -> Result<()> {
    runtime.block_on(async {
        for (members, suffix, peer_name) in [(1, "_one_member", "etcd 3.5.1, one member"), (3, "", "etcd 3.5.1, three members")] {
            let ours = Server::wheelhouse(members)?.measure().await.context("the store")?;
            // Without a real etcd here the readings stand alone.
            let peer = match std::env::var_os("WHEELHOUSE_ETCD") {
                Some(programs) => Some(Server::etcd(Path::new(&programs), members)?.measure().await.context("etcd")?),
                None => None,
            };
            let rates: [Rate; 4] = [
                ("store_puts", |r| r.puts),
                ("store_create_txns", |r| r.txns),
                ("store_ranges", |r| r.ranges),
                ("store_watch_events", |r| r.watch_events),
            ];
            for (name, of) in rates {
                let figure = Figure::new(format!("{name}{suffix}"), of(&ours), "1/s");
                match &peer {
                    Some(peer) => figure.peer(peer_name, of(peer)).print(),
                    None => figure.print(),
                }
            }
        }
        Ok(())
    })
}

/// A store with etcd's API and nothing in it, killed when dropped.
struct Server {
    processes: Vec<Child>,
    addresses: Vec<String>,
    _data: TempDir,
}

/// Where one member listens.
struct Place {
    name: String,
    client: String,
    peer: String,
    folder: String,
}

impl Server {
    fn wheelhouse(members: usize) -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?.with_file_name("wheelhouse-host");
        Self::start(program, members, |own, all| {
            let members = all.iter().map(|place| format!("{}={}", place.name, place.peer)).collect::<Vec<_>>().join(",");
            let flags = [("store-dir", &own.folder), ("store-listen", &own.client), ("store-name", &own.name), ("store-members", &members)];
            let flags = flags.into_iter().map(|(name, value)| format!("--{name}={value}"));
            std::iter::once("--store-only".to_owned()).chain(flags).collect()
        })
    }

    fn etcd(programs: &Path, members: usize) -> Result<Self> {
        Self::start(programs.join("etcd"), members, |own, all| {
            let members = all.iter().map(|place| format!("{}=http://{}", place.name, place.peer)).collect::<Vec<_>>().join(",");
            let (client, peer) = (format!("http://{}", own.client), format!("http://{}", own.peer));
            let flags = [
                ("name", own.name.clone()),
                ("data-dir", own.folder.clone()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer),
                ("initial-cluster", members),
                ("log-level", "error".to_owned()),
            ];
            flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
        })
    }

    fn start(program: PathBuf, members: usize, arguments: impl Fn(&Place, &[Place]) -> Vec<String>) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let place = |number: usize| {
            let name = format!("m{number}");
            let folder = data.path().join(&name).display().to_string();
            Ok(Place { name, client: free_address()?, peer: free_address()?, folder })
        };
        let places = (0..members).map(place).collect::<Result<Vec<_>>>()?;
        let mut server = Self { processes: Vec::new(), addresses: Vec::new(), _data: data };
        for own in &places {
            let mut command = Command::new(&program);
            command.args(arguments(own, &places)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            server.processes.push(command.spawn().with_context(|| format!("{} does not start", program.display()))?);
            server.addresses.push(own.client.clone());
        }
        Ok(server)
    }

    fn endpoint(&self, number: usize) -> Result<Endpoint> {
        Ok(Endpoint::new(format!("http://{}", self.addresses[number % self.addresses.len()]))?)
    }

    async fn measure(self) -> Result<Rates> {
        let clients = Arc::new(self.connect().await?);
        let value = bytes::Bytes::from(vec![b'x'; VALUE]);
        for number in 0..READ {
            clients[0].clone().put(put("read", number, &value)).await?;
        }
        let (own, body) = (Arc::clone(&clients), value.clone());
        let puts = load::rate(WORKERS, TIME, move |turn| {
            let (mut client, request) = (own[turn.worker % CONNECTIONS].clone(), put("put", turn.number, &body));
            async move { Ok(client.put(request).await.map(drop)?) }
        })
        .await?;
        let (own, body) = (Arc::clone(&clients), value);
        let txns = load::rate(WORKERS, TIME, move |turn| {
            let (mut client, request) = (own[turn.worker % CONNECTIONS].clone(), create(turn.number, &body));
            async move { Ok(client.txn(request).await.map(drop)?) }
        })
        .await?;
        let own = clients;
        let ranges = load::rate(WORKERS, TIME, move |turn| {
            let (mut client, request) =
                (own[turn.worker % CONNECTIONS].clone(), pb::RangeRequest { key: key("read", turn.number % READ), ..Default::default() });
            async move { Ok(client.range(request).await.map(drop)?) }
        })
        .await?;
        let watch_events = self.watches().await?;
        Ok(Rates { puts, txns, ranges, watch_events })
    }

    /// Events per second that reached all watchers of a prefix together, while keys below it are written.
    async fn watches(&self) -> Result<f64> {
        let clients = Arc::new(self.connect().await?);
        let events = Arc::new(AtomicU64::new(0));
        let mut watchers = JoinSet::new();
        for number in 0..WATCHERS {
            let mut client = WatchClient::new(self.endpoint(number)?.connect().await?);
            let create = pb::WatchCreateRequest { key: "/registry/watched/".into(), range_end: "/registry/watched0".into(), ..Default::default() };
            let request = pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
            // The request's side stays open: a stream whose client has finished ends.
            let requests = futures::stream::once(async { request }).chain(futures::stream::pending());
            let mut answers = client.watch(requests).await?.into_inner();
            answers.message().await?.context("a watch is confirmed")?;
            let events = Arc::clone(&events);
            watchers.spawn(async move {
                while let Ok(Some(answer)) = answers.message().await {
                    events.fetch_add(answer.events.len() as u64, Ordering::Relaxed);
                }
            });
        }
        let body = bytes::Bytes::from(vec![b'x'; VALUE]);
        let started = Instant::now();
        load::rate(WATCH_WRITERS, TIME, move |turn| {
            let (mut client, request) = (clients[turn.worker % CONNECTIONS].clone(), put("watched", turn.number, &body));
            async move { Ok(client.put(request).await.map(drop)?) }
        })
        .await?;
        let rate = events.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
        watchers.shutdown().await;
        Ok(rate)
    }

    /// Connections that have answered.
    async fn connect(&self) -> Result<Vec<KvClient<Channel>>> {
        let clients = (0..CONNECTIONS).map(|number| Ok(KvClient::new(self.endpoint(number)?.connect_lazy()))).collect::<Result<Vec<_>>>()?;
        let started = Instant::now();
        for client in &clients {
            while let Err(error) = client.clone().range(pb::RangeRequest { key: key("read", 0), ..Default::default() }).await {
                if started.elapsed() > START_LIMIT {
                    bail!("no answer within {START_LIMIT:?}: {error}");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(clients)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _already_dead = process.kill();
            let _ = process.wait();
        }
    }
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn key(kind: &str, number: u64) -> bytes::Bytes {
    format!("/registry/{kind}/{number:012}").into()
}

fn put(kind: &str, number: u64, value: &bytes::Bytes) -> pb::PutRequest {
    pb::PutRequest { key: key(kind, number), value: value.clone(), ..Default::default() }
}

/// What an API server sends to create an object: put unless the key exists.
fn create(number: u64, value: &bytes::Bytes) -> pb::TxnRequest {
    let absent = pb::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key("txn", number),
        target_union: Some(TargetUnion::ModRevision(0)),
        ..Default::default()
    };
    let put = pb::RequestOp { request: Some(Request::RequestPut(put("txn", number, value))) };
    pb::TxnRequest { compare: vec![absent], success: vec![put], failure: Vec::new() }
}
