//! One cluster's API, through HTTPS and the endpoint as its users reach it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wheelhouse_client::kubeconfig::Connection;
use wheelhouse_client::{Client, ListOptions};
use wheelhouse_tests::{Service, process};

use crate::figure::Figure;
use crate::load::{self, Turn};

/// At once, as the design's orientation figures of upstream have them.
const WORKERS: usize = 64;

/// The workers share so many HTTP/2 connections: about as many as a small fleet of controllers holds.
const CONNECTIONS: usize = 8;

/// For each rate.
const TIME: Duration = Duration::from_secs(5);

const LISTED: u64 = 2_000;
const LISTED_BODY: usize = 3 * 1024;
/// Lists at once.
const LISTERS: usize = 4;

/// Watchers of one namespace; each sees every event.
const WATCHERS: [usize; 2] = [100, 500];
/// Who make the events.
const WRITERS: usize = 16;

const MERGE: &str = "application/merge-patch+json";

/// Connections to one cluster.
#[derive(Clone)]
struct Cluster {
    clients: Arc<Vec<Client>>,
}

impl Cluster {
    fn new(connection: &Connection) -> Result<Self> {
        let clients: Result<Vec<_>, _> = (0..CONNECTIONS).map(|_| connection.client()).collect();
        Ok(Self { clients: Arc::new(clients?) })
    }

    fn client(&self, worker: usize) -> &Client {
        &self.clients[worker % CONNECTIONS]
    }

    /// Sends a request that must succeed and reads the answer without decoding it; answers its length in bytes.
    async fn send(&self, worker: usize, method: Method, path: &str, content_type: Option<&str>, body: String) -> Result<u64> {
        let answer = self.client(worker).send(method.clone(), path, content_type, Bytes::from(body)).await?;
        let status = answer.status();
        let mut body = answer.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| anyhow::anyhow!("{method} {path} broke off: {error}"))?;
            length += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        ensure!(status.is_success(), "{method} {path}: {status}");
        Ok(length)
    }

    async fn namespace(&self, name: &str) -> Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.send(0, Method::POST, "/api/v1/namespaces", Some("application/json"), body.to_string()).await.map(drop)
    }

    async fn create(&self, namespace: &str, worker: usize, number: u64, text: &str) -> Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(number)}, "data": {"text": text}});
        self.send(worker, Method::POST, &maps(namespace), Some("application/json"), body.to_string()).await.map(drop)
    }

    async fn patch(&self, namespace: &str, turn: Turn, objects: u64) -> Result<()> {
        let path = format!("{}/{}", maps(namespace), name(turn.number % objects));
        let body = json!({"data": {"turn": turn.number.to_string()}});
        self.send(turn.worker, Method::PATCH, &path, Some(MERGE), body.to_string()).await.map(drop)
    }
}

fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

fn name(number: u64) -> String {
    format!("m-{number}")
}

pub async fn run(service: &Service, connection: &Connection) -> Result<()> {
    let cluster = Cluster::new(connection)?;
    for namespace in ["rates", "lists"] {
        cluster.namespace(namespace).await?;
    }
    rates(service, &cluster).await?;
    lists(&cluster).await?;
    for watchers in WATCHERS {
        watches(&cluster, watchers).await?;
    }
    Ok(())
}

