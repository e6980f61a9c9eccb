//! The shells on a store in memory: freshness, retries, credentials in and out of force.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use serde_json::json;
use wheelhouse_access::Target;
use wheelhouse_access::admission::{Operation, Request};
use wheelhouse_access::token::{Issuer, SigningKey};
use wheelhouse_base::{ManualClock, ReplicaId, Revision, Timestamp};
use wheelhouse_mvcc::{Command, Outcome, Txn};
use wheelhouse_pki::{Authority, EcKey, Leaf, Subject, Usage, Validity};
use wheelhouse_store::{CommitError, Leadership, MemoryStore, ReadError, Watch, WatchError};

use super::*;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn issuer() -> Issuer {
    let key = EcKey::generate().unwrap();
    Issuer { url: ISSUER.into(), audiences: vec![ISSUER.into()], signing: SigningKey::from_pem(key.to_pem().as_bytes()).unwrap(), retired: vec![] }
}

/// A store whose newest state this replica sees only after a barrier, as a follower that lags behind.
struct Lagging {
    store: MemoryStore,
    seen: parking_lot::Mutex<Snapshot>,
    barriers: AtomicU64,
}

impl Lagging {
    fn new() -> Arc<Self> {
        let store = MemoryStore::default();
        let seen = parking_lot::Mutex::new(store.snapshot());
        Arc::new(Self { store, seen, barriers: AtomicU64::new(0) })
    }

    fn catch_up(&self) {
        *self.seen.lock() = self.store.snapshot();
    }
}

#[async_trait::async_trait]
impl Store for Lagging {
    fn snapshot(&self) -> Snapshot {
        self.seen.lock().clone()
    }

    async fn barrier(&self) -> Result<Snapshot, ReadError> {
        self.barriers.fetch_add(1, Ordering::SeqCst);
        self.catch_up();
        Ok(self.snapshot())
    }

    async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<Snapshot, ReadError> {
        let snapshot = self.store.wait_for(revision, timeout).await?;
        self.catch_up();
        Ok(snapshot)
    }

    async fn commit(&self, command: Command) -> Result<Outcome, CommitError> {
        self.store.commit(command).await
    }

    fn watch(&self, range: KeyRange, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        self.store.watch(range, after)
    }

    fn leadership(&self) -> tokio::sync::watch::Receiver<Leadership> {
        let (_, receiver) = tokio::sync::watch::channel(Leadership { here: false, ..*self.store.leadership().borrow() });
        receiver
    }

    fn replica(&self) -> ReplicaId {
        self.store.replica()
    }
}

fn key(group: &str, resource: &str, object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    lookups::object_key(group, resource, &text("namespace"), &text("name"))
}

/// Stores an object in the form of the registry.
async fn put(store: &dyn Store, group: &str, resource: &str, object: Value) {
    let mut rest = object.clone();
    let metadata = serde_json::to_string(&rest.as_object_mut().unwrap().remove("metadata").unwrap()).unwrap();
    let rest = serde_json::to_string(&rest).unwrap();
    let separator = if rest == "{}" { "" } else { "," };
    let value = format!("{}{separator}{}", &metadata[1..], &rest[1..]);
    let txn = Txn::default().put(key(group, resource, &object).into_bytes(), value.into_bytes());
    store.commit(Command::Txn { txn, fence: None }).await.unwrap();
}

async fn delete(store: &dyn Store, group: &str, resource: &str, object: &Value) {
    let txn = Txn::default().delete(key(group, resource, object).into_bytes());
    store.commit(Command::Txn { txn, fence: None }).await.unwrap();
}

struct Fixture {
    store: Arc<Lagging>,
    clock: Arc<ManualClock>,
    authority: Authority,
    issuer: Issuer,
    security: Security,
}

fn start() -> Timestamp {
    Timestamp::from_secs(1_767_225_600)
}

