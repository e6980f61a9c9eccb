//! Managed fields: who owns what after a write.

use std::sync::Arc;

use serde_json::{Value, json};
use wheelhouse_meta::apply::{self, Manager, Versions};
use wheelhouse_meta::object::Object;
use wheelhouse_schema::Schema;

use super::Call;
use super::options::WriteOptions;
use crate::request::{Answer, decode};
use crate::resource::Resource;

const STATUS: &[&[&str]] = &[&["status"]];
const SPEC: &[&[&str]] = &[&["spec"]];
const SPEC_AND_STATUS: &[&[&str]] = &[&["spec"], &["status"]];
const SPEC_AND_CERTIFICATE: &[&[&str]] = &[&["spec"], &["status", "certificate"]];
const SPEC_AND_CONDITIONS: &[&[&str]] = &[&["spec"], &["status", "conditions"]];
const SPEC_AND_LABELS: &[&[&str]] = &[&["spec"], &["metadata", "labels"]];
const METADATA_AND_SPEC: &[&[&str]] = &[&["metadata"], &["spec"]];

/// Records an update or a creation (`live` is `None`) in the served version.
pub fn update(call: &Call<'_>, live: Option<&Value>, new: &mut Value, manager: &str) -> Answer<()> {
    let empty;
    let live = match live {
        Some(live) => live,
        None => {
            empty = self::empty(call.resource());
            &empty
        }
    };
    let versions = ServedVersions::of(call);
    *new = apply::update(live, std::mem::take(new), &manager_of(call, manager), &versions);
    Ok(())
}

/// Records what the server itself changed in another resource's object.
pub fn record(call: &Call<'_>, resource: &Resource, before: &Value, after: &mut Value, subresource: &str) {
    let manager = Manager {
        name: "kube-apiserver",
        api_version: &resource.stored_api_version,
        subresource,
        reset_fields: reset_fields(resource, subresource),
        now: call.now,
    };
    let versions = apply::SingleVersion { api_version: &resource.stored_api_version, schema: &resource.stored_schema };
    *after = apply::update(before, std::mem::take(after), &manager, &versions);
}

/// Records a new body of another kind than the resource's, such as a TokenRequest.
pub fn record_in(call: &Call<'_>, body: &mut Value, api_version: &str, schema: &Schema, manager: &str) {
    let mut nothing = json!({"metadata": {}});
    wheelhouse_schema::normalise(&mut nothing, schema);
    *body = update_in(call, &nothing, std::mem::take(body), api_version, schema, manager);
}

/// Records an update of an object of another kind than the resource's, such as a Scale.
pub fn update_in(call: &Call<'_>, live: &Value, new: Value, api_version: &str, schema: &Schema, manager: &str) -> Value {
    apply::update(live, new, &foreign_manager(call, api_version, manager), &apply::SingleVersion { api_version, schema })
}

/// Merges an applied body of another kind than the resource's.
pub fn merge_in(call: &Call<'_>, live: &Value, applied: &Value, api_version: &str, schema: &Schema, options: &WriteOptions) -> Answer<Value> {
    let manager = foreign_manager(call, api_version, &options.manager);
    let merged = apply::apply(live, applied, &manager, options.force, &apply::SingleVersion { api_version, schema });
    merged.map_err(|error| Box::new(error.into_status()))
}

fn foreign_manager<'a>(call: &Call<'_>, api_version: &'a str, name: &'a str) -> Manager<'a> {
    Manager { name, api_version, subresource: call.subresource(), reset_fields: &[], now: call.now }
}

/// Merges an applied body into the live object, or into nothing.
pub fn merge(call: &Call<'_>, live: Option<&Value>, applied: &Value, options: &WriteOptions) -> Answer<Value> {
    let empty = live.is_none().then(|| self::empty(call.resource()));
    let live = live.or(empty.as_ref()).unwrap_or(&Value::Null);
    let merged = apply::apply(live, applied, &manager_of(call, &options.manager), options.force, &ServedVersions::of(call));
    merged.map_err(|error| Box::new(error.into_status()))
}

/// The kind's object with nothing in it, as Go would write it.
fn empty(resource: &Resource) -> Value {
    let mut object = json!({});
    decode::set_type(&mut object, &resource.api_version, resource.info().kind);
    wheelhouse_schema::normalise(&mut object, &resource.schema);
    object.metadata_mut();
    object
}

fn manager_of<'a>(call: &Call<'a>, name: &'a str) -> Manager<'a> {
    let resource = call.resource();
    let subresource = call.subresource();
    Manager { name, api_version: &resource.api_version, subresource, reset_fields: reset_fields(resource, subresource), now: call.now }
}

/// What a write here cannot change, so that nobody comes to own it through here.
fn reset_fields(resource: &Resource, subresource: &str) -> &'static [&'static [&'static str]] {
    // What is asked for in a certificate request never changes after all, and who asks is not what the body says.
    if resource.is("certificates.k8s.io", "certificatesigningrequests") {
        return match subresource {
            "" => SPEC_AND_STATUS,
            "approval" => SPEC_AND_CERTIFICATE,
            _ => SPEC_AND_CONDITIONS,
        };
    }
    match subresource {
        "" if resource.subresource("status").is_some() => STATUS,
        "status" if resource.is("apps", "deployments") => SPEC_AND_LABELS,
        "status" if resource.is_custom() || resource.is("apiextensions.k8s.io", "customresourcedefinitions") => METADATA_AND_SPEC,
        "status" => SPEC,
        "resize" | "ephemeralcontainers" => STATUS,
        _ => &[],
    }
}

/// The versions that one kind is served in.
struct ServedVersions<'a> {
    call: &'a Call<'a>,
    /// The versions of a custom resource, which are no part of the catalogue.
    others: Vec<Arc<Resource>>,
}

impl<'a> ServedVersions<'a> {
    fn of(call: &'a Call<'a>) -> Self {
        let resource = call.resource();
        let others = if resource.is_custom() { call.server.custom().versions(resource.info().group, resource.info().plural) } else { Vec::new() };
        Self { call, others }
    }

    fn find(&self, api_version: &str) -> Option<&Resource> {
        let resource = self.call.resource();
        if resource.api_version == api_version {
            return Some(resource);
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if let Some(other) = self.others.iter().find(|other| other.entry.group == group && other.entry.version == version) {
            return Some(other);
        }
        let found = self.call.server.catalogue.find(group, version, resource.info().plural)?;
        (found.storage_index == resource.storage_index).then_some(found.as_ref())
    }
}

impl Versions for ServedVersions<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.find(api_version).map(|resource| &resource.schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let target = self.find(api_version)?;
        let mut object = object.clone();
        let source = self.find(object.api_version())?;
        if source.index == target.index {
            return Some(object);
        }
        if target.is_custom() {
            // Versions of a custom resource are not converted: what one lacks is not taken out for the sake of who owns it.
            decode::set_type(&mut object, &target.api_version, target.info().kind);
            return Some(object);
        }
        source.to_stored(&mut object);
        target.to_served(&mut object);
        Some(object)
    }
}
