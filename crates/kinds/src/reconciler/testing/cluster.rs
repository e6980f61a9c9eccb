//! A cluster in a test: plans are carried out against it as the API server would, so that whole rollouts run.
//!
//! Objects get their defaults and pass their kind's validation, an operation with an outdated version is refused, and pods that are bound to a node
//! wait for their kubelet, which the test plays, before they are gone.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;

use super::{NOW, World};
use crate::kind::{Kind, RequestContext};
use crate::plan::{Operation, PatchStrategy, Plan};
use crate::reconciler::{Context, Failure, Reconciler};
use crate::time::api_time;
use crate::view::{Key, ObjectRef, ResourceName, View};

/// Plans in a row after which a controller is taken to run in circles.
const MAX_ROUNDS: usize = 200;

pub struct Cluster {
    world: World,
    pub now: Timestamp,
    /// `reason: message` of every event so far.
    pub events: Vec<String>,
    /// Refuses the next creations of a resource with this message.
    pub refuse: Option<(ResourceName, String)>,
    failure: Option<Failure>,
    uids: u32,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { world: World::new(), now: NOW, events: Vec::new(), refuse: None, failure: None, uids: 0 }
    }
}

impl Cluster {
    pub fn view(&self) -> &View {
        self.world.view()
    }

    fn kind_of(&self, object: &Value) -> (Arc<dyn Kind>, ObjectRef) {
        let api_version = object["apiVersion"].as_str().expect("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let entry = self.world.registry.kind(group, version, object["kind"].as_str().expect("kind")).expect("a known kind");
        let info = entry.info();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let reference = ObjectRef { resource: ResourceName::new(info.group, info.plural), key: Key::new(text("namespace"), text("name")) };
        (Arc::clone(entry.kind().expect("a stored kind")), reference)
    }

    fn request<'a>(&self, subresource: &'a str) -> RequestContext<'a> {
        RequestContext { now: self.now, subresource, ..RequestContext::default() }
    }

    /// Creates an object as the API server would. Panics on what it would refuse.
    pub fn create(&mut self, mut object: Value) {
        let (kind, reference) = self.kind_of(&object);
        assert!(self.view().find(&reference).is_none(), "{} exists", reference.key);
        self.uids += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        object["metadata"]["creationTimestamp"] = json!(api_time(self.now));
        if kind.info().generation {
            object["metadata"]["generation"] = json!(1);
        }
        let status = object["status"].take();
        kind.default(&mut object);
        let verdict = kind.prepare_create(&mut object, &self.request(""));
        assert!(verdict.errors.is_empty(), "{}: {:?}", reference.key, verdict.errors);
        if !status.is_null() {
            object["status"] = status;
        }
        self.world.put(object);
    }

    /// The object as JSON; null if there is none.
    pub fn get(&self, resource: &ResourceName, namespace: &str, name: &str) -> Value {
        self.view().record(resource, &Key::new(namespace, name)).map_or(Value::Null, |record| record.value())
    }

    /// Names of a namespace's objects of a resource.
    pub fn names(&self, resource: &ResourceName, namespace: &str) -> Vec<String> {
        self.view().records(resource, Some(namespace)).map(|record| record.key.name.to_string()).collect()
    }

    /// Changes an object as a user would, status and all.
    pub fn edit(&mut self, resource: &ResourceName, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(resource, namespace, name);
        assert!(object.is_object(), "there is no {resource} {namespace}/{name}");
        let old = object.clone();
        change(&mut object);
        self.store(old, object, None);
    }

    /// Deletes an object as a user would.
    pub fn delete(&mut self, resource: &ResourceName, namespace: &str, name: &str) {
        let mut object = self.get(resource, namespace, name);
        if object.is_null() {
            return;
        }
        let (_, reference) = self.kind_of(&object);
        if object["metadata"]["deletionTimestamp"].is_null() && (has_kubelet(&object) || has_finalizers(&object)) {
            object["metadata"]["deletionTimestamp"] = json!(api_time(self.now));
            self.world.put(object);
        } else if !has_kubelet(&object) && !has_finalizers(&object) {
            self.world.remove(&reference);
        }
    }

    /// The kubelet's part at a pod's end: the pod is terminal, and gone unless finalizers hold it.
    pub fn pod_stops(&mut self, namespace: &str, name: &str) {
        self.edit(&ResourceName::new("", "pods"), namespace, name, |pod| pod["status"]["phase"] = json!("Failed"));
    }

    fn store(&mut self, old: Value, mut object: Value, subresource: Option<&str>) {
        let (kind, reference) = self.kind_of(&object);
        if let Some(subresource) = subresource {
            let verdict = kind.prepare_update(&mut object, &old, &self.request(subresource));
            assert!(verdict.errors.is_empty(), "{}: {:?}", reference.key, verdict.errors);
        }
        if kind.info().generation && subresource != Some("status") && kind.spec_changed(&object, &old) {
            object["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
        let going = !object["metadata"]["deletionTimestamp"].is_null();
        if going && !has_kubelet(&object) && !has_finalizers(&object) {
            self.world.remove(&reference);
        } else if object != old {
            self.world.put(object);
        }
    }

    /// One call for a key, its plan carried out.
    pub fn run<R: Reconciler>(&mut self, reconciler: &R, key: &Key, memory: &mut R::Memory) -> Plan {
        let none = std::collections::BTreeMap::new();
        let failure = self.failure.take();
        let cx = Context { now: self.now, failure: failure.as_ref(), effects: &none };
        let plan = reconciler.reconcile(key, self.view(), &cx, memory);
        self.events.extend(plan.events.iter().map(|event| format!("{}: {}", event.reason, event.message)));
        for operation in &plan.operations {
            if let Err(failure) = self.carry_out(operation) {
                self.failure = Some(failure);
                break;
            }
        }
        plan
    }

    /// Calls for a key until nothing is left to do now. Answers when to look again.
    pub fn settle<R: Reconciler>(&mut self, reconciler: &R, key: &Key, memory: &mut R::Memory) -> Option<Timestamp> {
        for _ in 0..MAX_ROUNDS {
            let plan = self.run(reconciler, key, memory);
            if plan.operations.is_empty() {
                return plan.requeue_at;
            }
        }
        panic!("{key} does not settle");
    }

    pub fn wait(&mut self, seconds: u64) {
        self.now = self.now.plus(Duration::from_secs(seconds));
    }

    fn carry_out(&mut self, operation: &Operation) -> Result<(), Failure> {
        match operation {
            Operation::Create { resource, object, .. } => {
                if let Some((_, message)) = self.refuse.as_ref().filter(|(refused, _)| refused == resource) {
                    return Err(refusal(resource, 403, "Forbidden", message));
                }
                let (_, reference) = self.kind_of(object);
                if self.view().find(&reference).is_some() {
                    return Err(refusal(resource, 409, "AlreadyExists", "already exists"));
                }
                self.create(object.clone());
            }
            Operation::Update { resource, subresource, object } => {
                let (_, reference) = self.kind_of(object);
                let old = self.current(resource, &reference.key, &object["metadata"])?;
                let mut new = object.clone();
                if *subresource == "status" {
                    new = old.clone();
                    new["status"] = object["status"].clone();
                }
                self.store(old, new, Some(subresource));
            }
            Operation::Patch { resource, key, subresource, strategy, patch } => {
                let old = self.current(resource, key, &patch["metadata"])?;
                let mut new = old.clone();
                let mut patch = patch.clone();
                for precondition in ["uid", "resourceVersion"] {
                    patch["metadata"].as_object_mut().map(|meta| meta.remove(precondition));
                }
                assert!(matches!(strategy, PatchStrategy::Merge | PatchStrategy::Strategic), "the test plays merge patches");
                merge(&mut new, patch, *strategy == PatchStrategy::Strategic);
                self.store(old, new, (!subresource.is_empty()).then_some(subresource));
            }
            Operation::Delete { resource, key, options } => {
                let current = self.get(resource, &key.namespace, &key.name);
                if options.uid.is_some() && !current.is_null() && current["metadata"]["uid"].as_str() != options.uid.as_deref() {
                    return Err(refusal(resource, 409, "Conflict", "uid"));
                }
                self.delete(resource, &key.namespace, &key.name);
            }
            Operation::Post { .. } => panic!("the test plays no subresources"),
        }
        Ok(())
    }

    fn current(&self, resource: &ResourceName, key: &Key, preconditions: &Value) -> Result<Value, Failure> {
        let current = self.get(resource, &key.namespace, &key.name);
        if current.is_null() {
            return Err(refusal(resource, 404, "NotFound", "not found"));
        }
        let differs = |field: &str| preconditions[field].is_string() && preconditions[field] != current["metadata"][field];
        if differs("uid") || differs("resourceVersion") { Err(refusal(resource, 409, "Conflict", "changed")) } else { Ok(current) }
    }
}

/// A merge patch; under `strategic`, lists of conditions are merged by their type, which is all that planners use of it.
fn merge(target: &mut Value, mut patch: Value, strategic: bool) {
    if strategic && let Some(Value::Array(conditions)) = patch.pointer_mut("/status/conditions").map(Value::take) {
        let mut all = target["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for condition in conditions {
            all.retain(|old| old["type"] != condition["type"]);
            all.push(condition);
        }
        patch["status"]["conditions"] = Value::Array(all);
    }
    wheelhouse_meta::patch::merge_value(target, patch);
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

/// A pod whose containers may still run.
fn has_kubelet(object: &Value) -> bool {
    let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    object["kind"] == "Pod" && object["spec"]["nodeName"].is_string() && !ended
}

fn refusal(resource: &ResourceName, code: u16, reason: &str, message: &str) -> Failure {
    Failure { code, reason: reason.into(), message: message.into(), resource: resource.clone() }
}
