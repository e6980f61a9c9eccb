//! `PATCH`: JSON patch, merge patch, strategic merge patch and apply.

use bytes::Bytes;
use serde_json::Value;
use wheelhouse_meta::Status;
use wheelhouse_meta::field::{BadValue, FieldError, Path};
use wheelhouse_meta::gvk::GroupKind;
use wheelhouse_meta::object::Object;
use wheelhouse_meta::patch::{json_patch, merge_patch, strategic_merge_patch};
use wheelhouse_mvcc::Snapshot;
use wheelhouse_schema::FieldValidation;

use super::options::{OptionsKind, WriteOptions};
use super::write::{Current, Step, Writer};
use super::{Call, create, fields, meta, update};
use crate::request::media::{self, APPLY_YAML, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};
use crate::request::{Answer, decode, gojson};
use crate::respond::Reply;

/// The media types that a PATCH may have, in upstream's order.
const PATCHES: &[&str] = &[JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_YAML];

/// `PATCH` of an object or of a part of it. The older three kinds need the object, an apply makes it.
pub async fn patch(call: &Call<'_>) -> Answer<Reply> {
    let form = call.form()?;
    let kind = media::content_type(call.headers);
    if kind == APPLY_YAML {
        return apply(call).await;
    }
    let options = WriteOptions::parse(call, OptionsKind::Patch)?;
    let patcher = Patcher::new(call, &kind)?;
    let resource = call.resource();
    let mut writer = Writer::begin(call, resource, call.key(), options.dry_run);
    let written = loop {
        let current = writer.current()?;
        let decided = match &current {
            Some(current) => change(call, &patcher, current, &options, writer.snapshot()).await,
            None => Err(Status::not_found(&resource.group_resource, call.name()).into()),
        };
        if let Some(written) = writer.conclude(current, decided).await? {
            break written;
        }
    };
    update::reply(&form, &written)
}

async fn change(call: &Call<'_>, patcher: &Patcher<'_>, current: &Current, options: &WriteOptions, snapshot: &Snapshot) -> Answer<Step> {
    let live = update::served(call, current);
    let mut new = patcher.run(&live)?;
    new = pruned(call, new, options.validation)?;
    create::default(call, &mut new);
    update::check_names(call, &new)?;
    meta::place(&mut new, call.namespace())?;
    fields::update(call, Some(&live), &mut new, &options.manager)?;
    update::apply(call, new, current, options, snapshot).await
}

/// Server-side apply: creates what is missing.
async fn apply(call: &Call<'_>) -> Answer<Reply> {
    let form = call.form()?;
    let options = WriteOptions::parse(call, OptionsKind::Apply)?;
    let resource = call.resource();
    let applied = applied_body(call, &resource.api_version, resource.info().kind, options.validation)?;
    let mut writer = Writer::begin(call, resource, call.key(), options.dry_run);
    let written = loop {
        let current = writer.current()?;
        let decided = merge(call, &applied, current.as_ref(), &options, writer.snapshot()).await;
        if let Some(written) = writer.conclude(current, decided).await? {
            break written;
        }
    };
    update::reply(&form, &written)
}

async fn merge(call: &Call<'_>, applied: &Value, current: Option<&Current>, options: &WriteOptions, snapshot: &Snapshot) -> Answer<Step> {
    let Some(current) = current else {
        if !call.subresource().is_empty() {
            return Err(Status::not_found(&call.resource().group_resource, call.name()).into());
        }
        let mut new = fields::merge(call, None, applied, options)?;
        finish_merge(call, &mut new)?;
        let uid = new.meta_text("uid");
        if !uid.is_empty() {
            let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(&call.resource().group_resource, call.name(), why).into());
        }
        meta::wipe_system_fields(&mut new);
        new.metadata_mut().remove("resourceVersion");
        create::default(call, &mut new);
        let new = create::prepare_tracked(call, new, options, 0).await?;
        return create::finish(call, new, options, snapshot).await;
    };
    let live = update::served(call, current);
    let mut new = fields::merge(call, Some(&live), applied, options)?;
    finish_merge(call, &mut new)?;
    create::default(call, &mut new);
    update::apply(call, new, current, options, snapshot).await
}

