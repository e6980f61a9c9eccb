//! The same sequences of requests to a real etcd and to ours, every answer compared field by field, errors with their code and message.
//!
//! Only the servers' own identity (cluster, member and term in headers) may differ, the order of records that a sort leaves equal,
//! the order of sets (leases, a lease's keys), and a lease's remaining seconds.

mod common;

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use common::sequence::{Call, Random, call};
use common::{Clients, Ours, PATIENCE, RealEtcd, etcd_programs};
use futures::stream;
use tokio::sync::mpsc;
use tonic::{Code, Response, Status, Streaming};
use wheelhouse_etcd::generated::etcdserverpb as pb;
use wheelhouse_etcd::generated::etcdserverpb::{request_op, watch_request};
use wheelhouse_etcd::generated::mvccpb;
use wheelhouse_store::Store;

/// Sequences, and requests in each. Together about 20 s, most of it the real etcd's. `WHEELHOUSE_SEEDS=100..200` tries others.
const SEEDS: Range<u64> = 0..40;
const LENGTH: usize = 80;

#[derive(Debug, PartialEq)]
enum Answer {
    Range(pb::RangeResponse),
    Put(pb::PutResponse),
    Delete(pb::DeleteRangeResponse),
    Txn(pb::TxnResponse),
    Compact(pb::CompactionResponse),
    Grant(pb::LeaseGrantResponse),
    Revoke(pb::LeaseRevokeResponse),
    KeepAlive(pb::LeaseKeepAliveResponse),
    TimeToLive(pb::LeaseTimeToLiveResponse),
    Leases(pb::LeaseLeasesResponse),
    /// The first answers, which say that it is created or canceled and why, and then its events.
    Watch(Vec<pb::WatchResponse>, Vec<mvccpb::Event>),
    Failed(Code, String),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_sequences_are_answered_as_etcd_answers_them() -> anyhow::Result<()> {
    let Some(programs) = etcd_programs() else { return Ok(()) };
    let (real, ours) = (RealEtcd::start(&programs).await?, Ours::start().await?);
    let (mut theirs, mut mine) = (Clients::connect(real.client), Clients::connect(ours.client));
    let (mut calls, mut failed) = (0, 0);
    for seed in seeds()? {
        let mut random = Random(seed);
        let everything =
            pb::WatchCreateRequest { key: Bytes::from_static(b"\0"), range_end: Bytes::from_static(b"\0"), prev_kv: true, ..Default::default() };
        let (mut live_theirs, mut live_mine) = (Watching::start(&mut theirs, &everything).await?, Watching::start(&mut mine, &everything).await?);
        anyhow::ensure!(live_theirs.first().await? == live_mine.first().await?, "seed {seed}: the live watch begins differently");
        for step in 0..LENGTH {
            let snapshot = ours.store.snapshot();
            let request = call(&mut random, snapshot.revision() as i64, snapshot.compacted() as i64);
            let mine = ask(&mut mine, &request, None).await?;
            let events = if let Answer::Watch(_, events) = &mine { Some(events.len()) } else { None };
            let theirs = ask(&mut theirs, &request, events).await?;
            assert_eq!(mine, theirs, "seed {seed}, step {step}: ours (left) and etcd's (right) answer differ for {request:#?}");
            calls += 1;
            failed += usize::from(matches!(mine, Answer::Failed(..)));
        }
        let mine = live_mine.events_until_now().await?;
        let theirs = live_theirs.events(mine.len()).await?;
        assert_eq!(mine, theirs, "seed {seed}: the live watches (ours left) tell different stories");
    }
    println!("{calls} answers compared, {failed} of them errors; revision {}", ours.store.snapshot().revision());
    Ok(())
}

fn seeds() -> anyhow::Result<Range<u64>> {
    let Ok(asked) = std::env::var("WHEELHOUSE_SEEDS") else { return Ok(SEEDS) };
    let (from, to) = asked.split_once("..").ok_or_else(|| anyhow::anyhow!("WHEELHOUSE_SEEDS is not of the form 100..200"))?;
    Ok(from.parse()?..to.parse()?)
}

/// What a generated sequence would hardly meet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_etcds() -> anyhow::Result<()> {
    let Some(programs) = etcd_programs() else { return Ok(()) };
    let (real, ours) = (RealEtcd::start(&programs).await?, Ours::start().await?);
    let (mut theirs, mut mine) = (Clients::connect(real.client), Clients::connect(ours.client));
    let key = Bytes::from_static(b"k");
    let put = |size| pb::PutRequest { key: key.clone(), value: Bytes::from(vec![b'v'; size]), ..Default::default() };
    let many = |count, nested| {
        let range = pb::RangeRequest { key: key.clone(), ..Default::default() };
        let mut success = vec![pb::RequestOp { request: Some(request_op::Request::RequestRange(range)) }; count];
        if let Some(nested) = nested {
            success.push(pb::RequestOp { request: Some(request_op::Request::RequestTxn(nested)) });
        }
        pb::TxnRequest { success, ..Default::default() }
    };
    let requests = [
        Call::Put(put(10)),
        Call::Put(put(1_600_000)),
        Call::Txn(many(128, None)),
        Call::Txn(many(129, None)),
        Call::Txn(many(63, Some(many(64, None)))),
        Call::Txn(many(63, Some(many(65, None)))),
        Call::Compact(pb::CompactionRequest { revision: -1, physical: true }),
        Call::Compact(pb::CompactionRequest { revision: 2, physical: true }),
        Call::Compact(pb::CompactionRequest { revision: 2, physical: true }),
        Call::Compact(pb::CompactionRequest { revision: 50, physical: true }),
        Call::Put(put(1_500_000)),
        Call::Range(pb::RangeRequest { key: key.clone(), revision: -7, keys_only: true, ..Default::default() }),
    ];
    for request in requests {
        let (mine, theirs) = (ask(&mut mine, &request, None).await?, ask(&mut theirs, &request, None).await?);
        let shown = format!("{request:?}");
        assert!(mine == theirs, "ours {:.300} and etcd's {:.300} differ for {shown:.300}", format!("{mine:?}"), format!("{theirs:?}"));
    }
    Ok(())
}

