//! A cluster's life, plan by plan: the world is a view, and each plan is played back into it as the API server would.

use super::*;
use wheelhouse_base::HostName;
use wheelhouse_kinds::fleet::conditions::{self, PLACED, READY, reason};
use wheelhouse_kinds::fleet::control_plane_replica::{ReplicaStatus, Role};
use wheelhouse_kinds::fleet::host::{HostSpec, HostStatus};
use wheelhouse_kinds::fleet::{Object, cluster::ClusterSpec};
use wheelhouse_kinds::view::{ObjectRef, Record, ResourceName};

struct World {
    view: View,
    revision: u64,
    now: Timestamp,
    memory: Memories,
    effects: BTreeMap<(EffectKind, String), Result<Value, String>>,
    /// What the next proof answers.
    proof: Result<Value, String>,
}

const KEY: (&str, &str) = ("tenant-t", "demo");

impl World {
    fn new(hosts: &[&str]) -> Self {
        let mut world = Self {
            view: View::default(),
            revision: 1,
            now: Timestamp::from_secs(1_000_000),
            memory: Memories::default(),
            effects: BTreeMap::new(),
            proof: Ok(Value::Null),
        };
        for host in hosts {
            world.host(host, Some(true));
        }
        let mut cluster: Cluster = Object::new("Cluster", KEY.0, KEY.1, ClusterSpec { replicas: 3, ..ClusterSpec::default() });
        cluster.metadata.uid = Some("uid-1".into());
        cluster.metadata.generation = Some(1);
        world.put(CLUSTERS, serde_json::to_value(cluster).unwrap());
        world
    }

    fn host(&mut self, name: &str, ready: Option<bool>) {
        let mut host: Host = Object::new("Host", "", name, HostSpec::default());
        let mut status = HostStatus::default();
        let reading = conditions::Reading { kind: READY, status: ready, reason: reason::HEARTBEAT, message: String::new() };
        conditions::set(&mut status.conditions, reading, 0, self.now);
        host.status = Some(status);
        self.put(HOSTS, serde_json::to_value(host).unwrap());
    }

    fn put(&mut self, resource: ResourceName, object: Value) {
        self.revision += 1;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(text("namespace"), text("name"));
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap().to_owned(), object["kind"].as_str().unwrap().to_owned());
        let mut rest = object.clone();
        for field in ["apiVersion", "kind"] {
            rest.as_object_mut().unwrap().remove(field);
        }
        rest["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let metadata = rest.as_object_mut().unwrap().remove("metadata").unwrap();
        // A stored body begins right after `"metadata":{`.
        let mut body = metadata.to_string()[1..].to_owned();
        for (field, value) in rest.as_object().unwrap() {
            body.push_str(&format!(",\"{field}\":{value}"));
        }
        body.push('}');
        let record = Record::parse(resource, key, api_version, kind, self.revision, body.into()).unwrap();
        self.view.apply(record.reference(), Some(Arc::new(record)));
    }

    /// One call; its plan is played into the world and returned.
    fn step(&mut self) -> Plan {
        let effects = self.effects.clone();
        let cx = Context { now: self.now, failure: None, effects: &effects };
        let settings = Settings { base_domain: "w.internal".into(), endpoint: "https://127.0.0.1:6443".into(), patience: Patience::default() };
        let reconciler = ClusterReconciler { settings };
        let plan = reconciler.reconcile(&Key::new(KEY.0, KEY.1), &self.view, &cx, &mut self.memory);
        for operation in plan.operations.clone() {
            self.play(operation);
        }
        for effect in &plan.effects {
            let outcome = match effect.kind {
                EffectKind::IssueClusterKeys => Ok(Value::from("d3JhcHBlZA==")),
                EffectKind::ProveReady => self.proof.clone(),
                other => panic!("the fleet asks for no {other:?}"),
            };
            self.effects.insert((effect.kind, effect.id.clone()), outcome);
        }
        plan
    }