/// The merged object must be the path's.
fn finish_merge(call: &Call<'_>, new: &mut Value) -> Answer<()> {
    if new.name().is_empty() {
        new.metadata_mut().insert("name".into(), call.name().into());
    }
    update::check_names(call, new)?;
    meta::place(new, call.namespace())
}

/// The body of an apply exactly as sent: neither defaults nor the path's namespace must become owned, and an unknown field is the merge's error.
pub fn applied_body(call: &Call<'_>, api_version: &str, kind: &str, validation: FieldValidation) -> Answer<Value> {
    let document = crate::yaml::parse(call.body)
        .map_err(|error| Status::bad_request(format!("error decoding YAML: error converting YAML to JSON: yaml: {error}")))?;
    let value = document.value;
    let sent = value.group_version_kind().unwrap_or_default();
    if !value.is_object() || sent.kind.is_empty() {
        return Err(Status::bad_request(format!("invalid object type: {sent}")).into());
    }
    let (sent_version, sent_kind) = (value.api_version(), value.kind());
    if sent_version != api_version {
        let message = format!("Incorrect version specified in apply patch. Specified patch version: {sent_version}, expected: {api_version}");
        return Err(Status::bad_request(message).into());
    }
    if sent_kind != kind {
        return Err(Status::bad_request(format!("invalid object type: {sent}")).into());
    }
    match (validation, decode::repeated_keys(&document.repeated)) {
        (FieldValidation::Strict, Some(why)) => {
            Err(Status::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {why}")).into())
        }
        (FieldValidation::Warn, _) => {
            call.warn(document.repeated);
            Ok(value)
        }
        _ => Ok(value),
    }
}

/// A patch of one of the three older kinds.
enum Patcher<'a> {
    Json(&'a Bytes),
    Merge(&'a Bytes),
    Strategic(&'a Bytes, &'a wheelhouse_schema::Schema),
}

impl<'a> Patcher<'a> {
    fn new(call: &Call<'a>, kind: &str) -> Answer<Self> {
        match kind {
            JSON_PATCH => Ok(Self::Json(call.body)),
            MERGE_PATCH => Ok(Self::Merge(call.body)),
            STRATEGIC_PATCH if !call.resource().is_custom() => Ok(Self::Strategic(call.body, &call.resource().schema)),
            // A schema that is made at run time has no merge keys.
            STRATEGIC_PATCH => Err(Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY_YAML]).into()),
            _ => Err(Status::unsupported_media_type(PATCHES).into()),
        }
    }

    fn run(&self, live: &Value) -> Answer<Value> {
        let patched = match self {
            Self::Json(patch) => json_patch(live, patch),
            Self::Merge(patch) => merge_patch(live, patch),
            Self::Strategic(patch, schema) => strategic_merge_patch(live, patch, schema),
        };
        patched.map_err(|error| Box::new(error.into_status()))
    }
}

/// The media types that the route takes; anything else is the router's 415.
pub fn is_patch_type(kind: &str) -> bool {
    PATCHES.contains(&kind)
}

/// Drops what the schema does not know. A result that is no object of the kind is the patch's fault.
fn pruned(call: &Call<'_>, patched: Value, validation: FieldValidation) -> Answer<Value> {
    let shown = BadValue::from(gojson::sorted_at_the_top(&patched, &call.resource().schema));
    match decode::prune(patched, call.expected(), validation) {
        Ok(decoded) => {
            call.warn(decoded.warnings);
            Ok(decoded.object)
        }
        Err(why) => {
            let errors = vec![FieldError::invalid(&Path::new("patch"), shown, why)].into();
            Err(Status::invalid(&GroupKind::default(), "", &errors).into())
        }
    }
}