/// `events`: how many a watch must tell; `None` lets the server say when it has told all.
async fn ask(clients: &mut Clients, call: &Call, events: Option<usize>) -> anyhow::Result<Answer> {
    Ok(match call.clone() {
        Call::Range(request) => {
            let sort = (request.sort_order, request.sort_target);
            answer(clients.kv.range(request).await, |response| Answer::Range(settle_order(response, sort)))
        }
        Call::Put(request) => answer(clients.kv.put(request).await, Answer::Put),
        Call::Delete(request) => answer(clients.kv.delete_range(request).await, Answer::Delete),
        Call::Txn(request) => answer(clients.kv.txn(request).await, Answer::Txn),
        Call::Compact(request) => answer(clients.kv.compact(request).await, Answer::Compact),
        Call::Grant(request) => answer(clients.lease.lease_grant(request).await, Answer::Grant),
        Call::BriefGrant(request) => {
            let granted = answer(clients.lease.lease_grant(request).await, Answer::Grant);
            if let Answer::Grant(_) = granted {
                clients.lease.lease_revoke(pb::LeaseRevokeRequest { id: request.id }).await?;
            }
            granted
        }
        Call::Revoke(request) => answer(clients.lease.lease_revoke(request).await, Answer::Revoke),
        Call::KeepAlive(request) => {
            let mut answers = clients.lease.lease_keep_alive(stream::iter([request])).await?.into_inner();
            let first = answers.message().await.map(|first| Response::new(first.unwrap_or_default()));
            answer(first, Answer::KeepAlive)
        }
        Call::TimeToLive(request) => answer(clients.lease.lease_time_to_live(request).await, |mut response| {
            response.keys.sort();
            response.ttl = response.ttl.signum();
            Answer::TimeToLive(response)
        }),
        Call::Leases => answer(clients.lease.lease_leases(pb::LeaseLeasesRequest {}).await, |mut response| {
            response.leases.sort_by_key(|lease| lease.id);
            Answer::Leases(response)
        }),
        Call::Watch(request) => {
            let mut watching = Watching::start(clients, &request).await?;
            let first = watching.first().await?;
            if first.canceled {
                return Ok(Answer::Watch(vec![first], Vec::new()));
            }
            let told = match events {
                Some(count) => watching.events(count).await?,
                None => watching.events_until_now().await?,
            };
            Answer::Watch(std::iter::once(first).chain(watching.canceled.take()).collect(), told)
        }
    })
}

fn answer<T: Headed>(result: Result<Response<T>, Status>, wrap: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        Ok(response) => {
            let mut response = response.into_inner();
            anonymous(response.header());
            wrap(response)
        }
        Err(status) => Answer::Failed(status.code(), status.message().to_owned()),
    }
}

/// Removes what is the server's own.
fn anonymous(header: &mut Option<pb::ResponseHeader>) {
    let header = header.as_mut().expect("every answer has a header");
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0, "{header:?}");
    *header = pb::ResponseHeader { revision: header.revision, ..Default::default() };
}

trait Headed {
    fn header(&mut self) -> &mut Option<pb::ResponseHeader>;
}

macro_rules! headed {
    ($($response:ident),*) => {
        $(impl Headed for pb::$response {
            fn header(&mut self) -> &mut Option<pb::ResponseHeader> {
                &mut self.header
            }
        })*
    };
}
headed!(
    RangeResponse,
    PutResponse,
    DeleteRangeResponse,
    TxnResponse,
    CompactionResponse,
    LeaseGrantResponse,
    LeaseRevokeResponse,
    LeaseKeepAliveResponse,
    LeaseTimeToLiveResponse,
    LeaseLeasesResponse,
    WatchResponse
);

