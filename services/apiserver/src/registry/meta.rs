//! Object metadata on its way into the store: what the server fills in, keeps and checks.

use serde_json::{Map, Value, json};
use wheelhouse_kinds::kind::NameRule;
use wheelhouse_meta::Status;
use wheelhouse_meta::field::{ErrorList, Path};
use wheelhouse_meta::object::{Object, fill_system_fields, generate_name};
use wheelhouse_meta::validation::{NameFormat, object_meta_create, object_meta_update};

use super::Call;
use crate::request::Answer;
use crate::resource::Resource;

/// The namespace of a body must be the path's, or absent.
pub fn place(object: &mut Value, namespace: &str) -> Answer<()> {
    let sent = object.namespace();
    if sent == namespace {
        return Ok(());
    }
    if !sent.is_empty() && !namespace.is_empty() {
        return Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request").into());
    }
    let metadata = object.metadata_mut();
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".into(), namespace.into());
    }
    Ok(())
}

/// Drops what only the server may say about a new object.
pub fn wipe_system_fields(object: &mut Value) {
    let metadata = object.metadata_mut();
    for field in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
}

/// Gives a new object its uid, time, name and generation. `attempt` varies a generated name.
pub fn fill_new(call: &Call<'_>, resource: &Resource, object: &mut Value, attempt: u64) {
    fill_system_fields(object, &uuid::Uuid::new_v4().to_string(), call.now);
    if object.name().is_empty() && !object.meta_text("generateName").is_empty() {
        let name = generate_name(object.meta_text("generateName"), call.seed.wrapping_add(attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        object.metadata_mut().insert("name".into(), name.into());
    }
    if resource.info().generation {
        object.metadata_mut().insert("generation".into(), json!(1));
    }
}

/// Kinds whose own update validation looks at no metadata, so that only the common check complains.
const CHECKED_ONCE: &[&str] = &[
    "limitranges",
    "mutatingwebhookconfigurations",
    "poddisruptionbudgets",
    "prioritylevelconfigurations",
    "validatingadmissionpolicies",
    "volumeattachments",
];

/// The older of the two versions of an Event, whose validation upstream keeps as lax as it was.
fn is_core_event(resource: &Resource) -> bool {
    resource.info().plural == "events" && resource.entry.group.is_empty()
}

fn format_of(resource: &Resource) -> NameFormat {
    if is_core_event(resource) || resource.is("policy", "poddisruptionbudgets") {
        return NameFormat::PathSegment;
    }
    match resource.kind().name_rule() {
        NameRule::Subdomain => NameFormat::Dns1123Subdomain,
        NameRule::SubdomainBytes => NameFormat::Dns1123SubdomainBytes,
        NameRule::Label => NameFormat::Dns1123Label,
        NameRule::Label1035 => NameFormat::Dns1035Label,
        NameRule::PathSegment | NameRule::Own => NameFormat::PathSegment,
    }
}

/// Errors of a new object's metadata.
pub fn check_new(resource: &Resource, object: &Value) -> ErrorList {
    let path = Path::new("metadata");
    object_meta_create(&object["metadata"], resource.namespaced(), format_of(resource), &path)
}

/// Errors of an update's metadata. Upstream checks it once for every kind and once more in nearly every kind's own validation, so each appears
/// twice; the kinds that are checked once only have it once.
pub fn check_update(resource: &Resource, new: &Value, old: &Value) -> ErrorList {
    let path = Path::new("metadata");
    let mut errors = object_meta_create(&new["metadata"], resource.namespaced(), NameFormat::PathSegment, &path);
    let own = object_meta_update(&new["metadata"], &old["metadata"], &path);
    if !is_core_event(resource) && !CHECKED_ONCE.contains(&resource.info().plural) {
        errors.extend(own.clone());
    }
    errors.extend(own);
    errors
}

/// Keeps what an update may not change.
pub fn keep_system_fields(new: &mut Value, old: &Value) {
    let empty = Map::new();
    let old = old.metadata().unwrap_or(&empty);
    let metadata = new.metadata_mut();
    metadata.remove("selfLink");
    for field in ["generation", "creationTimestamp", "deletionTimestamp"] {
        match old.get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    for field in ["uid", "deletionGracePeriodSeconds"] {
        let missing = metadata.get(field).is_none_or(|value| value.is_null() || value == "");
        if let (true, Some(value)) = (missing, old.get(field)) {
            metadata.insert(field.into(), value.clone());
        }
    }
    if !old.contains_key("deletionTimestamp") {
        metadata.remove("deletionGracePeriodSeconds");
    }
}

/// Removes repeated owner references, which upstream forgives with a warning.
pub fn dedup_owners(object: &mut Value) -> Vec<String> {
    let Some(Value::Array(owners)) = object.metadata_mut().get_mut("ownerReferences") else { return Vec::new() };
    let mut seen: Vec<Value> = Vec::new();
    let mut warnings = Vec::new();
    owners.retain(|owner| {
        if seen.contains(owner) {
            let uid = owner["uid"].as_str().unwrap_or("");
            warnings.push(format!(
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uid}"
            ));
            return false;
        }
        seen.push(owner.clone());
        true
    });
    warnings
}

/// The revision that a body claims to be based on; `None` when it claims none. A bad one is an error that upstream never wrapped.
pub fn claimed_revision(object: &Value) -> Answer<Option<u64>> {
    let text = object.meta_text("resourceVersion");
    let parsed = crate::request::query::parse_revision(text).map_err(Status::plain)?;
    Ok(parsed.filter(|revision| *revision != 0))
}