impl Fixture {
    fn new() -> Self {
        let (store, clock) = (Lagging::new(), Arc::new(ManualClock::at(start())));
        let authority = Authority::create("ca", Validity::lasting(start(), Duration::from_secs(1_000_000))).unwrap();
        let issuer = issuer();
        let credentials = Credentials::new(vec![authority.certificate_der().to_vec()], issuer.clone());
        let security = Security::new(store.clone(), clock.clone(), credentials);
        Self { store, clock, authority, issuer, security }
    }

    fn connection(&self, certificate: Option<Vec<u8>>) -> ConnectionInfo {
        ConnectionInfo::new("192.0.2.1:1".parse().unwrap(), certificate.into_iter().collect())
    }

    fn certificate(&self, name: &str, groups: &[&str]) -> Vec<u8> {
        let validity = Validity::lasting(start(), Duration::from_secs(3600));
        let leaf = Leaf { subject: Subject::new(name, groups), alt_names: vec![], usage: Usage::Client, validity };
        self.authority.issue(&leaf, &EcKey::generate().unwrap().public_key_der()).unwrap()
    }

    async fn who(&self, connection: &ConnectionInfo, token: Option<&str>) -> Result<User, u16> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        self.security.authenticate(connection, &headers, &AuditTrail::default()).await.map_err(|status| status.code)
    }
}

#[tokio::test]
async fn a_certificate_counts_until_it_expires_or_its_authority_is_replaced() {
    let f = Fixture::new();
    let connection = f.connection(Some(f.certificate("jane", &["dev", "ops"])));
    let user = f.who(&connection, None).await.unwrap();
    assert_eq!((user.name.as_str(), user.groups), ("jane", vec!["dev".to_owned(), "ops".into(), "system:authenticated".into()]));
    assert_eq!(f.who(&f.connection(None), None).await.unwrap(), User::anonymous());

    let tenant = f.connection(Some(f.certificate("tenant:t1:k1", &["wheelhouse:cluster-admins"])));
    assert_eq!(f.who(&tenant, None).await, Err(401), "no Secret stands for it: it was revoked");

    let other = Authority::create("ca", Validity::lasting(start(), Duration::from_secs(1000))).unwrap();
    f.security.replace_credentials(Credentials::new(vec![other.certificate_der().to_vec()], f.issuer.clone()));
    assert_eq!(f.who(&connection, None).await, Err(401));
    f.security.replace_credentials(Credentials::new(vec![f.authority.certificate_der().to_vec()], f.issuer.clone()));
    assert!(f.who(&connection, None).await.is_ok());
    f.clock.advance(Duration::from_secs(3601));
    assert_eq!(f.who(&connection, None).await, Err(401));
}

#[tokio::test]
async fn a_token_is_refused_only_by_a_current_state() {
    let f = Fixture::new();
    put(&*f.store, "", "serviceaccounts", json!({"metadata": {"name": "bot", "namespace": "ns", "uid": "u-1"}})).await;
    let answer = f.security.token_request("ns", "bot", json!({"spec": {}}), "id").await.unwrap();
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let connection = f.connection(None);

    // This replica has not seen the account yet; the barrier shows it.
    *f.store.seen.lock() = MemoryStore::default().snapshot();
    let user = f.who(&connection, Some(&token)).await.unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:bot", "u-1"));

    // Seen, the next request needs no barrier.
    let before = f.store.barriers.load(Ordering::SeqCst);
    assert!(f.who(&connection, Some(&token)).await.is_ok());
    assert_eq!(f.store.barriers.load(Ordering::SeqCst), before);

    // A remembered signature does not outlive the account.
    delete(&*f.store, "", "serviceaccounts", &json!({"metadata": {"name": "bot", "namespace": "ns"}})).await;
    f.store.catch_up();
    assert_eq!(f.who(&connection, Some(&token)).await, Err(401));

    // Nonsense and forgeries are refused without asking anybody.
    let before = f.store.barriers.load(Ordering::SeqCst);
    let (head, _) = token.rsplit_once('.').unwrap();
    assert_eq!(f.who(&connection, Some(&format!("{head}.AAAA"))).await, Err(401));
    assert_eq!(f.store.barriers.load(Ordering::SeqCst), before);
    assert_eq!(f.who(&connection, Some("nonsense")).await, Err(401));
}

