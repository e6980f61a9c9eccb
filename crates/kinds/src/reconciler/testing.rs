//! Worlds for reconcilers' tests: objects as JSON in, a view out.

mod cluster;

pub use cluster::Cluster;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use wheelhouse_base::Timestamp;

use super::Context;
use crate::registry::{Profile, Registry};
use crate::view::{Key, ObjectRef, Record, ResourceName, View};

/// 2026-01-01T00:10:00Z.
pub const NOW: Timestamp = Timestamp::from_secs(1_767_226_200);

/// A view that is built object by object; each has the next revision.
pub struct World {
    registry: Registry,
    view: View,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    pub fn new() -> Self {
        Self { registry: Registry::new(Profile::Tenant), view: View::default() }
    }

    /// Adds or replaces an object. Panics on one that the registry does not know: the test is wrong.
    #[must_use]
    pub fn with(mut self, json: &str) -> Self {
        self.put(serde_json::from_str(json).expect("the test's object is JSON"));
        self
    }

    pub fn put(&mut self, object: Value) {
        let api_version = object["apiVersion"].as_str().expect("apiVersion").to_owned();
        let kind = object["kind"].as_str().expect("kind").to_owned();
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let entry = self.registry.kind(group, version, &kind).unwrap_or_else(|| panic!("{api_version} {kind} is not in the registry"));
        let info = entry.info();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(text("namespace"), text("name"));
        let resource = ResourceName::new(info.group, info.plural);
        let revision = self.view.revision() + 1;
        let mut rest = object.clone();
        let metadata = rest["metadata"].take();
        let fields = rest.as_object_mut().expect("an object");
        fields.retain(|name, _| !matches!(name.as_str(), "metadata" | "kind" | "apiVersion"));
        let mut body = metadata.to_string().split_off(1);
        for (name, value) in fields {
            body.push_str(&format!(",{}:{value}", Value::from(name.as_str())));
        }
        body.push('}');
        let record = Record::parse(resource, key, api_version, kind, revision, body.into()).expect("the test's object decodes");
        self.view.apply(record.reference(), Some(Arc::new(record)));
        self.view.advance(revision);
    }

    /// Takes an object away; that too has a revision.
    pub fn remove(&mut self, reference: &ObjectRef) {
        self.view.apply(reference.clone(), None);
        self.view.advance(self.view.revision() + 1);
    }

    pub fn view(&self) -> &View {
        &self.view
    }
}

/// A first call at [`NOW`], with no failure behind it.
pub fn context() -> Context<'static> {
    static NONE: BTreeMap<(crate::plan::EffectKind, String), Result<Value, String>> = BTreeMap::new();
    Context { now: NOW, failure: None, effects: &NONE }
}
