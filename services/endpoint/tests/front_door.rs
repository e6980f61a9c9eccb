//! An endpoint between a TLS client and hosts that the test plays.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use wheelhouse_base::routes::{ALPN, HostRoutes, KnownHost, ReplicaRoute, peers_server_name};
use wheelhouse_base::{Clock, ClusterId, ReplicaId, SystemClock};
use wheelhouse_endpoint::listener::{self, Endpoint, Limits};
use wheelhouse_endpoint::metrics::EndpointMetrics;
use wheelhouse_endpoint::streams;
use wheelhouse_pki::{AltName, Authority, Leaf, Subject, Usage, Validity};
use wheelhouse_runtime::tls::{self, CertificateSlot};
use wheelhouse_runtime::{Metrics, Tasks, proxy};

const BASE: &str = "test.internal";

fn cluster() -> ClusterId {
    ClusterId::from_random(1)
}

/// One authority for everything that the test plays.
struct World {
    authority: Authority,
    tasks: Tasks,
}

impl World {
    fn new() -> Self {
        let life = Validity::lasting(SystemClock.now(), Duration::from_secs(3600));
        Self { authority: Authority::create("test", life).unwrap(), tasks: Tasks::new("test") }
    }

    fn identity(&self, name: &str) -> CertificateSlot {
        let leaf = Leaf {
            subject: Subject::new(name, &[]),
            alt_names: vec![AltName::Dns(name.to_owned())],
            usage: Usage::Both,
            validity: Validity::lasting(SystemClock.now(), Duration::from_secs(600)),
        };
        let (certificate, key) = self.authority.issue_with_key(&leaf).unwrap();
        CertificateSlot::from_pem(&certificate, &key).unwrap()
    }