#[tokio::test]
async fn the_use_of_a_token_that_should_have_been_renewed_is_noted() {
    let f = Fixture::new();
    put(&*f.store, "", "serviceaccounts", json!({"metadata": {"name": "bot", "namespace": "ns", "uid": "u-1"}})).await;
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u-2"}, "spec": {"serviceAccountName": "bot"}});
    put(&*f.store, "", "pods", pod).await;
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
    let body = json!({"spec": {"expirationSeconds": 3607, "audiences": [ISSUER], "boundObjectRef": bound}});
    let answer = f.security.token_request("ns", "bot", body, "id").await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("authorization", format!("Bearer {}", answer["status"]["token"].as_str().unwrap()).parse().unwrap());
    let (fresh, stale) = (AuditTrail::default(), AuditTrail::default());
    f.security.authenticate(&f.connection(None), &headers, &fresh).await.unwrap();
    assert_eq!(fresh.annotation("authentication.k8s.io/stale-token"), None);
    f.clock.advance(Duration::from_secs(3617));
    f.security.authenticate(&f.connection(None), &headers, &stale).await.unwrap();
    let note = "subject: system:serviceaccount:ns:bot, seconds after warning threshold: 10";
    assert_eq!(stale.annotation("authentication.k8s.io/stale-token").as_deref(), Some(note));
}

#[tokio::test]
async fn decisions_follow_every_write() {
    let f = Fixture::new();
    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}]});
    let binding = |user: &str| json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": user}]});
    let user = |name: &str| User { name: name.into(), ..User::default() };
    let target = Target::Resource { group: "", version: "v1", resource: "nodes", subresource: "", namespace: "", name: "" };
    let allowed = |name: &str| f.security.authorize(&Attributes::new(&user(name), "get", target.clone())).allowed();

    assert!(!allowed("jane"));
    put(&*f.store, group, "clusterroles", role.clone()).await;
    put(&*f.store, group, "clusterrolebindings", binding("jane")).await;
    // Not applied here yet, so not known here; nothing in between is ever seen half.
    assert!(!allowed("jane"));
    f.store.catch_up();
    assert!(allowed("jane"));
    // Other writes leave the view as it is.
    put(&*f.store, "", "configmaps", json!({"metadata": {"name": "c", "namespace": "ns"}})).await;
    f.store.catch_up();
    assert!(allowed("jane") && !allowed("joe"));
    put(&*f.store, group, "clusterrolebindings", binding("joe")).await;
    f.store.catch_up();
    assert!(allowed("joe") && !allowed("jane"));
    delete(&*f.store, group, "clusterroles", &role).await;
    f.store.catch_up();
    let refused = f.security.require(&Attributes::new(&user("joe"), "get", target.clone())).unwrap_err();
    assert!(refused.message.ends_with(": RBAC: clusterrole.rbac.authorization.k8s.io \"r\" not found"), "{}", refused.message);
    // What nobody can read grants nothing.
    let txn = Txn::default().put(&b"/registry/rbac.authorization.k8s.io/clusterroles/r"[..], &b"rubbish"[..]);
    f.store.commit(Command::Txn { txn, fence: None }).await.unwrap();
    f.store.catch_up();
    assert!(!allowed("joe"));
}