    fn play(&mut self, operation: Operation) {
        match operation {
            Operation::Create { resource, object, .. } => self.put(resource, object),
            Operation::Patch { resource, key, patch, subresource, .. } => {
                let mut object = self.view.record(&resource, &key).unwrap().value();
                let before = object["spec"].clone();
                merge(&mut object, &patch);
                if object["spec"] != before && subresource.is_empty() {
                    let generation = object["metadata"]["generation"].as_i64().unwrap_or(1) + 1;
                    object["metadata"]["generation"] = generation.into();
                }
                let unheld = object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
                if unheld && object["metadata"].get("deletionTimestamp").is_some() {
                    self.view.apply(ObjectRef { resource, key }, None);
                } else {
                    self.put(resource, object);
                }
            }
            Operation::Delete { resource, key, .. } => {
                let mut object = self.view.record(&resource, &key).unwrap().value();
                if object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
                    self.view.apply(ObjectRef { resource, key }, None);
                } else {
                    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                    self.put(resource, object);
                }
            }
            other => panic!("not expected here: {other:?}"),
        }
    }

    /// Steps until a plan changes nothing.
    fn settle(&mut self) {
        for _ in 0..20 {
            let plan = self.step();
            if plan.operations.is_empty() && plan.effects.is_empty() {
                return;
            }
        }
        panic!("never settles");
    }

    fn cluster(&self) -> Arc<Cluster> {
        self.view.get::<Cluster>(KEY.0, KEY.1).expect("the cluster is there")
    }

    fn replicas(&self) -> Vec<Arc<ControlPlaneReplica>> {
        self.view.list::<ControlPlaneReplica>(Some(SYSTEM_NAMESPACE)).collect()
    }

    /// Every replica that is not being deleted reports ready; the first of `voters` leads.
    fn report(&mut self, term: u64, voters: &[u64]) {
        for replica in self.replicas() {
            let mut replica = (*replica).clone();
            let mut status = ReplicaStatus { term, observed_generation: replica.spec.generation, ..ReplicaStatus::default() };
            status.role = if replica.spec.replica_id.0 == voters[0] { Role::Leader } else { Role::Follower };
            status.voters = voters.iter().map(|v| ReplicaId(*v)).collect();
            let reading = conditions::Reading { kind: READY, status: Some(true), reason: reason::SERVING, message: String::new() };
            conditions::set(&mut status.conditions, reading, 1, self.now);
            replica.status = Some(status);
            self.put(REPLICAS, serde_json::to_value(replica).unwrap());
        }
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let status = self.cluster().status.clone().unwrap();
        let condition = conditions::find(&status.conditions, kind).unwrap();
        (condition.status.clone(), condition.reason.clone())
    }

    /// Hosts destroy what was deleted.
    fn destroy_deleted(&mut self) {
        for replica in self.replicas().into_iter().filter(|r| r.is_deleting()) {
            self.view.apply(ObjectRef { resource: REPLICAS, key: Key::new(SYSTEM_NAMESPACE, replica.name()) }, None);
        }
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *into = patch.clone() };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key.as_str()], value);
        }
    }
}

fn running() -> World {
    let mut world = World::new(&["a", "b", "c"]);
    world.settle();
    world.report(1, &[1, 2, 3]);
    world.settle();
    world
}

#[test]
fn a_cluster_gets_keys_replicas_and_a_proof() {
    let mut world = World::new(&["a", "b", "c"]);
    let first = world.step();
    assert_eq!(first.effects[0].kind, EffectKind::IssueClusterKeys);
    assert!(world.replicas().is_empty(), "no replica before its members are written and its keys stored");
    world.settle();
    let replicas = world.replicas();
    assert_eq!(replicas.len(), 3);
    assert_eq!(replicas.iter().filter(|r| r.spec.founder).map(|r| r.spec.replica_id.0).collect::<Vec<_>>(), [1], "one founder");
    assert!(replicas.iter().all(|r| r.spec.members.len() == 3 && r.spec.generation == world.cluster().generation()));
    assert_eq!(world.condition(READY), ("False".into(), reason::NOT_PROVEN.into()));

    world.report(1, &[1, 2, 3]);
    world.settle();
    assert_eq!(world.condition(READY), ("True".into(), reason::PROVEN.into()));
    let status = world.cluster().status.clone().unwrap();
    assert_eq!((status.leader.as_str(), status.server_name), ("a", format!("{}.w.internal", status.cluster_id)));
    let binding = world.view.get::<RoleBinding>(SYSTEM_NAMESPACE, &bundle_name(&world.cluster().cluster_id())).unwrap();
    assert_eq!(binding.subjects.as_ref().unwrap().len(), 3, "exactly the members' hosts may read the keys");
}