async fn rates(service: &Service, cluster: &Cluster) -> Result<()> {
    let before = process::cpu(&service.data())?;
    let started = Instant::now();
    let own = cluster.clone();
    let creates = load::rate(WORKERS, TIME, move |turn| {
        let cluster = own.clone();
        async move { cluster.create("rates", turn.worker, turn.number, "a small body").await }
    })
    .await?;
    let used = process::cpu(&service.data())?.saturating_sub(before).as_secs_f64();
    let created = (creates * started.elapsed().as_secs_f64()).max(1.0);
    Figure::new("api_creates", creates, "1/s").target(">= 2,500 to 3,850").print();
    Figure::new("cpu_per_create", used * 1e6 / created, "us over three hosts, the API's share included").print();

    // Only names that surely exist: the last few numbers may have been given out and not used.
    let objects = (created * 0.9) as u64;
    let own = cluster.clone();
    let gets = load::rate(WORKERS, TIME, move |turn| {
        let cluster = own.clone();
        async move {
            let path = format!("{}/{}", maps("rates"), name(turn.number % objects.max(1)));
            cluster.send(turn.worker, Method::GET, &path, None, String::new()).await.map(drop)
        }
    })
    .await?;
    Figure::new("api_gets", gets, "1/s").print();

    let own = cluster.clone();
    let patches = load::rate(WORKERS, TIME, move |turn| {
        let cluster = own.clone();
        async move { cluster.patch("rates", turn, objects.max(1)).await }
    })
    .await?;
    Figure::new("api_merge_patches", patches, "1/s").target(">= 2,450 to 3,150").print();
    Ok(())
}

async fn lists(cluster: &Cluster) -> Result<()> {
    let text = "x".repeat(LISTED_BODY);
    load::all(WORKERS, LISTED, |number| cluster.create("lists", number as usize, number, &text)).await?;
    let bytes = Arc::new(AtomicU64::new(0));
    let (own, sum) = (cluster.clone(), Arc::clone(&bytes));
    let started = Instant::now();
    load::rate(LISTERS, TIME, move |turn| {
        let (cluster, sum) = (own.clone(), Arc::clone(&sum));
        async move {
            let length = cluster.send(turn.worker, Method::GET, &maps("lists"), None, String::new()).await?;
            sum.fetch_add(length, Ordering::Relaxed);
            Ok(())
        }
    })
    .await?;
    let rate = bytes.load(Ordering::Relaxed) as f64 / 1e6 / started.elapsed().as_secs_f64();
    Figure::new("api_list", rate, "MB/s").target(">= 135 to 445").print();
    Ok(())
}

/// Events that reached all watchers together, while writers patch as fast as they can.
async fn watches(cluster: &Cluster, watchers: usize) -> Result<()> {
    const OBJECTS: u64 = 100;
    let namespace = format!("watches-{watchers}");
    cluster.namespace(&namespace).await?;
    load::all(WRITERS, OBJECTS, |number| cluster.create(&namespace, number as usize, number, "watched")).await?;

    let events = Arc::new(AtomicU64::new(0));
    // Without a resourceVersion the objects that are there would come first.
    let maps = cluster.client(0).api("", "v1", "configmaps", &namespace);
    let list: Value = maps.list(&ListOptions { limit: 1, ..ListOptions::default() }).await?;
    let from = list["metadata"]["resourceVersion"].as_str().context("a list has a resourceVersion")?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?watch=true&resourceVersion={from}");
    let mut tasks = JoinSet::new();
    for worker in 0..watchers {
        let answer = cluster.client(worker).send(Method::GET, &path, None, Bytes::new()).await?;
        ensure!(answer.status().is_success(), "GET {path}: {}", answer.status());
        let events = Arc::clone(&events);
        tasks.spawn(async move {
            let mut body = answer.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                // One line is one event.
                let lines = frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
                events.fetch_add(lines as u64, Ordering::Relaxed);
            }
        });
    }
    let before = events.load(Ordering::Relaxed);
    let started = Instant::now();
    let (own, place) = (cluster.clone(), namespace.clone());
    let writes = load::rate(WRITERS, TIME, move |turn| {
        let (cluster, namespace) = (own.clone(), place.clone());
        async move { cluster.patch(&namespace, turn, OBJECTS).await }
    })
    .await?;
    let delivered = (events.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64();
    Figure::new(format!("watch_events_{watchers}_watchers"), delivered, "1/s").target(">= 190,000 to 310,000").print();
    Figure::new(format!("watch_writes_{watchers}_watchers"), writes, "1/s").print();
    tasks.shutdown().await;
    Ok(())
}
