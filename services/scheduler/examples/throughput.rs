//! Decisions per second with many nodes: the engine alone, fed with the changes that a feed would tell it.
//!
//! ```text
//! cargo run --release -p wheelhouse-scheduler --example throughput -- [nodes] [pods]
//! ```
//!
//! Prints one JSON line per kind of pod. Decisions come in turns, each followed by the changes that its bindings make, as in life. Rates are per second of CPU,
//! so that other work on the machine does not distort them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::view::{Key, ObjectRef, Record, ResourceName, View};
use wheelhouse_scheduler::engine::{Engine, Step};

const NODES: usize = 1_000;
const PODS: usize = 10_000;
/// Decisions per turn, as the driver makes them.
const TURN: usize = 64;
/// Pods of one owner.
const REPLICAS: usize = 500;

/// Time that this thread spent on a processor; where the kernel does not tell, the time that passed.
struct CpuClock(Instant);

impl CpuClock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn elapsed(&self) -> Duration {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let nanoseconds = text.and_then(|text| text.split_whitespace().next()?.parse().ok());
        nanoseconds.map_or_else(|| self.0.elapsed(), Duration::from_nanos)
    }
}

struct Cluster {
    engine: Engine,
    view: View,
    revision: u64,
}

impl Cluster {
    fn put(&mut self, group: &'static str, plural: &'static str, kind: &'static str, mut object: Value) {
        self.revision += 1;
        let resource = ResourceName::new(group, plural);
        let metadata = object.as_object_mut().and_then(|fields| fields.remove("metadata")).unwrap_or_default();
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(text("namespace"), text("name"));
        let body = format!("{},{}", &metadata.to_string()[1..], &object.to_string()[1..]);
        let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        let record = Record::parse(resource.clone(), key.clone(), version, kind, self.revision, body.into());
        let record = record.expect("the objects of this program are well formed");
        let change = self.view.apply(ObjectRef { resource, key }, Some(Arc::new(record)));
        self.engine.apply(&change, Timestamp::from_secs(1));
    }
}

fn pod(kind: &str, index: usize, node: Option<&str>) -> Value {
    let app = format!("app-{}", index / REPLICAS);
    let mut pod = json!({
        "metadata": {
            "namespace": "default", "name": format!("{app}-{index}"), "uid": format!("uid-{index}"), "labels": {"app": app},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true}],
        },
        "spec": {"containers": [{"name": "c", "image": "nginx:1", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]},
    });
    let near = json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": app}}});
    match kind {
        "spread" => {
            pod["spec"]["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            }]);
        }
        "anti-affinity" => {
            let far = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}});
            pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([far]);
        }
        "affinity" => {
            pod["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": 10, "podAffinityTerm": near}]);
        }
        _ => pod["metadata"]["ownerReferences"] = if kind == "plain" { json!([]) } else { pod["metadata"]["ownerReferences"].take() },
    }
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

fn measure(kind: &str, nodes: usize, pods: usize) {
    let mut cluster = Cluster { engine: Engine::new(1), view: View::default(), revision: 1 };
    for index in 0..nodes {
        let name = format!("node-{index}");
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", index % 3)});
        let allocatable = json!({"cpu": "32", "memory": "128Gi", "pods": "110"});
        cluster.put("", "nodes", "Node", json!({"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"allocatable": allocatable}}));
    }
    for app in 0..pods.div_ceil(REPLICAS) {
        let name = format!("app-{app}");
        let selector = json!({"matchLabels": {"app": name}});
        let set = json!({"metadata": {"namespace": "default", "name": name, "uid": name}, "spec": {"selector": selector}});
        cluster.put("apps", "replicasets", "ReplicaSet", set);
    }
    for index in 0..pods {
        cluster.put("", "pods", "Pod", pod(kind, index, None));
    }
    let clock = CpuClock::start();
    let (mut bound, mut deciding, begun) = (0usize, Duration::ZERO, clock.elapsed());
    loop {
        let from = clock.elapsed();
        let steps: Vec<Step> = std::iter::from_fn(|| cluster.engine.step(Timestamp::from_secs(1))).take(TURN).collect();
        deciding += clock.elapsed().saturating_sub(from);
        if steps.is_empty() {
            break;
        }
        for step in steps {
            let Step::Bind { pod: decided, node } = step else { continue };
            let index = decided.key.name.rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(0);
            cluster.put("", "pods", "Pod", pod(kind, index, Some(&node)));
            bound += 1;
        }
    }
    let all = clock.elapsed().saturating_sub(begun);
    let rate = |time: Duration| (bound as f64 / time.as_secs_f64()).round();
    let line = json!({
        "bench": "scheduler decisions", "pods": kind, "nodes": nodes, "bound": bound,
        "per_cpu_second": rate(deciding), "per_cpu_second_with_feed": rate(all),
    });
    println!("{line}");
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut number = |default| arguments.next().and_then(Result::ok).unwrap_or(default);
    let (nodes, pods) = (number(NODES), number(PODS));
    for kind in ["plain", "replicas", "spread", "affinity", "anti-affinity"] {
        measure(kind, nodes, pods);
    }
}