#[test]
fn without_hosts_it_waits_and_says_why() {
    let mut world = World::new(&["a", "b"]);
    world.settle();
    assert_eq!(world.condition(PLACED), ("False".into(), reason::NO_HOST.into()));
    assert!(world.replicas().is_empty());
    world.host("c", Some(true));
    world.settle();
    assert_eq!(world.replicas().len(), 3);
}

#[test]
fn a_failed_proof_is_told_and_tried_again() {
    let mut world = World::new(&["a", "b", "c"]);
    world.settle();
    world.report(1, &[1, 2, 3]);
    world.proof = Err("connection refused".into());
    world.step();
    let plan = world.step();
    assert_eq!(world.condition(READY), ("False".into(), reason::PROBE_FAILED.into()));
    assert!(plan.requeue_at.is_some_and(|at| at == world.now.plus(RETRY)));
    assert!(world.step().effects.is_empty(), "not before its time");
    world.proof = Ok(Value::Null);
    world.now = world.now.plus(RETRY);
    world.settle();
    assert_eq!(world.condition(READY), ("True".into(), reason::PROVEN.into()));
}

#[test]
fn a_new_leadership_is_proven_anew_while_ready_stays() {
    let mut world = running();
    world.report(2, &[2, 1, 3]);
    let plan = world.step();
    assert_eq!(plan.effects.iter().map(|e| e.kind).collect::<Vec<_>>(), [EffectKind::ProveReady]);
    assert_eq!(world.condition(READY).0, "True");
    world.settle();
    assert!(world.cluster().status.as_ref().unwrap().proven.ends_with("/2"));
}

#[test]
fn a_lost_host_is_replaced_after_ten_minutes() {
    let mut world = running();
    world.host("d", Some(true));
    world.host("c", None);
    world.settle();
    assert_eq!(world.cluster().spec.members.len(), 3);
    assert!(world.cluster().spec.members.iter().any(|m| m.host.as_str() == "c"));

    world.now = world.now.plus(Duration::from_secs(601));
    world.settle();
    let members: Vec<(u64, HostName)> = world.cluster().spec.members.iter().map(|m| (m.replica_id.0, m.host.clone())).collect();
    assert_eq!(members, [(1, "a".parse().unwrap()), (2, "b".parse().unwrap()), (4, "d".parse().unwrap())]);
    let names = |w: &World| w.replicas().iter().map(|r| (r.spec.replica_id.0, r.is_deleting())).collect::<Vec<_>>();
    assert_eq!(names(&world), [(1, false), (2, false), (3, false), (4, false)], "the old one stays until the group has let it go");
    assert!(!world.replicas()[3].spec.founder, "a later replica never founds");

    world.report(1, &[1, 2, 4]);
    world.settle();
    assert_eq!(names(&world), [(1, false), (2, false), (4, false)], "its host is gone, so its finalizer is taken off");
}

#[test]
fn suspension_keeps_the_replicas_and_ends_readiness() {
    let mut world = running();
    let mut cluster = (*world.cluster()).clone();
    cluster.spec.suspended = true;
    cluster.metadata.generation = Some(cluster.generation() + 1);
    world.put(CLUSTERS, serde_json::to_value(cluster).unwrap());
    world.settle();
    assert!(world.replicas().iter().all(|r| r.spec.suspended && !r.is_deleting()));
    assert_eq!(world.condition(READY), ("False".into(), reason::SUSPENDED.into()));
}

#[test]
fn deletion_takes_replicas_then_keys_then_the_cluster() {
    let mut world = running();
    let id = world.cluster().cluster_id();
    world.play(Operation::Delete { resource: CLUSTERS, key: Key::new(KEY.0, KEY.1), options: Default::default() });
    world.settle();
    assert!(world.replicas().iter().all(|r| r.is_deleting()) && world.replicas().len() == 3);
    assert!(world.view.get::<Secret>(SYSTEM_NAMESPACE, &bundle_name(&id)).is_some(), "keys stay while replicas do");
    world.destroy_deleted();
    world.settle();
    assert!(world.view.get::<Secret>(SYSTEM_NAMESPACE, &bundle_name(&id)).is_none());
    assert!(world.view.get::<RoleBinding>(SYSTEM_NAMESPACE, &bundle_name(&id)).is_none());
    assert!(world.view.get::<Cluster>(KEY.0, KEY.1).is_none());
}
