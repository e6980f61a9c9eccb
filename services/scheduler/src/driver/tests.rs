use super::*;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use wheelhouse_base::ManualClock;
use wheelhouse_client::{ResponseBody, Transport, TransportError, full_body};
use wheelhouse_kinds::view::{Key, ObjectRef, Record, ResourceName};
use wheelhouse_runtime::Metrics;

/// An API server that refuses the bindings it is told to, once each, and keeps what was asked.
#[derive(Default)]
struct Server {
    asked: Mutex<Vec<(String, Value)>>,
    refuse: Mutex<Vec<String>>,
    changed: Notify,
}

#[async_trait]
impl Transport for Server {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<ResponseBody>, TransportError> {
        let line = format!("{} {}", request.method(), request.uri().path());
        let body = serde_json::from_slice(request.body()).unwrap_or_default();
        let refused = {
            let mut refuse = self.refuse.lock();
            refuse.iter().position(|wanted| *wanted == line).map(|at| refuse.remove(at)).is_some()
        };
        self.asked.lock().push((line, body));
        self.changed.notify_one();
        let (code, text) = if refused {
            (409, r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","message":"taken","code":409}"#)
        } else {
            (201, "{}")
        };
        Ok(http::Response::builder().status(code).body(full_body(text)).unwrap())
    }
}

impl Server {
    /// Waits until `count` requests whose line ends so were made, and answers their bodies.
    async fn wait_for(&self, end: &str, count: usize) -> Vec<Value> {
        let look = async {
            loop {
                let found: Vec<Value> = self.asked.lock().iter().filter(|(line, _)| line.ends_with(end)).map(|(_, body)| body.clone()).collect();
                if found.len() >= count {
                    return found;
                }
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), look).await.unwrap_or_else(|_| panic!("no {count} requests to {end}"))
    }
}

struct Cluster {
    server: Arc<Server>,
    scheduler: Arc<Scheduler>,
    clock: Arc<ManualClock>,
    views: watch::Sender<Arc<View>>,
    view: View,
}

impl Cluster {
    fn start() -> Self {
        let server = Arc::new(Server::default());
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_000)));
        let scheduler = Scheduler::new(Client::new(server.clone()), clock.clone(), SchedulerMetrics::new(Metrics::default()));
        let views = watch::Sender::new(Arc::new(View::default()));
        tokio::spawn(scheduler.clone().run(views.subscribe()));
        Self { server, scheduler, clock, views, view: View::default() }
    }

    fn put(&mut self, plural: &'static str, kind: &'static str, namespace: &str, name: &str, rest: Value) {
        let revision = self.view.revision() + 1;
        let (resource, key) = (ResourceName::new("", plural), Key::new(namespace, name));
        let rest = rest.to_string();
        let body = format!("\"namespace\":\"{namespace}\",\"name\":\"{name}\",\"uid\":\"uid-{name}\"}},{}", &rest[1..]);
        let record = Record::parse(resource.clone(), key.clone(), "v1", kind, revision, body.into()).unwrap();
        let change = self.view.apply(ObjectRef { resource, key }, Some(Arc::new(record)));
        self.view.advance(revision);
        self.views.send_replace(Arc::new(self.view.clone()));
        self.scheduler.changed(&self.view, &[change]);
    }

    fn node(&mut self, name: &str) {
        self.put("nodes", "Node", "", name, json!({"status": {"allocatable": {"cpu": "64", "memory": "128Gi", "pods": "110"}}}));
    }

    fn pod(&mut self, name: &str) {
        self.put("pods", "Pod", "a", name, json!({"spec": {"containers": [{"name": "c"}]}}));
    }
}

#[tokio::test]
async fn a_pod_is_bound_and_an_event_says_so() {
    let mut cluster = Cluster::start();
    cluster.node("n");
    cluster.pod("p");
    let binding = cluster.server.wait_for("/api/v1/namespaces/a/pods/p/binding", 1).await.remove(0);
    assert_eq!(binding["target"], json!({"kind": "Node", "name": "n"}));
    assert_eq!(binding["metadata"], json!({"name": "p", "namespace": "a", "uid": "uid-p"}));
    let event = cluster.server.wait_for("/api/v1/namespaces/a/events", 1).await.remove(0);
    assert_eq!((&event["reason"], &event["message"]), (&json!("Scheduled"), &json!("Successfully assigned a/p to n")));
    assert_eq!(event["source"]["component"], "default-scheduler");
}

#[tokio::test]
async fn a_refused_binding_is_tried_again_after_a_back_off() {
    let mut cluster = Cluster::start();
    cluster.server.refuse.lock().push("POST /api/v1/namespaces/a/pods/p/binding".into());
    cluster.node("n");
    cluster.pod("p");
    cluster.server.wait_for("/pods/p/binding", 1).await;
    // A change wakes the loop, whose own timer runs on the real clock.
    for _ in 0..1_000 {
        if cluster.server.asked.lock().iter().filter(|(line, _)| line.ends_with("/pods/p/binding")).count() == 2 {
            return;
        }
        cluster.clock.advance(Duration::from_secs(1));
        cluster.pod("q");
        tokio::task::yield_now().await;
    }
    panic!("the binding was not tried again");
}

#[tokio::test]
async fn a_pod_without_a_node_says_why() {
    let mut cluster = Cluster::start();
    cluster.pod("p");
    let patch = cluster.server.wait_for("PATCH /api/v1/namespaces/a/pods/p/status", 1).await.remove(0);
    let condition = &patch["status"]["conditions"][0];
    assert_eq!((&condition["reason"], &condition["message"]), (&json!("Unschedulable"), &json!("no nodes available to schedule pods")));
    let event = cluster.server.wait_for("/api/v1/namespaces/a/events", 1).await.remove(0);
    assert_eq!((&event["reason"], &event["type"]), (&json!("FailedScheduling"), &json!("Warning")));
    cluster.node("n");
    cluster.server.wait_for("/pods/p/binding", 1).await;
}

#[tokio::test]
async fn many_pods_are_bound_without_waiting_for_one_another() {
    let mut cluster = Cluster::start();
    for node in ["n1", "n2", "n3"] {
        cluster.node(node);
    }
    for i in 0..300 {
        cluster.pod(&format!("p{i}"));
    }
    let bindings = cluster.server.wait_for("/binding", 300).await;
    let on = |node: &str| bindings.iter().filter(|binding| binding["target"]["name"] == node).count();
    assert!(["n1", "n2", "n3"].iter().all(|node| on(node) > 90), "they are spread: {}, {}, {}", on("n1"), on("n2"), on("n3"));
}