    /// A replica that answers every connection with the client's address and its own name.
    async fn replica(&self, name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(tls::api_server_config(self.identity(&format!("{}.{BASE}", cluster())), &[]).unwrap());
        let inner = self.tasks.clone();
        self.tasks.spawn("replica", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                inner.spawn("replica-connection", async move {
                    let client = proxy::read_header(&mut stream).await.unwrap().client.unwrap();
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let _ = stream.write_all(format!("{name} {client}").as_bytes()).await;
                    let mut rest = Vec::new();
                    let _ = stream.read_to_end(&mut rest).await;
                    let _ = stream.write_all(&rest).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        address
    }

    /// A host's routes stream; what is sent into the channel is pushed to the endpoint.
    async fn host(&self, name: &str, clients: SocketAddr) -> Host {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peers = listener.local_addr().unwrap().to_string();
        let known = KnownHost { name: name.parse().unwrap(), clients: clients.to_string(), peers: peers.clone() };
        let (push, updates) = tokio::sync::watch::channel(report(&known, true, vec![known.clone()]));
        let config = tls::peer_server_config(self.identity(&peers_server_name(BASE)), &self.authority.certificate_pem(), &[ALPN]).unwrap();
        let (acceptor, inner) = (TlsAcceptor::from(config), self.tasks.clone());
        self.tasks.spawn("host", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, mut updates) = (acceptor.clone(), updates.clone());
                inner.spawn("host-stream", async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    loop {
                        let mut line = serde_json::to_vec(&*updates.borrow_and_update()).unwrap();
                        line.push(b'\n');
                        if stream.write_all(&line).await.is_err() || stream.flush().await.is_err() || updates.changed().await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Host { known, push }
    }

    async fn endpoint(&self, seed: &Host, data: &std::path::Path) -> (Arc<Endpoint>, SocketAddr) {
        let limits = Limits { per_cluster: 4, total: 8 };
        let endpoint = Endpoint::new(BASE.to_owned(), streams::load(data).unwrap(), limits, EndpointMetrics::new(Metrics::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = tls::client_config(&self.authority.certificate_pem(), Some(self.identity("endpoint")), &[ALPN]).unwrap();
        streams::run(&self.tasks, Arc::clone(&endpoint), tls, vec![seed.known.peers.clone()], data.to_owned()).unwrap();
        listener::serve(&self.tasks, &self.tasks, Arc::clone(&endpoint), listener);
        (endpoint, address)
    }

    /// Connects by name and reads what the replica says first.
    async fn greet(&self, endpoint: SocketAddr, server_name: &str) -> std::io::Result<String> {
        let config = tls::client_config(&self.authority.certificate_pem(), None, &[]).unwrap();
        let stream = TcpStream::connect(endpoint).await?;
        let local = stream.local_addr()?;
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let mut stream = TlsConnector::from(config).connect(name, stream).await?;
        stream.write_all(b"echo").await?;
        stream.shutdown().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        assert!(answer.contains(&local.to_string()), "the replica knows the client's address: {answer}");
        assert!(answer.ends_with("echo"), "bytes pass both ways: {answer}");
        Ok(answer.split(' ').next().unwrap().to_owned())
    }
}

struct Host {
    known: KnownHost,
    push: tokio::sync::watch::Sender<HostRoutes>,
}

fn report(host: &KnownHost, ready: bool, hosts: Vec<KnownHost>) -> HostRoutes {
    let replica = ReplicaId(u64::from(host.name.as_str().as_bytes()[0] - b'a' + 1));
    let replicas = vec![ReplicaRoute { cluster: cluster(), replica, ready, leader: false }];
    HostRoutes { host: host.clone(), incarnation: "1".into(), draining: false, replicas, hosts }
}

/// Waits until something is true, for at most five seconds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

#[tokio::test]
async fn connections_find_a_ready_replica_and_survive_its_loss() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let a = world.host("a", world.replica("a").await).await;
    let b = world.host("b", dead).await;
    a.push.send_replace(report(&a.known, true, vec![a.known.clone(), b.known.clone()]));
    b.push.send_replace(report(&b.known, true, vec![a.known.clone(), b.known.clone()]));
    let (endpoint, address) = world.endpoint(&a, data.path()).await;
    until("both hosts are known", || endpoint.table.read().fresh_hosts() == 2).await;

    let name = format!("{}.{BASE}", cluster());
    for _ in 0..4 {
        assert_eq!(world.greet(address, &name).await.unwrap(), "a", "the host that refuses connections is passed over");
    }
    assert!(endpoint.metrics.ejections.value() >= 1);
    until("connections are given back", || endpoint.open_connections() == 0).await;

    until("the table is on disk", || streams::load(data.path()).is_ok_and(|t| t.hosts().count() == 2)).await;
    world.tasks.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn what_cannot_be_routed_is_answered() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let a = world.host("a", world.replica("a").await).await;
    let (endpoint, address) = world.endpoint(&a, data.path()).await;
    until("the host is known", || endpoint.table.read().fresh_hosts() == 1).await;

    let error = world.greet(address, "c-zzzzzzzzzz.test.internal").await.unwrap_err();
    assert!(error.to_string().contains("UnrecognizedName") || error.to_string().contains("UnrecognisedName"), "{error}");

    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 400 ") && answer.ends_with("HTTP request to an HTTPS server.\n"), "{answer}");

    // Five connections of one cluster, where four are allowed.
    let mut held = Vec::new();
    for _ in 0..4 {
        let config = tls::client_config(&world.authority.certificate_pem(), None, &[]).unwrap();
        let name = ServerName::try_from(format!("{}.{BASE}", cluster())).unwrap();
        held.push(TlsConnector::from(config).connect(name, TcpStream::connect(address).await.unwrap()).await.unwrap());
    }
    assert!(world.greet(address, &format!("{}.{BASE}", cluster())).await.is_err());
    drop(held);
    until("connections are given back", || endpoint.open_connections() == 0).await;
    assert_eq!(world.greet(address, &format!("{}.{BASE}", cluster())).await.unwrap(), "a");
    world.tasks.stop(Duration::from_secs(1)).await;
}

/// Clients that connect and say nothing, or stop within their hello, take the endpoint's places for some seconds and no longer.
#[tokio::test]
async fn silent_clients_are_let_go() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let a = world.host("a", world.replica("a").await).await;
    let (endpoint, address) = world.endpoint(&a, data.path()).await;
    until("the host is known", || endpoint.table.read().fresh_hosts() == 1).await;

    let mut silent = Vec::new();
    for n in 0..8 {
        let mut client = TcpStream::connect(address).await.unwrap();
        if n % 2 == 0 {
            client.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        }
        silent.push(client);
    }
    until("all places are taken", || endpoint.open_connections() == 8).await;
    let name = format!("{}.{BASE}", cluster());
    assert!(world.greet(address, &name).await.is_err(), "there is no ninth place");
    // The endpoint waits five seconds for a hello.
    let ended = async {
        for client in &mut silent {
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the endpoint ends them");
    until("connections are given back", || endpoint.open_connections() == 0).await;
    assert_eq!(world.greet(address, &name).await.unwrap(), "a");

    let mut strange = TcpStream::connect(address).await.unwrap();
    strange.write_all(&[0xff; 64]).await.unwrap();
    let mut answer = Vec::new();
    strange.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, wheelhouse_endpoint::hello::DECODE_ERROR, "what is no TLS at all is answered as such");
    world.tasks.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_restarted_endpoint_routes_from_its_disk() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let clients = world.replica("a").await;
    let known = KnownHost { name: "a".parse().unwrap(), clients: clients.to_string(), peers: "127.0.0.1:1".into() };
    let mut table = wheelhouse_endpoint::table::Table::default();
    table.report(report(&known, true, vec![known.clone()]));
    std::fs::write(data.path().join("routes.json"), serde_json::to_vec(&table).unwrap()).unwrap();
    let (push, _) = tokio::sync::watch::channel(report(&known, true, Vec::new()));
    let (endpoint, address) = world.endpoint(&Host { known, push }, data.path()).await;
    assert_eq!(endpoint.table.read().fresh_hosts(), 0, "no stream can come up");
    assert_eq!(world.greet(address, &format!("{}.{BASE}", cluster())).await.unwrap(), "a");
    world.tasks.stop(Duration::from_secs(1)).await;
}
