//! What a reconciler decided, as plain data: printable, comparable, executed by one executor that has no choices left.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;
use wheelhouse_base::Timestamp;

use crate::view::{Key, ResourceName};

/// The most operations one plan may carry: upstream's burst of 500 replicas per sync. A reconciler with more to do asks to run again at once.
pub const MAX_OPERATIONS: usize = 500;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Applied in order. Neighbouring creations, and neighbouring deletions, do not depend on one another and may overlap.
    /// The first failure ends the plan; the key is retried with back-off and sees the failure in [`Context::failure`](crate::reconciler::Context).
    pub operations: Vec<Operation>,
    /// Normal events tell of what the plan does, and are recorded if all of its operations succeed; warnings are recorded always.
    pub events: Vec<EventNote>,
    pub effects: Vec<Effect>,
    /// When to look at this key again even if nothing changes.
    pub requeue_at: Option<Timestamp>,
}

/// One request to the API server, made as the controller's own user.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Create {
        resource: ResourceName,
        namespace: String,
        object: Value,
    },
    /// A PUT. `object` carries the resourceVersion that was read, so a stale view loses with a conflict. `subresource` is empty for the object itself.
    Update {
        resource: ResourceName,
        subresource: &'static str,
        object: Value,
    },
    /// A patch of what the patch names. Put `metadata.uid` or `metadata.resourceVersion` into it as the precondition.
    Patch {
        resource: ResourceName,
        key: Key,
        subresource: &'static str,
        strategy: PatchStrategy,
        patch: Value,
    },
    Delete {
        resource: ResourceName,
        key: Key,
        options: DeleteOptions,
    },
    /// `POST` to a subresource: pods/binding, pods/eviction.
    Post {
        resource: ResourceName,
        key: Key,
        subresource: &'static str,
        object: Value,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchStrategy {
    Json,
    Merge,
    Strategic,
    /// Server-side apply under the controller's name, forced.
    Apply,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeleteOptions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Foreground,
    Background,
    Orphan,
}

impl Propagation {
    pub fn as_str(self) -> &'static str {
        match self {
            Propagation::Foreground => "Foreground",
            Propagation::Background => "Background",
            Propagation::Orphan => "Orphan",
        }
    }
}

/// An `Event` to record, merged with equal ones into a series by the recorder.
#[derive(Clone, Debug, PartialEq)]
pub struct EventNote {
    /// What it is about: resource, key, and uid at the time.
    pub api_version: String,
    pub kind: String,
    pub key: Key,
    pub uid: String,
    /// `Normal` or `Warning`.
    pub kind_of_event: EventType,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// Something outside the store. Idempotent, or it carries a generation. Its outcome is an input of the next call for the same key.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    pub kind: EffectKind,
    /// Tells effects of one kind and key apart, e.g. a generation.
    pub id: String,
    pub input: Value,
}

/// The closed list of effects; each is executed by the shell that knows how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectKind {
    /// Makes a hosted cluster's certificate authorities and keys; the answer is the wrapped bundle.
    IssueClusterKeys,
    /// An authenticated write and read through the endpoint with the tenant's credentials.
    ProveReady,
    /// Whether a user may do something: the spec of a SubjectAccessReview; the answer is its status.
    ReviewAccess,
    /// Signs a certificate request with the cluster's CA; the answer is the certificate as PEM.
    SignCertificate,
    /// A GET of a metrics API (`metrics.k8s.io`, `custom.metrics.k8s.io`, `external.metrics.k8s.io`) as the controller's user. Input: `path`;
    /// the answer is the body.
    ReadMetrics,
}

fn key_of(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

impl Operation {
    /// Writes `status` over the object's own, unless the object has changed since it was read.
    pub fn status<T: k8s_openapi::Resource + Serialize>(object: &T, status: &impl Serialize) -> Self {
        let mut object = serde_json::to_value(object).expect("an API object is plain data");
        object["status"] = serde_json::to_value(status).expect("a status is plain data");
        Operation::Update { resource: ResourceName::of::<T>(), subresource: "status", object }
    }

    /// Deletes this very object, and no later one of its name.
    pub fn delete<T: k8s_openapi::Resource>(meta: &ObjectMeta) -> Self {
        let options = DeleteOptions { uid: meta.uid.clone(), ..DeleteOptions::default() };
        Operation::Delete { resource: ResourceName::of::<T>(), key: key_of(meta), options }
    }

    /// A merge patch that loses to any other change of the object.
    pub fn patch<T: k8s_openapi::Resource>(meta: &ObjectMeta, mut patch: Value) -> Self {
        patch["metadata"]["uid"] = meta.uid.clone().into();
        patch["metadata"]["resourceVersion"] = meta.resource_version.clone().into();
        Operation::Patch { resource: ResourceName::of::<T>(), key: key_of(meta), subresource: "", strategy: PatchStrategy::Merge, patch }
    }
}

impl EventNote {
    /// About an object of kind `K`.
    pub fn about<K: k8s_openapi::Resource>(meta: &ObjectMeta, kind_of_event: EventType, reason: &str, message: impl Into<String>) -> Self {
        Self {
            api_version: K::API_VERSION.into(),
            kind: K::KIND.into(),
            key: key_of(meta),
            uid: meta.uid.clone().unwrap_or_default(),
            kind_of_event,
            reason: reason.into(),
            message: message.into(),
        }
    }
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.events.is_empty() && self.effects.is_empty() && self.requeue_at.is_none()
    }

    /// Keeps the earlier of the two times.
    pub fn requeue_no_later_than(&mut self, at: Timestamp) {
        self.requeue_at = Some(self.requeue_at.map_or(at, |earlier| earlier.min(at)));
    }
}
