//! Updates: PUT, and the part that patches share.

use http::StatusCode;
use serde_json::{Value, json};
use wheelhouse_access::admission::Operation;
use wheelhouse_meta::Status;
use wheelhouse_meta::field::{FieldError, Path};
use wheelhouse_meta::gvk::GroupKind;
use wheelhouse_meta::object::Object;
use wheelhouse_mvcc::Snapshot;

use super::options::{OptionsKind, WriteOptions};
use super::write::{Also, Current, Step, Writer, Written};
use super::{Call, create, fields, meta, object_reply, quotas, services};
use crate::request::{Answer, decode, media};
use crate::respond::Reply;
use crate::stored;

/// `PUT` of an object or of a part of it.
pub async fn update(call: &Call<'_>) -> Answer<Reply> {
    let form = call.form()?;
    let options = WriteOptions::parse(call, OptionsKind::Update)?;
    let encoding = media::body_encoding(call.headers)?;
    let decoded = decode::body(call.body, encoding, call.expected(), options.validation)?;
    call.warn(decoded.warnings);
    let mut object = decoded.object;
    create::default(call, &mut object);
    check_names(call, &object)?;
    meta::place(&mut object, call.namespace())?;
    let resource = call.resource();
    let creates = resource.info().create_on_update && call.subresource().is_empty();
    let mut writer = Writer::begin(call, resource, call.key(), options.dry_run);
    let written = loop {
        let current = writer.current()?;
        let decided = match &current {
            Some(current) => replace(call, object.clone(), current, &options, writer.snapshot()).await,
            None if creates => make(call, object.clone(), &options, writer.snapshot()).await,
            None => Err(Status::not_found(&resource.group_resource, call.name()).into()),
        };
        if let Some(written) = writer.conclude(current, decided).await? {
            break written;
        }
    };
    reply(&form, &written)
}

async fn replace(call: &Call<'_>, mut new: Value, current: &Current, options: &WriteOptions, snapshot: &Snapshot) -> Answer<Step> {
    // A whole object that names another uid was meant for another object; in a patch a uid is only a field that cannot change.
    let (uid, known) = (new.meta_text("uid"), current.object.meta_text("uid"));
    if !uid.is_empty() && uid != known {
        let key = upstream_key(call);
        return Err(Status::uid_precondition(&call.resource().group_resource, call.name(), &key, uid, known).into());
    }
    let live = served(call, current);
    fields::update(call, Some(&live), &mut new, &options.manager)?;
    apply(call, new, current, options, snapshot).await
}

/// A PUT of something that is not there, for the kinds that allow it.
async fn make(call: &Call<'_>, mut new: Value, options: &WriteOptions, snapshot: &Snapshot) -> Answer<Step> {
    meta::wipe_system_fields(&mut new);
    fields::update(call, None, &mut new, &options.manager)?;
    let new = create::prepare_tracked(call, new, options, 0).await?;
    create::finish(call, new, options, snapshot).await
}

/// 201 for what was made, 200 otherwise.
pub fn reply(form: &crate::encode::Form, written: &Written) -> Answer<Reply> {
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    // An object that this update let go is shown with the version it had.
    let revision = if written.removed { written.replaced } else { written.revision };
    object_reply(form, code, revision, &written.value)
}

/// The live object in the served version.
pub fn served(call: &Call<'_>, current: &Current) -> Value {
    let mut live = current.object.clone();
    call.resource().to_served(&mut live);
    live
}

/// The body's name and namespace must be the path's.
pub fn check_names(call: &Call<'_>, object: &Value) -> Answer<()> {
    let name = object.name();
    if name.is_empty() {
        let message = format!("the name of the object ({} based on URL) was undeterminable: name must be provided", call.name());
        return Err(Status::bad_request(message).into());
    }
    if name != call.name() {
        let message = format!("the name of the object ({name}) does not match the name on the URL ({})", call.name());
        return Err(Status::bad_request(message).into());
    }
    let (namespace, wanted) = (object.namespace(), call.namespace());
    if !namespace.is_empty() && !wanted.is_empty() && namespace != wanted {
        let message = format!("the namespace of the object ({namespace}) does not match the namespace on the request ({wanted})");
        return Err(Status::bad_request(message).into());
    }
    Ok(())
}

