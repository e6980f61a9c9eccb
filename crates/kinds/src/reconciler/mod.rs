//! The contract between a controller's decisions and the driver that runs them.
//!
//! ```text
//! event ring -> View -> Trigger::keys -> queue -> Reconciler::reconcile(key, view, cx, memory) -> Plan -> executor -> API server
//! ```
//!
//! A reconciler is told a key and never an event, so nothing is lost if a notification is: it compares what should be with what is. The view it is given is
//! at least as new as the last write made for the same key, which replaces upstream's expectations.

pub mod testing;

use std::any::Any;
use std::collections::BTreeMap;

use serde_json::Value;
use wheelhouse_base::Timestamp;

use crate::plan::{EffectKind, Plan};
use crate::view::{Key, ObjectChange, ResourceName, View};

/// What a call may know beside the view.
pub struct Context<'a> {
    pub now: Timestamp,
    /// Why the last plan for this key ended early, if it did.
    pub failure: Option<&'a Failure>,
    /// Outcomes of the effects that earlier plans for this key asked for, by kind and id.
    pub effects: &'a BTreeMap<(EffectKind, String), Result<Value, String>>,
}

/// An operation that the API server refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// HTTP status code; 0 when no answer came.
    pub code: u16,
    /// `Status.reason`, e.g. `Forbidden`.
    pub reason: String,
    pub message: String,
    /// The resource of the operation that failed.
    pub resource: ResourceName,
}

/// In a [`Trigger`]: objects of every resource.
pub const ANY: ResourceName = ResourceName::new("*", "*");

/// Which keys to look at when an object of `resource` ([`ANY`] for all) changes. Called with the view after the change.
pub struct Trigger {
    pub resource: ResourceName,
    pub keys: fn(&View, &ObjectChange) -> Vec<Key>,
}

impl Trigger {
    /// The object itself is the key.
    pub fn itself(resource: ResourceName) -> Self {
        Self { resource, keys: |_, change| vec![change.reference.key.clone()] }
    }

    /// The owner of kind `K` that the object names as its controller, before and after the change.
    pub fn controller_of<K: k8s_openapi::Resource>(resource: ResourceName) -> Self {
        Self {
            resource,
            keys: |_, change| {
                let sides = [&change.old, &change.new].into_iter().flatten();
                let owners = sides.flat_map(|record| record.owners().iter().map(move |owner| (record, owner)));
                let ours = owners.filter(|(_, o)| o.controller == Some(true) && o.kind == K::KIND && group_of(&o.api_version) == K::GROUP);
                let mut keys: Vec<Key> = ours.map(|(record, o)| Key::new(record.key.namespace.clone(), o.name.as_str())).collect();
                keys.dedup();
                keys
            },
        }
    }
}

/// `apps` of `apps/v1`; empty for `v1`.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// One upstream controller, keyed by one kind.
pub trait Reconciler: Send + Sync + 'static {
    /// What upstream keeps only in process. Empty after a leader change: say in the implementation's doc what happens then.
    type Memory: Default + Send + 'static;

    /// Upstream's controller name as `--controllers` takes it, e.g. `deployment-controller`.
    fn name(&self) -> &'static str;

    /// The service account in `kube-system` that it acts as, e.g. `deployment-controller`.
    fn service_account(&self) -> &'static str {
        self.name()
    }

    /// Whether upstream runs it inside the API server, as whose own user it then acts and whose selection of controllers it does not belong to.
    fn is_part_of_the_server(&self) -> bool {
        false
    }

    /// The component that its events come from, where upstream's is not the controller's name.
    fn component(&self) -> &'static str {
        self.name()
    }

    fn triggers(&self) -> Vec<Trigger>;

    /// Pure and synchronous: no I/O, clock or randomness. A missing object is a key like any other: there may be something to clean up.
    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut Self::Memory) -> Plan;
}

/// A reconciler with its memory's type erased, so that a driver can hold many.
pub trait AnyReconciler: Send + Sync + 'static {
    fn name(&self) -> &'static str;
    fn service_account(&self) -> &'static str;
    fn is_part_of_the_server(&self) -> bool;
    fn component(&self) -> &'static str;
    fn triggers(&self) -> Vec<Trigger>;
    fn new_memory(&self) -> Box<dyn Any + Send>;
    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut (dyn Any + Send)) -> Plan;
}

impl<R: Reconciler> AnyReconciler for R {
    fn name(&self) -> &'static str {
        Reconciler::name(self)
    }

    fn service_account(&self) -> &'static str {
        Reconciler::service_account(self)
    }

    fn is_part_of_the_server(&self) -> bool {
        Reconciler::is_part_of_the_server(self)
    }

    fn component(&self) -> &'static str {
        Reconciler::component(self)
    }

    fn triggers(&self) -> Vec<Trigger> {
        Reconciler::triggers(self)
    }

    fn new_memory(&self) -> Box<dyn Any + Send> {
        Box::new(R::Memory::default())
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, memory: &mut (dyn Any + Send)) -> Plan {
        let memory = memory.downcast_mut::<R::Memory>().expect("the driver hands back the memory that this reconciler made");
        Reconciler::reconcile(self, key, view, cx, memory)
    }
}