#[tokio::test]
async fn a_view_without_its_watch_is_compared_with_the_state() {
    let f = Fixture::new();
    let group = "rbac.authorization.k8s.io";
    for name in ["a", "b"] {
        put(
            &*f.store,
            group,
            "clusterroles",
            json!({"metadata": {"name": name}, "rules": [{"verbs": ["get"], "nonResourceURLs": [format!("/{name}")]}]}),
        )
        .await;
        put(
            &*f.store,
            group,
            "clusterrolebindings",
            json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name}, "subjects": [{"kind": "User", "name": "jane"}]}),
        )
        .await;
    }
    f.store.catch_up();
    let jane = User { name: "jane".into(), ..User::default() };
    let allowed = |path: &str| f.security.authorize(&Attributes::new(&jane, "get", Target::Path(path))).allowed();
    assert!(allowed("/a") && allowed("/b"));
    f.security.policy.lose_watch();
    delete(&*f.store, group, "clusterrolebindings", &json!({"metadata": {"name": "a"}})).await;
    f.store.catch_up();
    assert!(!allowed("/a") && allowed("/b"));
}

#[tokio::test]
async fn an_object_may_follow_its_namespace_at_once() {
    let f = Fixture::new();
    let user = User::default();
    let target = Target::Resource { group: "", version: "v1", resource: "pods", subresource: "", namespace: "ns", name: "" };
    let attributes = Attributes::new(&user, "create", target);
    let request = Request { attributes: &attributes, operation: Operation::Create, old: None, dry_run: false, now: start(), seed: 1 };
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
    let refused = f.security.admit_mutating(&request, &mut pod.clone()).await.unwrap_err();
    assert_eq!(refused.message, "namespaces \"ns\" not found");

    put(&*f.store, "", "namespaces", json!({"metadata": {"name": "ns"}, "status": {"phase": "Active"}})).await;
    let mut admission = Box::pin(f.security.admit_mutating(&request, &mut pod));
    // The default account is missing, so the pod waits for it.
    assert!(admission.as_mut().now_or_never().is_none());
    put(&*f.store, "", "serviceaccounts", json!({"metadata": {"name": "default", "namespace": "ns", "uid": "u"}})).await;
    admission.as_mut().await.unwrap();
    drop(admission);
    assert_eq!(pod["spec"]["serviceAccountName"], "default");
    assert_eq!(pod["spec"]["volumes"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn the_audit_log_ends_with_its_last_sink() {
    let folder = std::env::temp_dir().join(format!("wheelhouse-audit-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (sink, log) = audit_log(folder.join("audit.log"));
    let user = User::anonymous();
    let attributes = Attributes::new(&user, "get", Target::Path("/healthz"));
    let record = wheelhouse_access::audit::Record {
        id: "1",
        stage: wheelhouse_access::audit::Stage::ResponseComplete,
        uri: "/healthz",
        attributes: &attributes,
        impersonated: None,
        impersonation_constraint: "",
        source_ips: &[],
        user_agent: "",
        code: 200,
        failure: None,
        decision: None,
        received: start(),
        now: start(),
        annotations: Default::default(),
    };
    let event = wheelhouse_access::audit::Event::new(record);
    for _ in 0..300 {
        sink.write(&event);
    }
    drop(sink);
    log.run().await;
    let text = std::fs::read_to_string(folder.join("audit.log")).unwrap();
    assert_eq!(text.lines().count(), 300);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_node_reads_a_secret_as_soon_as_its_pod_is_bound() {
    let f = Fixture::new();
    let node = User { name: "system:node:n1".into(), groups: vec!["system:nodes".into()], ..User::default() };
    let target = Target::Resource { group: "", version: "v1", resource: "secrets", subresource: "", namespace: "ns", name: "s" };
    let allowed = || f.security.authorize(&Attributes::new(&node, "get", target.clone())).allowed();
    let pod = |node: &str| json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": node, "volumes": [{"name": "v", "secret": {"secretName": "s"}}]}});
    assert!(!allowed());
    put(&*f.store, "", "pods", pod("")).await;
    f.store.catch_up();
    assert!(!allowed());
    put(&*f.store, "", "pods", pod("n1")).await;
    f.store.catch_up();
    assert!(allowed());
    delete(&*f.store, "", "pods", &pod("n1")).await;
    f.store.catch_up();
    assert!(!allowed());
}
