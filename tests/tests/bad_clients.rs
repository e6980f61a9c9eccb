//! Clients that speak the wrong protocol, say too much, too little or nothing, or ask too often: each gets an answer or is let go, and nobody else
//! notices. Foreign certificates, tokens and names are in `isolation.rs`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use wheelhouse_client::kubeconfig::Connection;
use wheelhouse_tests::{Https, Kubectl, Request, Service, Tenant};

/// What a client may send at most, as upstream's `--max-request-bytes` for resources.
const BODY_LIMIT: usize = 3 << 20;

/// The endpoint waits 5 s for a hello, a replica 30 s for a request's head. A busy machine is later.
const LET_GO: Duration = Duration::from_secs(50);

/// Above the burst that one address may send to the tenant API.
const TOO_MANY: usize = 900;

#[test]
#[ignore = "it has not been seen to pass since its last change: run it with `--run-ignored all -E 'binary(bad_clients)'`"]
fn bad_clients_are_answered_or_let_go() {
    let service = Service::start();
    let tenant = service.tenant("first");
    tenant.run(&["cluster", "create", "demo", "--wait=3m"]).ok();
    let kubectl = tenant.kubectl("demo");
    let connection = Connection::parse(&kubectl.kubeconfig()).expect("a kubeconfig");

    let address = connection.target.address.as_str();
    std::thread::scope(|scope| {
        // Those that wait, all at once.
        scope.spawn(|| is_let_go(TcpStream::connect(address).expect("the endpoint listens"), b"", "says nothing"));
        scope.spawn(|| is_let_go(TcpStream::connect(address).expect("the endpoint listens"), &[22, 3, 1, 2, 0, 1], "stops within its hello"));
        scope.spawn(|| is_let_go(tls(&connection), b"", "says nothing after the handshake"));
        scope.spawn(|| is_let_go(tls(&connection), b"GET /api HTTP/1.1\r\nHost: x\r\n", "stops within a request's head"));
        scope.spawn(|| stops_within_its_body(&connection));
        plain_http(address);
        too_large(&kubectl, &tenant);
        assert_eq!(kubectl.run(&["get", "ns", "default", "-o", "name"]).ok().trim(), "namespace/default", "others are served meanwhile");
    });
    too_many(&tenant);
    assert_eq!(kubectl.run(&["get", "ns", "default", "-o", "name"]).ok().trim(), "namespace/default");
}

fn tls(connection: &Connection) -> StreamOwned<ClientConnection, TcpStream> {
    let config = connection.tls(&[b"http/1.1"]).expect("the kubeconfig's credentials");
    let name = ServerName::try_from(connection.target.server_name.clone()).expect("a server name");
    let tcp = TcpStream::connect(&connection.target.address).expect("the endpoint listens");
    tcp.set_read_timeout(Some(LET_GO)).expect("a timeout is set");
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a client"), tcp)
}

/// Sends something and waits for the end, which the server must make.
fn is_let_go(mut stream: impl Read + Write, said: &[u8], how: &str) {
    let began = Instant::now();
    stream.write_all(said).and_then(|()| stream.flush()).unwrap_or_else(|error| panic!("a client that {how}: {error}"));
    let mut rest = Vec::new();
    // How it is told matters as little as to a client that is gone.
    let _ = stream.read_to_end(&mut rest);
    assert!(began.elapsed() < LET_GO, "a client that {how} is held");
}

/// A body that does not come: the request's own time ends it.
fn stops_within_its_body(connection: &Connection) {
    let head =
        "POST /api/v1/namespaces/default/configmaps?timeout=2s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    let mut stream = tls(connection);
    stream.write_all(head.as_bytes()).and_then(|()| stream.flush()).expect("the request is sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("there is an answer");
    assert!(answer.starts_with(b"HTTP/1.1 504") || answer.starts_with(b"HTTP/1.1 408"), "{:?}", String::from_utf8_lossy(&answer));
}

fn plain_http(address: &str) {
    let mut stream = TcpStream::connect(address).expect("the endpoint listens");
    stream.write_all(b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n").expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("there is an answer");
    assert!(answer.starts_with("HTTP/1.0 400 ") && answer.contains("Client sent an HTTP request to an HTTPS server."), "{answer}");
}

fn too_large(kubectl: &Kubectl, tenant: &Tenant) {
    let body =
        |length: usize| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"large"}},"data":{{"k":"{}"}}}}"#, "x".repeat(length));
    let post = |to: &Https, path: &str, length| to.send(&Request::new("POST", path, body(length)));
    let answer = post(&kubectl.https(), "/api/v1/namespaces/default/configmaps", BODY_LIMIT);
    assert_eq!(answer.status, 413, "{}", answer.body.chars().take(300).collect::<String>());
    assert!(answer.body.contains("\"reason\":\"RequestEntityTooLarge\""), "{answer:?}");
    let answer = post(&tenant.api(), "/v1/clusters", BODY_LIMIT);
    assert!(answer.status == 413 && answer.content_type.starts_with("application/problem+json"), "{answer:?}");
}

fn too_many(tenant: &Tenant) {
    let api = tenant.api();
    let answers = api.send_all(&vec![Request::get("/v1/tenants/me"); TOO_MANY]);
    let refused = answers.iter().find(|answer| answer.status == 429).expect("one address may not ask without end");
    assert!(refused.body.contains("\"type\":\"https://wheelhouse.dev/problems/too-many-requests\""), "{refused:?}");
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 429)), "nothing else is answered");
}