/// Brings records that the sort leaves equal into the order of their keys. Of a group that the limit cuts, only the counter or value can
/// be compared.
fn settle_order(mut response: pb::RangeResponse, (order, target): (i32, i32)) -> pb::RangeResponse {
    if target == 0 {
        return response;
    }
    let rank = |kv: &mvccpb::KeyValue| -> (i64, Bytes) {
        match target {
            1 => (kv.version, Bytes::new()),
            2 => (kv.create_revision, Bytes::new()),
            3 => (kv.mod_revision, Bytes::new()),
            _ => (0, kv.value.clone()),
        }
    };
    let descending = order == 2;
    let in_order = |pair: &[mvccpb::KeyValue]| if descending { rank(&pair[0]) >= rank(&pair[1]) } else { rank(&pair[0]) <= rank(&pair[1]) };
    assert!(response.kvs.is_empty() || response.kvs[0].value.is_empty() && target == 4 || response.kvs.windows(2).all(in_order), "{response:?}");
    if response.more {
        let last = response.kvs.last().map(rank);
        for kv in response.kvs.iter_mut().filter(|kv| Some(rank(kv)) == last) {
            let (version, create_revision, mod_revision, value) = match target {
                1 => (kv.version, 0, 0, Bytes::new()),
                2 => (0, kv.create_revision, 0, Bytes::new()),
                3 => (0, 0, kv.mod_revision, Bytes::new()),
                _ => (0, 0, 0, kv.value.clone()),
            };
            *kv = mvccpb::KeyValue { version, create_revision, mod_revision, value, ..Default::default() };
        }
    }
    response.kvs.sort_by_key(|kv| (rank(kv), kv.key.clone()));
    response
}

/// One watch on its own stream.
struct Watching {
    requests: mpsc::Sender<pb::WatchRequest>,
    answers: Streaming<pb::WatchResponse>,
    watch_id: i64,
    events: VecDeque<mvccpb::Event>,
    canceled: Option<pb::WatchResponse>,
}

impl Watching {
    async fn start(clients: &mut Clients, request: &pb::WatchCreateRequest) -> anyhow::Result<Self> {
        let (requests, queue) = mpsc::channel(4);
        requests.send(pb::WatchRequest { request_union: Some(watch_request::RequestUnion::CreateRequest(request.clone())) }).await?;
        let queue = stream::unfold(queue, |mut queue| async move { queue.recv().await.map(|request| (request, queue)) });
        let answers = clients.watch.watch(queue).await?.into_inner();
        Ok(Self { requests, answers, watch_id: 0, events: VecDeque::new(), canceled: None })
    }

    async fn next(&mut self) -> anyhow::Result<pb::WatchResponse> {
        let mut response = tokio::time::timeout(PATIENCE, self.answers.message()).await??.ok_or_else(|| anyhow::anyhow!("the stream ends"))?;
        anonymous(&mut response.header);
        Ok(response)
    }

    async fn first(&mut self) -> anyhow::Result<pb::WatchResponse> {
        let first = self.next().await?;
        anyhow::ensure!(first.created, "the first answer says that the watch was created: {first:?}");
        self.watch_id = first.watch_id;
        Ok(first)
    }

    fn take(&mut self, response: pb::WatchResponse) {
        if response.canceled {
            self.canceled = Some(response);
        } else {
            self.events.extend(response.events);
        }
    }

    /// All events up to now, by the promise that a progress answer makes.
    async fn events_until_now(&mut self) -> anyhow::Result<Vec<mvccpb::Event>> {
        let progress = pb::WatchProgressRequest {};
        self.requests.send(pb::WatchRequest { request_union: Some(watch_request::RequestUnion::ProgressRequest(progress)) }).await?;
        loop {
            let response = self.next().await?;
            if response.watch_id == -1 {
                return Ok(self.events.drain(..).collect());
            }
            self.take(response);
        }
    }

    /// The next `count` events, and a look whether more are there: this etcd's progress answers may overtake events.
    async fn events(&mut self, count: usize) -> anyhow::Result<Vec<mvccpb::Event>> {
        while self.events.len() < count && self.canceled.is_none() {
            // A server that tells less is shown by the comparison.
            let Ok(response) = self.next().await else { break };
            self.take(response);
        }
        // A watch of compacted history is canceled a moment after it was created.
        let short = std::time::Duration::from_millis(if count == 0 { 250 } else { 2 });
        while let (None, Ok(response)) = (&self.canceled, tokio::time::timeout(short, self.answers.message()).await) {
            let mut response = response?.ok_or_else(|| anyhow::anyhow!("the stream ends"))?;
            anonymous(&mut response.header);
            self.take(response);
        }
        Ok(self.events.drain(..).collect())
    }
}
