//! The server on a node that is a network namespace, asked over UDP and TCP by a pod, with a resolver of the outside behind it.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

#[path = "../../testing/api.rs"]
mod api;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::Api;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use wheelhouse_dns::Config;
use wheelhouse_net::testing::{Namespace, PATIENCE, can_run, enter, wait_for};
use wheelhouse_runtime::Metrics;
use wheelhouse_runtime::shutdown::stop_pair;

const SERVER: &str = "10.96.0.10:53";

fn query(name: &str) -> Vec<u8> {
    let mut message = Message::new(77, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

fn by_datagram(from: &Namespace, name: &str) -> Option<Message> {
    let socket = from.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    // Before the server has its address, the node drops the question without a word.
    socket.set_read_timeout(Some(PATIENCE / 5)).unwrap();
    socket.connect(SERVER).ok()?;
    socket.send(&query(name)).ok()?;
    let mut buffer = [0; 2048];
    let length = socket.recv(&mut buffer).ok()?;
    Message::from_vec(&buffer[..length]).ok()
}

fn by_stream(from: &Namespace, names: &[&str]) -> Vec<Message> {
    let mut stream = from.enter(|| TcpStream::connect_timeout(&SERVER.parse().unwrap(), PATIENCE)).unwrap();
    let ask = |name| {
        let bytes = query(name);
        stream.write_all(&[&(bytes.len() as u16).to_be_bytes(), bytes.as_slice()].concat()).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).unwrap();
        Message::from_vec(&answer).unwrap()
    };
    names.iter().copied().map(ask).collect()
}

/// A resolver that knows `N.example.` as N addresses, and cuts datagrams of more than twenty. Answers how often it was asked.
fn resolver(at: &Namespace) -> Arc<AtomicUsize> {
    let (udp, tcp) = at.enter(|| (UdpSocket::bind("192.0.2.53:53").unwrap(), TcpListener::bind("192.0.2.53:53").unwrap()));
    let asked = Arc::new(AtomicUsize::new(0));
    let reply = |bytes: &[u8], limit: usize| {
        let mut message = Message::from_vec(bytes).unwrap().into_response();
        message.edns = None;
        let name = message.queries[0].name.clone();
        let count: usize = String::from_utf8_lossy(name.iter().next().unwrap()).parse().unwrap();
        message.metadata.truncation = count > limit;
        for number in 0..count.min(limit) {
            message.add_answer(Record::from_rdata(name.clone(), 60, RData::A(A::new(203, 0, 113, number as u8))));
        }
        message.to_vec().unwrap()
    };
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, peer)) = udp.recv_from(&mut buffer) {
            count.fetch_add(1, Ordering::Relaxed);
            udp.send_to(&reply(&buffer[..length], 20), peer).unwrap();
        }
    });
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = tcp.accept() {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut bytes).unwrap();
            let answer = reply(&bytes, 255);
            stream.write_all(&[&(answer.len() as u16).to_be_bytes(), answer.as_slice()].concat()).unwrap();
        }
    });
    asked
}

#[test]
fn a_pod_resolves_names_of_the_cluster_and_of_the_outside() {
    if !can_run() {
        return;
    }
    let [node, pod, outside] = ["node", "pod", "outside"].map(Namespace::new);
    node.join("pod", "10.244.1.1/24", &pod, "eth0", "10.244.1.2/24");
    pod.ip("route add default via 10.244.1.1");
    node.join("eth0", "192.0.2.1/24", &outside, "eth0", "192.0.2.53/24");
    let asked = resolver(&outside);
    let directory = tempfile::tempdir().unwrap();
    let resolv_conf = directory.path().join("resolv.conf");
    std::fs::write(&resolv_conf, "nameserver 10.96.0.10\nnameserver 192.0.2.53\n").unwrap();
    let api = Api::start();
    api.put("{apiVersion: v1, kind: Service, metadata: {namespace: default, name: web}, spec: {clusterIP: 10.96.0.5, clusterIPs: [10.96.0.5], ports: [{port: 80}]}}");

    let (handle, stop) = stop_pair();
    let (client, path) = (api.client.clone(), node.path());
    let config = Config {
        domain: "cluster.local".into(),
        addresses: vec!["10.96.0.10".parse().unwrap()],
        cluster_networks: vec!["10.244.0.0/16".into(), "10.96.0.0/16".into()],
        resolv_conf,
        port: 53,
    };
    let thread = std::thread::spawn(move || {
        enter(&path);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(wheelhouse_dns::run(client, config, &Metrics::default(), stop)).unwrap();
    });

    let answers = |name: &str| by_datagram(&pod, name).map(|message| (message.metadata.response_code, message.answers.len()));
    wait_for(|| answers("web.default.svc.cluster.local."), |answer| *answer == Some((ResponseCode::NoError, 1)));
    assert_eq!(answers("no.default.svc.cluster.local."), Some((ResponseCode::NXDomain, 0)));
    api.put("{apiVersion: v1, kind: Service, metadata: {namespace: default, name: late}, spec: {clusterIP: 10.96.0.6, clusterIPs: [10.96.0.6], ports: [{port: 80}]}}");
    wait_for(|| answers("late.default.svc.cluster.local."), |answer| *answer == Some((ResponseCode::NoError, 1)));
    api.delete("/api/v1/services", "default", "web");
    wait_for(|| answers("web.default.svc.cluster.local."), |answer| *answer == Some((ResponseCode::NXDomain, 0)));

    // Outside: asked once, then remembered. What is too long for a datagram there is fetched by stream, and given in full by stream here.
    assert_eq!(answers("3.example."), Some((ResponseCode::NoError, 3)));
    assert_eq!(answers("3.example."), Some((ResponseCode::NoError, 3)));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let cut = by_datagram(&pod, "100.example.").unwrap();
    assert!(cut.metadata.truncation && cut.answers.len() < 100);
    let whole = by_stream(&pod, &["100.example.", "late.default.svc.cluster.local."]);
    assert_eq!(whole.iter().map(|message| message.answers.len()).collect::<Vec<_>>(), [100, 1]);
    // The node's own programs ask the same server.
    assert!(by_datagram(&node, "late.default.svc.cluster.local.").is_some());
    handle.stop();
    thread.join().unwrap();
}
