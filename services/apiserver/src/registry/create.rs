//! Creation, by POST and by whatever else may create (PUT of a few kinds, apply).

use http::StatusCode;
use serde_json::Value;
use wheelhouse_access::admission::Operation;
use wheelhouse_kinds::RequestContext;
use wheelhouse_kinds::fleet;
use wheelhouse_meta::Status;
use wheelhouse_meta::object::Object;
use wheelhouse_mvcc::Snapshot;

use super::options::{OptionsKind, WriteOptions};
use super::write::{Also, Step, Writer, Written};
use super::{Call, cluster_quota, device_access, fields, meta, object_reply, quotas, services};
use crate::request::{Answer, decode, media};
use crate::respond::Reply;

/// Names tried for one `generateName`; upstream's number.
const NAME_ATTEMPTS: u64 = 8;

/// `POST` of an object to a collection.
pub async fn create(call: &Call<'_>) -> Answer<Reply> {
    let form = call.form()?;
    let options = WriteOptions::parse(call, OptionsKind::Create)?;
    let encoding = media::body_encoding(call.headers)?;
    let decoded = decode::body(call.body, encoding, call.expected(), options.validation)?;
    call.warn(decoded.warnings);
    let mut object = decoded.object;
    default(call, &mut object);
    meta::place(&mut object, call.namespace())?;
    let generated = object.name().is_empty() && !object.meta_text("generateName").is_empty();
    let resource = call.resource();
    for attempt in 0..NAME_ATTEMPTS {
        let prepared = prepare(call, object.clone(), &options, attempt).await?;
        let name = prepared.object.name().to_owned();
        let written = store(call, prepared, &name, &options).await;
        match written {
            Ok(written) => return object_reply(&form, StatusCode::CREATED, written.revision, &written.value),
            Err(status) if generated && status.is(wheelhouse_meta::Reason::AlreadyExists) && attempt + 1 < NAME_ATTEMPTS => {}
            Err(status) if generated && status.is(wheelhouse_meta::Reason::AlreadyExists) => {
                return Err(Status::generate_name_conflict(&resource.group_resource, &name, 1).into());
            }
            Err(status) => return Err(status),
        }
    }
    Err(Status::generate_name_conflict(&resource.group_resource, "", 1).into())
}

/// A validated object of the stored version, before what needs the store's state.
#[derive(Clone)]
pub struct Prepared {
    pub object: Value,
    /// The kind's warnings, given once nothing can refuse the object any more.
    warnings: Vec<String>,
}

/// Commits a prepared object. A lost race over an address allocates again.
async fn store(call: &Call<'_>, prepared: Prepared, name: &str, options: &WriteOptions) -> Answer<Written> {
    let resource = call.resource();
    let mut writer = Writer::begin(call, resource, resource.key(call.namespace(), name), options.dry_run);
    loop {
        let current = writer.current()?;
        let decided = match &current {
            // Upstream allocates first, so a fixed address that is taken is the error, even by the Service of this name.
            Some(_) if resource.is("", "services") => match finish(call, prepared.clone(), options, writer.snapshot()).await {
                Err(status) if status.is(wheelhouse_meta::Reason::Invalid) => Err(status),
                _ => Err(Status::already_exists(&resource.group_resource, name).into()),
            },
            Some(_) => {
                call.warn(prepared.warnings.clone());
                Err(Status::already_exists(&resource.group_resource, name).into())
            }
            None => finish(call, prepared.clone(), options, writer.snapshot()).await,
        };
        if let Some(written) = writer.conclude(current, decided).await? {
            return Ok(written);
        }
    }
}

/// Defaults of the served version.
pub fn default(call: &Call<'_>, object: &mut Value) {
    let resource = call.resource();
    // An empty list means to forget all managers, and would not outlive the canonical form.
    let forgets_managers = object.metadata().and_then(|m| m.get("managedFields")).and_then(Value::as_array).is_some_and(Vec::is_empty);
    resource.default(object);
    if forgets_managers {
        object.metadata_mut().insert("managedFields".into(), Value::Array(Vec::new()));
    }
}

/// From a decoded, defaulted object of the served version to a validated one of the stored version.
async fn prepare(call: &Call<'_>, mut object: Value, options: &WriteOptions, attempt: u64) -> Answer<Prepared> {
    meta::wipe_system_fields(&mut object);
    fields::update(call, None, &mut object, &options.manager)?;
    prepare_tracked(call, object, options, attempt).await
}

/// The same for an object whose managed fields are decided already (apply).
pub async fn prepare_tracked(call: &Call<'_>, mut object: Value, options: &WriteOptions, attempt: u64) -> Answer<Prepared> {
    let resource = call.resource();
    resource.to_stored(&mut object);
    if meta::claimed_revision(&object)?.is_some() {
        return Err(Status::plain("resourceVersion should not be set on objects to be created").into());
    }
    object.metadata_mut().remove("resourceVersion");
    call.admit_mutating(Operation::Create, &mut object, None, options.dry_run).await?;
    call.warn(meta::dedup_owners(&mut object));
    meta::fill_new(call, resource, &mut object, attempt);
    let errors_of_meta = |object: &Value| meta::check_new(resource, object);
    let verdict = resource.kind().prepare_create(&mut object, &RequestContext { subresource: "", ..call.context() });
    let mut errors = errors_of_meta(&object);
    errors.extend(device_access::check(call, &object));
    errors.extend(verdict.errors);
    if !errors.is_empty() {
        return Err(Status::invalid(&resource.group_kind, object.name(), &errors).into());
    }
    Ok(Prepared { object, warnings: verdict.warnings })
}

/// What needs the state of the store: allocations, then validating admission.
pub async fn finish(call: &Call<'_>, prepared: Prepared, options: &WriteOptions, snapshot: &Snapshot) -> Answer<Step> {
    let Prepared { mut object, warnings } = prepared;
    let resource = call.resource();
    let mut also = if resource.is("", "services") {
        services::allocate(call.allocation(snapshot, options.dry_run), &mut object, None)?
    } else if resource.is(fleet::GROUP, "clusters") {
        cluster_quota::claim(call, object.name(), snapshot)?
    } else {
        Also::default()
    };
    call.admit_validating(Operation::Create, Some(&object), None, options.dry_run).await?;
    also.extend(quotas::charge(call, Operation::Create, Some(&object), None, snapshot)?);
    call.warn(warnings);
    Ok(Step::Put { object, also })
}