/// From a new object of the served version, its managed fields tracked, to a step.
pub async fn apply(call: &Call<'_>, mut new: Value, current: &Current, options: &WriteOptions, snapshot: &Snapshot) -> Answer<Step> {
    let resource = call.resource();
    let old = &current.object;
    resource.to_stored(&mut new);
    call.admit_mutating(Operation::Update, &mut new, Some(old), options.dry_run).await?;
    call.warn(meta::dedup_owners(&mut new));
    match meta::claimed_revision(&new)? {
        None if resource.info().unconditional_update => {
            new.metadata_mut().insert("resourceVersion".into(), old.meta_text("resourceVersion").into());
        }
        None => {
            let path = Path::new("metadata");
            let errors = vec![FieldError::invalid(&path.child("resourceVersion"), json!(0), "must be specified for an update")].into();
            // Upstream names the resource here, where a kind belongs.
            let named = GroupKind::new(resource.info().group, resource.info().plural);
            return Err(Status::invalid(&named, call.name(), &errors).into());
        }
        Some(revision) if revision != current.record.mod_revision => {
            return Err(Status::optimistic_lock(&resource.group_resource, call.name()).into());
        }
        Some(_) => {}
    }
    meta::keep_system_fields(&mut new, old);
    // Who owns what is decided already; a kind that restores the rest of the metadata must not undo it.
    let managed = new.metadata_mut().get("managedFields").cloned();
    let verdict = resource.kind().prepare_update(&mut new, old, &call.context());
    match managed {
        Some(managed) => new.metadata_mut().insert("managedFields".into(), managed),
        None => new.metadata_mut().remove("managedFields"),
    };
    let mut errors = meta::check_update(resource, &new, old);
    errors.extend(verdict.errors);
    if !errors.is_empty() {
        return Err(Status::invalid(&resource.group_kind, new.name(), &errors).into());
    }
    call.warn(verdict.warnings);
    if resource.info().generation && call.subresource() != "status" && resource.kind().spec_changed(&new, old) {
        let generation = old.metadata().and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or(0);
        new.metadata_mut().insert("generation".into(), json!(generation + 1));
    }
    let mut also = Also::default();
    if resource.is("", "services") {
        also.extend(services::allocate(call.allocation(snapshot, options.dry_run), &mut new, Some(old))?);
    }
    call.admit_validating(Operation::Update, Some(&new), Some(old), options.dry_run).await?;
    if goes_with(call, &new) {
        also.extend(services::release(resource, old));
        also.extend(quotas::release(call, old));
        also.extend(quotas::charge(call, Operation::Delete, None, Some(old), snapshot)?);
        return Ok(Step::Remove { object: new, also });
    }
    if stored::encode(&new) == current.record.value || only_times_differ(&new, old) {
        return Ok(Step::Unchanged);
    }
    also.extend(quotas::charge(call, Operation::Update, Some(&new), Some(old), snapshot)?);
    Ok(Step::Put { object: new, also })
}

/// Whether two objects are one but for when their managers last wrote: nobody changed anything, so there is nothing to write.
fn only_times_differ(new: &Value, old: &Value) -> bool {
    let entries = |new: &Value, old: &Value| match (new.as_array(), old.as_array()) {
        (Some(new), Some(old)) => new.len() == old.len() && new.iter().zip(old).all(|(new, old)| same_but(new, old, "time", |_, _| true)),
        _ => new == old,
    };
    let metadata = |new: &Value, old: &Value| same_but(new, old, "managedFields", entries);
    same_but(new, old, "metadata", metadata)
}

/// Compares two objects field by field, and one field of them in its own way.
fn same_but(new: &Value, old: &Value, field: &str, compare: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let same = |key: &String, value: &Value| old.get(key).is_some_and(|other| if key == field { compare(value, other) } else { value == other });
    new.len() == old.len() && new.iter().all(|(key, value)| same(key, value))
}

/// Whether this update takes away the last thing that a deleted object waited for.
fn goes_with(call: &Call<'_>, new: &Value) -> bool {
    let Some(metadata) = new.metadata() else { return false };
    let deleting = metadata.get("deletionTimestamp").is_some_and(|at| !at.is_null());
    let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    if !deleting || grace != 0 || !new.meta_list("finalizers").is_empty() {
        return false;
    }
    // A namespace also waits for what its own finalizers stand for: its contents.
    !call.resource().is("", "namespaces") || new["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

/// The key that upstream's store names in its messages, which has no group in it.
pub fn upstream_key(call: &Call<'_>) -> String {
    let resource = call.resource();
    let folder = match resource.info().plural {
        "replicationcontrollers" => "controllers",
        "services" => "services/specs",
        "endpoints" => "services/endpoints",
        "nodes" => "minions",
        "ingresses" => "ingress",
        plural => plural,
    };
    if resource.namespaced() {
        format!("/registry/{folder}/{}/{}", call.namespace(), call.name())
    } else {
        format!("/registry/{folder}/{}", call.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_of_nothing_but_times_is_none() {
        let object = |data: &str, time: &str| json!({"kind": "X", "data": data, "metadata": {"name": "a", "managedFields": [{"manager": "m", "time": time, "fieldsV1": {"f:data": {}}}]}});
        assert!(only_times_differ(&object("1", "2024-01-01T00:00:01Z"), &object("1", "2024-01-01T00:00:00Z")));
        assert!(!only_times_differ(&object("2", "2024-01-01T00:00:01Z"), &object("1", "2024-01-01T00:00:00Z")));
        let mut other = object("1", "2024-01-01T00:00:00Z");
        other["metadata"]["managedFields"][0]["manager"] = json!("n");
        assert!(!only_times_differ(&other, &object("1", "2024-01-01T00:00:00Z")));
    }
}
