//! How long a change of one EndpointSlice among many services takes to be a rule in the kernel. One JSON line.
//!
//! Runs in a network namespace of its own; needs root. `rules-latency [SERVICES]`, 10,000 unless said otherwise.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use wheelhouse_net::testing::{Namespace, can_run, enter};
use wheelhouse_net::{Patch, Ruleset, nft};
use wheelhouse_proxy::{NodeFacts, Planner, ServiceFacts, SliceFacts};

/// Changes that are timed.
const ROUNDS: usize = 50;

fn service(number: usize) -> Service {
    let ip = format!("10.96.{}.{}", number / 250, number % 250 + 1);
    let object =
        json!({"metadata": {"namespace": "d", "name": format!("s{number}")}, "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80}]}});
    serde_json::from_value(object).expect("a Service")
}

fn slice(number: usize, endpoints: usize) -> EndpointSlice {
    let endpoints: Vec<Value> =
        (0..endpoints).map(|n| json!({"addresses": [format!("10.{}.{}.{}", 200 + n, number / 250, number % 250 + 1)]})).collect();
    let object = json!({
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "metadata": {"namespace": "d", "name": format!("s{number}-1"), "labels": {"kubernetes.io/service-name": format!("s{number}")}},
    });
    serde_json::from_value(object).expect("an EndpointSlice")
}

fn learn(planner: &mut Planner, slice: &EndpointSlice) {
    let service = SliceFacts::service_of(slice).expect("labelled");
    planner.set_slice(service, slice.metadata.name.clone().expect("named"), Some(SliceFacts::of(slice)));
}

async fn measure(services: usize) -> Result<Value, nft::NftError> {
    let mut planner = Planner::new(NodeFacts { name: "n1".into(), zone: None }, &["10.244.0.0/16".to_owned()], BTreeSet::new());
    let began = Instant::now();
    for number in 0..services {
        let service = service(number);
        planner.set_service(ServiceFacts::name_of(&service), ServiceFacts::of(&service));
        learn(&mut planner, &slice(number, 3));
    }
    planner.commit();
    let text: String = planner.rulesets().iter().map(Ruleset::render).collect();
    let planned = began.elapsed();
    nft::apply(&text).await?;
    let loaded = began.elapsed();
    let mut times: Vec<Duration> = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let changed = slice(round * services / ROUNDS, 2);
        let began = Instant::now();
        learn(&mut planner, &changed);
        nft::apply(&planner.commit().patches.each_ref().map(Patch::render).concat()).await?;
        times.push(began.elapsed());
    }
    times.sort();
    let milliseconds = |time: Duration| (time.as_secs_f64() * 1e5).round() / 100.0;
    Ok(json!({
        "services": services,
        "plan_all_ms": milliseconds(planned),
        "load_all_ms": milliseconds(loaded - planned),
        "change_to_rule_p50_ms": milliseconds(times[ROUNDS / 2]),
        "change_to_rule_p99_ms": milliseconds(times[ROUNDS - 1]),
    }))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if !can_run() {
        return Ok(());
    }
    let services = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let namespace = Namespace::new("bench");
    enter(&namespace.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{}", runtime.block_on(measure(services))?);
    Ok(())
}
