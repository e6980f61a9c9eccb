//! The stock `etcdctl` against our API, and what the read-only one refuses.

mod common;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{Clients, Ours, PATIENCE, etcd_programs, identity, serve};
use tokio::io::{AsyncBufReadExt, BufReader};
use tonic::Code;
use wheelhouse_etcd::generated::etcdserverpb as pb;
use wheelhouse_mvcc::Txn;
use wheelhouse_store::{MemoryStore, Store};

struct Etcdctl {
    program: PathBuf,
    endpoint: SocketAddr,
}

impl Etcdctl {
    fn new(programs: &Path, endpoint: SocketAddr) -> Self {
        Self { program: programs.join("etcdctl"), endpoint }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(self.endpoint.to_string()).args(arguments);
        command
    }

    /// Its output, or its error text.
    async fn run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let (mut command, input) = (self.command(arguments), input.to_owned());
        let output = tokio::task::spawn_blocking(move || {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            child.stdin.take().expect("it is piped").write_all(input.as_bytes())?;
            child.wait_with_output()
        });
        let output = output.await.expect("it does not panic").expect("etcdctl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr) + &text(&output.stdout)) }
    }

    async fn ok(&self, arguments: &[&str]) -> String {
        self.run(arguments, "").await.unwrap_or_else(|error| panic!("etcdctl {arguments:?} fails: {error}"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_etcdctl_works() -> anyhow::Result<()> {
    let Some(programs) = etcd_programs() else { return Ok(()) };
    let ours = Ours::start().await?;
    let ctl = Etcdctl::new(&programs, ours.client);

    assert_eq!(ctl.ok(&["put", "a/1", "one"]).await, "OK\n");
    assert_eq!(ctl.ok(&["put", "--prev-kv", "a/1", "two"]).await, "OK\na/1\none\n");
    ctl.ok(&["put", "a/2", "three"]).await;
    assert_eq!(ctl.ok(&["get", "--prefix", "a/"]).await, "a/1\ntwo\na/2\nthree\n");
    assert_eq!(ctl.ok(&["get", "--prefix", "--keys-only", "--order=DESCEND", "a/"]).await, "a/2\n\na/1\n\n");
    assert_eq!(ctl.ok(&["get", "--rev=2", "a/1", "--print-value-only"]).await, "one\n");
    assert!(ctl.ok(&["get", "--prefix", "--count-only", "--write-out=fields", "a/"]).await.contains("\"Count\" : 2"));

    let txn = "mod(\"a/1\") = \"3\"\n\nput a/3 four\nget a/2\n\nget a/1\n\n";
    assert_eq!(ctl.run(&["txn"], txn).await, Ok("SUCCESS\n\nOK\n\na/2\nthree\n".to_owned()));
    assert_eq!(ctl.run(&["txn"], &txn.replace('3', "1")).await, Ok("FAILURE\n\na/1\ntwo\n".to_owned()));
    assert_eq!(ctl.ok(&["del", "--prev-kv", "a/3"]).await, "1\na/3\nfour\n");

    let lease = ctl.ok(&["lease", "grant", "600"]).await;
    let id = lease.split_whitespace().nth(1).expect("lease ID granted with TTL(600s)");
    ctl.ok(&["put", "--lease", id, "leased", "x"]).await;
    assert!(ctl.ok(&["lease", "list"]).await.contains(id));
    assert!(ctl.ok(&["lease", "timetolive", "--keys", id]).await.contains("attached keys([leased])"));
    assert!(ctl.ok(&["lease", "keep-alive", "--once", id]).await.contains("keepalived with TTL(600)"));
    assert!(ctl.ok(&["lease", "revoke", id]).await.contains("revoked"));
    assert_eq!(ctl.ok(&["get", "leased"]).await, "");

    assert!(ctl.ok(&["member", "list"]).await.contains("started, default"));
    let status = ctl.ok(&["endpoint", "status", "--write-out=json"]).await;
    assert!(status.contains(wheelhouse_etcd::ETCD_VERSION) && status.contains("\"leader\":1"), "{status}");
    // It reports health on standard error.
    ctl.ok(&["endpoint", "health"]).await;
    ctl.ok(&["endpoint", "hashkv"]).await;
    ctl.ok(&["alarm", "list"]).await;
    ctl.ok(&["defrag"]).await;

    let revision = ours.store.snapshot().revision().to_string();
    assert_eq!(ctl.ok(&["compaction", &revision]).await, format!("compacted revision {revision}\n"));
    let refused = ctl.run(&["get", "--rev=2", "a/1"], "").await.expect_err("it was compacted");
    assert!(refused.contains("etcdserver: mvcc: required revision has been compacted"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_etcdctl_watches() -> anyhow::Result<()> {
    let Some(programs) = etcd_programs() else { return Ok(()) };
    let ours = Ours::start().await?;
    let ctl = Etcdctl::new(&programs, ours.client);
    ctl.ok(&["put", "w/1", "old"]).await;
    let mut command = tokio::process::Command::from(ctl.command(&["watch", "--prefix", "--prev-kv", "--rev=2", "w/"]));
    let mut watch = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    let mut next = async |count: usize| {
        let mut told = Vec::new();
        for _ in 0..count {
            told.push(tokio::time::timeout(PATIENCE, lines.next_line()).await??.unwrap_or_default());
        }
        anyhow::Ok(told)
    };
    assert_eq!(next(3).await?, ["PUT", "w/1", "old"], "the past");
    ctl.ok(&["put", "w/1", "new"]).await;
    assert_eq!(next(5).await?, ["PUT", "w/1", "old", "w/1", "new"]);
    ctl.ok(&["del", "w/1"]).await;
    assert_eq!(next(5).await?, ["DELETE", "w/1", "new", "w/1", ""]);
    Ok(())
}

/// A lease of two seconds, the shortest, ends by itself and takes its key along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_end() -> anyhow::Result<()> {
    let ours = Ours::start().await?;
    let mut clients = Clients::connect(ours.client);
    let granted = clients.lease.lease_grant(pb::LeaseGrantRequest { id: 5, ttl: 1 }).await?.into_inner();
    assert_eq!(granted.ttl, 2);
    let put = pb::PutRequest { key: "k".into(), value: "v".into(), lease: 5, ..Default::default() };
    let revision = clients.kv.put(put).await?.into_inner().header.expect("every answer has one").revision;
    let after = ours.store.wait_for(revision as u64 + 1, PATIENCE).await?;
    assert!(after.get(b"k").is_none() && after.lease(5).is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hosted_clusters_etcd_is_read_only() -> anyhow::Result<()> {
    let store = Arc::new(MemoryStore::default());
    let secret = Txn::default().put("/registry/core/secrets/default/s", "password").put("/registry/core/pods/default/p", "pod");
    store.commit(wheelhouse_mvcc::Command::Txn { txn: secret, fence: None }).await?;
    let routes = wheelhouse_etcd::read_only(store.clone(), identity(), wheelhouse_etcd::secrets);
    let address = serve(routes).await?;
    let mut clients = Clients::connect(address);

    let all = pb::RangeRequest { key: "/".into(), range_end: "0".into(), ..Default::default() };
    let kvs = clients.kv.range(all.clone()).await?.into_inner().kvs;
    assert_eq!(kvs.iter().map(|kv| &kv.value[..]).collect::<Vec<_>>(), [&b"pod"[..], b"sealed: use the Kubernetes API"]);
    let by_value = clients.kv.range(pb::RangeRequest { sort_target: 4, ..all }).await.expect_err("the order would tell");
    assert_eq!(by_value.code(), Code::PermissionDenied);

    let create = pb::WatchCreateRequest { key: "/".into(), range_end: "0".into(), start_revision: 2, prev_kv: true, ..Default::default() };
    let request = pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
    let mut answers = clients.watch.watch(futures::stream::iter([request])).await?.into_inner();
    assert!(answers.message().await?.is_some_and(|created| created.created));
    let events = answers.message().await?.unwrap_or_default().events;
    assert!(!format!("{events:?}").contains("password") && events.len() == 2, "{events:?}");

    let denied = [
        clients.kv.put(pb::PutRequest { key: "k".into(), ..Default::default() }).await.err(),
        clients.kv.delete_range(pb::DeleteRangeRequest { key: "k".into(), ..Default::default() }).await.err(),
        clients.kv.txn(pb::TxnRequest::default()).await.err(),
        clients.kv.compact(pb::CompactionRequest { revision: 1, physical: false }).await.err(),
        clients.lease.lease_grant(pb::LeaseGrantRequest { id: 1, ttl: 10 }).await.err(),
        clients.lease.lease_revoke(pb::LeaseRevokeRequest { id: 1 }).await.err(),
        clients.lease.lease_leases(pb::LeaseLeasesRequest {}).await.err(),
        clients.maintenance.defragment(pb::DefragmentRequest {}).await.err(),
        clients.maintenance.hash_kv(pb::HashKvRequest::default()).await.err(),
    ];
    for (at, status) in denied.into_iter().enumerate() {
        let status = status.unwrap_or_else(|| panic!("request {at} is served"));
        assert_eq!(status.code(), Code::PermissionDenied, "request {at}");
        assert!(status.message().contains("use the Kubernetes API"), "{status}");
    }
    assert_eq!(store.snapshot().revision(), 2, "nothing was written");

    let Some(programs) = etcd_programs() else { return Ok(()) };
    let ctl = Etcdctl::new(&programs, address);
    assert_eq!(ctl.ok(&["get", "/registry/core/pods/default/p"]).await, "/registry/core/pods/default/p\npod\n");
    ctl.ok(&["endpoint", "status"]).await;
    ctl.ok(&["endpoint", "health"]).await;
    ctl.ok(&["member", "list"]).await;
    assert!(ctl.run(&["put", "a", "b"], "").await.expect_err("it is denied").contains("use the Kubernetes API"));
    Ok(())
}
