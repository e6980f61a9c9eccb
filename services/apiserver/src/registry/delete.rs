//! Deletion of one object.
//!
//! ```text
//! grace period left, or finalizers  -> deletionTimestamp is set, the object stays until the last of them is gone
//! neither                           -> the object goes now
//! a namespace                       -> Terminating until its contents and its own finalizers are gone
//! ```

use http::StatusCode;
use serde_json::{Map, Value, json};
use wheelhouse_access::admission::Operation;
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::apiextensions::customresourcedefinition;
use wheelhouse_meta::gvk::{GroupKind, GroupResource};
use wheelhouse_meta::object::Object;
use wheelhouse_meta::status::StatusDetails;
use wheelhouse_meta::{Status, time};
use wheelhouse_mvcc::Snapshot;
use wheelhouse_schema::FieldValidation;

use super::write::{Also, Current, Step, Writer, Written};
use super::{Call, object_reply, quotas, services};
use crate::request::media::{self, Encoding};
use crate::request::{Answer, decode};
use crate::resource::Resource;
use crate::respond::Reply;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Kinds whose deletion answers with the object and not with a Status, by group and resource.
const RETURNS_OBJECT: &[(&str, &str)] = &[
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "podtemplates"),
    ("", "resourcequotas"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("resource.k8s.io", "resourceslices"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattributesclasses"),
];

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation_policy: Option<String>,
    pub dry_run: bool,
}

impl DeleteOptions {
    /// From the body, or from the query when there is none.
    pub fn parse(call: &Call<'_>) -> Answer<Self> {
        let mut options = if call.body.is_empty() { Self::from_query(call)? } else { Self::from_body(call)? };
        let errors = wheelhouse_meta::validation::options::delete_options(&options);
        if !errors.is_empty() {
            return Err(Status::invalid(&GroupKind::new("meta.k8s.io", "DeleteOptions"), "", &errors).into());
        }
        Ok(Self::read(options.as_object_mut().map(std::mem::take).unwrap_or_default()))
    }

    /// Options inside another object.
    pub fn from_object(options: Option<&Value>) -> Answer<Self> {
        let options = options.cloned().unwrap_or_default();
        let errors = wheelhouse_meta::validation::options::delete_options(&options);
        if !errors.is_empty() {
            return Err(Status::invalid(&GroupKind::new("meta.k8s.io", "DeleteOptions"), "", &errors).into());
        }
        Ok(Self::read(options.as_object().cloned().unwrap_or_default()))
    }

    fn from_query(call: &Call<'_>) -> Answer<Value> {
        let mut options = Map::new();
        if let Some(seconds) = call.query.integer("gracePeriodSeconds")? {
            options.insert("gracePeriodSeconds".into(), seconds.into());
        }
        if let Some(orphan) = call.query.optional_flag("orphanDependents") {
            options.insert("orphanDependents".into(), orphan.into());
        }
        if let Some(policy) = call.query.first("propagationPolicy").filter(|policy| !policy.is_empty()) {
            options.insert("propagationPolicy".into(), policy.into());
        }
        let dry_run: Vec<&str> = call.query.all("dryRun").filter(|value| !value.is_empty()).collect();
        if !dry_run.is_empty() {
            options.insert("dryRun".into(), dry_run.into());
        }
        Ok(Value::Object(options))
    }

    fn from_body(call: &Call<'_>) -> Answer<Value> {
        let encoding = media::body_encoding(call.headers)?;
        // Clients write the version of the resource's group, which all stand for the same options.
        if encoding == Encoding::Json
            && let Ok(Value::Object(body)) = serde_json::from_slice::<Value>(call.body)
        {
            let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or("");
            let (kind, version) = (text("kind"), text("apiVersion"));
            if !kind.is_empty() && kind != "DeleteOptions" {
                let version = if version.is_empty() { "v1" } else { version };
                return Err(Status::bad_request(decode::unregistered(version, kind)).into());
            }
        }
        let schema = wheelhouse_schema::catalog().kind("", "v1", "DeleteOptions").map_or(wheelhouse_schema::Schema::Any, |kind| kind.schema.clone());
        let body = strip_type(call.body, encoding);
        let expected = decode::Expected { api_version: "v1", kind: "DeleteOptions", schema: &schema, custom: false };
        if encoding == Encoding::Json
            && let Err(error) = serde_json::from_slice::<Value>(call.body)
        {
            let why = decode::go_syntax_error(call.body, &error);
            return Err(Status::bad_request(format!("couldn't get version/kind; json parse error: {why}")).into());
        }
        let decoded = decode::body(&body, encoding, expected, FieldValidation::Ignore)?;
        Ok(decoded.object)
    }

    fn read(options: Map<String, Value>) -> Self {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let preconditions = options.get("preconditions");
        Self {
            grace_period_seconds: options.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: text(preconditions.and_then(|p| p.get("uid"))),
            resource_version: text(preconditions.and_then(|p| p.get("resourceVersion"))),
            orphan_dependents: options.get("orphanDependents").and_then(Value::as_bool),
            propagation_policy: text(options.get("propagationPolicy")),
            dry_run: options.get("dryRun").and_then(Value::as_array).is_some_and(|values| !values.is_empty()),
        }
    }
}

/// A JSON body without its apiVersion, so that any group's spelling of DeleteOptions is read as the one there is.
fn strip_type(body: &bytes::Bytes, encoding: Encoding) -> bytes::Bytes {
    if encoding != Encoding::Json {
        return body.clone();
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(mut fields)) => {
            fields.remove("apiVersion");
            fields.remove("kind");
            serde_json::to_vec(&fields).unwrap_or_default().into()
        }
        _ => body.clone(),
    }
}

/// `DELETE` of an object.
pub async fn delete(call: &Call<'_>) -> Answer<Reply> {
    let form = call.form()?;
    let options = DeleteOptions::parse(call)?;
    warn_of_orphans(call, &options);
    let written = remove(call, call.name(), &options).await?;
    let resource = call.resource();
    if !written.removed || returns_object(resource) {
        let accepted = !written.removed && options.orphan_dependents == Some(false);
        let code = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
        return object_reply(&form, code, written.revision, &written.value);
    }
    let uid = crate::stored::Meta::read(&written.value).map(|meta| meta.uid).unwrap_or_default();
    let details = StatusDetails {
        name: call.name().to_owned(),
        group: resource.group_resource.group.clone(),
        kind: resource.group_resource.resource.clone(),
        uid,
        ..StatusDetails::default()
    };
    let encoding = form.media.encoding;
    Ok(Reply::ok(encoding.media_type(), crate::respond::encode_status(&Status::success(Some(details)), encoding)))
}

fn returns_object(resource: &Resource) -> bool {
    RETURNS_OBJECT.contains(&(resource.info().group, resource.info().plural))
}

/// Deletes one object of the call's resource and namespace.
pub async fn remove(call: &Call<'_>, name: &str, options: &DeleteOptions) -> Answer<Written> {
    let resource = call.resource();
    let key = resource.key(call.namespace(), name);
    let mut writer = Writer::begin(call, resource, key, options.dry_run);
    loop {
        let current = writer.current()?;
        let decided = match &current {
            Some(current) => decide(call, current, options, writer.snapshot()).await,
            None => Err(Status::not_found(&resource.group_resource, name).into()),
        };
        if let Some(written) = writer.conclude(current, decided).await? {
            return Ok(written);
        }
    }
}

/// What the deletion of a record comes to.
pub async fn decide(call: &Call<'_>, current: &Current, options: &DeleteOptions, snapshot: &Snapshot) -> Answer<Step> {
    let resource = call.resource();
    check_preconditions(resource, &current.object, options)?;
    call.admit_validating(Operation::Delete, None, Some(&current.object), options.dry_run).await?;
    let old = &current.object;
    if resource.is("", "namespaces") {
        return Ok(delete_namespace(call, old, options));
    }
    if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        return Ok(delete_definition(old, call.now));
    }
    let mut object = old.clone();
    let graceful = match grace(resource, &mut object, options, call.now) {
        // A deletion that is under way and not shortened changes nothing.
        Grace::Pending => return Ok(Step::Unchanged),
        Grace::None => None,
        Grace::Seconds(seconds) => Some(seconds),
    };
    let finalizers = garbage_collection_finalizers(resource, &object, options);
    set_finalizers(&mut object, finalizers);
    let held = !object.meta_list("finalizers").is_empty();
    match graceful {
        None if held => mark_as_deleting(&mut object, call.now),
        Some(seconds) if held || seconds > 0 => {}
        _ => {
            let mut also = services::release(resource, old);
            also.extend(quotas::charge(call, Operation::Delete, None, Some(old), snapshot)?);
            return Ok(Step::Remove { object, also });
        }
    }
    if object == *old { Ok(Step::Unchanged) } else { Ok(Step::Put { object, also: Also::default() }) }
}

fn check_preconditions(resource: &Resource, object: &Value, options: &DeleteOptions) -> Answer<()> {
    let (uid, version) = (object.meta_text("uid"), object.meta_text("resourceVersion"));
    if resource.is("", "namespaces") || resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        // Their deletion is a path of its own upstream, with words of its own.
        let differs = |wanted: &Option<String>, found: &str, what: &str| {
            let wanted = wanted.as_deref().filter(|wanted| *wanted != found)?;
            Some(format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"))
        };
        let why = differs(&options.uid, uid, "UID").or_else(|| differs(&options.resource_version, version, "ResourceVersion"));
        return why.map_or(Ok(()), |why| Err(Status::conflict(&resource.group_resource, object.name(), why).into()));
    }
    // Upstream names the kind here, and not the resource.
    let named = GroupResource::new(resource.info().group, resource.info().kind);
    let name = object.name();
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(&named, name, why).into());
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(Status::conflict(&named, name, why).into());
    }
    Ok(())
}

enum Grace {
    /// The kind knows no grace, or the object is past it.
    None,
    /// Runs already.
    Pending,
    /// Begins, or is shortened to so many seconds; the object says so.
    Seconds(i64),
}

fn grace(resource: &Resource, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    // A pod that no node runs goes at once, but by the same steps as one whose node has stopped it.
    let default = match resource.kind().grace_period(object) {
        Some(default) => default,
        None if resource.is("", "pods") => 0,
        None => return Grace::None,
    };
    let asked = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let metadata = object.metadata_mut();
    let running = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    if let Some(deadline) = time::from_json(metadata.get("deletionTimestamp")) {
        let Some(running) = running else { return Grace::None };
        return match asked {
            Some(seconds) if seconds < running => {
                let moved = Timestamp::from_secs(deadline.as_secs() - running + seconds);
                metadata.insert("deletionTimestamp".into(), time::rfc3339(moved).into());
                metadata.insert("deletionGracePeriodSeconds".into(), seconds.into());
                Grace::Seconds(seconds)
            }
            // Past its grace and asked again: it may go.
            _ if running == 0 => Grace::Seconds(0),
            _ => Grace::Pending,
        };
    }
    // A default of zero means that nothing runs yet, so there is nothing to wait for, whatever the client asks.
    let seconds = if default == 0 { 0 } else { asked.unwrap_or(default) };
    let deadline = Timestamp::from_secs(now.as_secs() + seconds);
    metadata.insert("deletionTimestamp".into(), time::rfc3339(deadline).into());
    metadata.insert("deletionGracePeriodSeconds".into(), seconds.into());
    raise_generation(metadata);
    Grace::Seconds(seconds)
}

fn mark_as_deleting(object: &mut Value, now: Timestamp) {
    let metadata = object.metadata_mut();
    if metadata.get("deletionTimestamp").is_none_or(Value::is_null) {
        metadata.insert("deletionTimestamp".into(), time::rfc3339(now).into());
    }
    if metadata.get("deletionGracePeriodSeconds").is_none_or(Value::is_null) {
        raise_generation(metadata);
    }
    metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
}

/// Observers of the generation should notice that the object is going.
fn raise_generation(metadata: &mut Map<String, Value>) {
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|generation| *generation > 0) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// Which of the collector's two finalizers the deletion leaves on the object.
fn garbage_collection_finalizers(resource: &Resource, object: &Value, options: &DeleteOptions) -> Vec<String> {
    let present: Vec<&str> = object.meta_list("finalizers").iter().filter_map(Value::as_str).collect();
    let others = present.iter().filter(|f| !matches!(**f, ORPHAN | FOREGROUND)).map(|f| (*f).to_owned());
    let mut finalizers: Vec<String> = others.collect();
    // Events are too many and too short-lived to be collected by owner.
    if resource.info().plural == "events" {
        return finalizers;
    }
    let policy = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(true), _) => ORPHAN,
        (Some(false), _) => "",
        (None, Some("Orphan")) => ORPHAN,
        (None, Some("Foreground")) => FOREGROUND,
        (None, Some(_)) => "",
        (None, None) => {
            let chosen = present.iter().copied().find(|f| matches!(*f, ORPHAN | FOREGROUND));
            chosen.unwrap_or(if orphans_by_default(resource) { ORPHAN } else { "" })
        }
    };
    if !policy.is_empty() {
        finalizers.push(policy.to_owned());
    }
    finalizers
}

/// Whoever deletes a Job and says nothing about its pods mostly does not mean to keep them.
pub fn warn_of_orphans(call: &Call<'_>, options: &DeleteOptions) {
    if call.resource().is("batch", "jobs") && options.orphan_dependents.is_none() && options.propagation_policy.is_none() {
        let text = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set \
                    propagationPolicy=Orphan to suppress this warning";
        call.warn([text.to_owned()]);
    }
}

/// Kinds older than the garbage collector leave their dependents behind unless told otherwise.
fn orphans_by_default(resource: &Resource) -> bool {
    resource.is("", "replicationcontrollers") || resource.is("batch", "jobs")
}

/// Replaces the finalizers if they differ as a set, so that an unchanged object keeps its order.
fn set_finalizers(object: &mut Value, mut finalizers: Vec<String>) {
    let mut present: Vec<String> = object.meta_list("finalizers").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let wanted = finalizers.clone();
    present.sort_unstable();
    finalizers.sort_unstable();
    if present == finalizers {
        return;
    }
    let metadata = object.metadata_mut();
    if wanted.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), json!(wanted));
    }
}

/// A definition begins to terminate; its controller deletes its objects and takes the finalizer away, which removes it.
fn delete_definition(old: &Value, now: Timestamp) -> Step {
    let mut object = old.clone();
    if old.metadata().is_some_and(|m| m.get("deletionTimestamp").is_some_and(|at| !at.is_null())) {
        return if old.meta_list("finalizers").is_empty() { Step::Remove { object, also: Also::default() } } else { Step::Unchanged };
    }
    object.metadata_mut().insert("deletionTimestamp".into(), time::rfc3339(now).into());
    customresourcedefinition::begin_deletion(&mut object, now);
    Step::Put { object, also: Also::default() }
}

/// A namespace begins to terminate; the namespace controller empties it and takes its finalizers away, which removes it.
fn delete_namespace(call: &Call<'_>, old: &Value, options: &DeleteOptions) -> Step {
    let mut object = old.clone();
    let terminating = old.metadata().is_some_and(|m| m.get("deletionTimestamp").is_some_and(|at| !at.is_null()));
    if terminating {
        let held = old["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) || !old.meta_list("finalizers").is_empty();
        return if held { Step::Unchanged } else { Step::Remove { object, also: quotas::release(call, old) } };
    }
    let keep = |f: &Value| !matches!(f.as_str(), Some(ORPHAN | FOREGROUND));
    let mut finalizers: Vec<Value> = object.meta_list("finalizers").iter().filter(|f| keep(f)).cloned().collect();
    match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(true), _) | (None, Some("Orphan")) => finalizers.push(ORPHAN.into()),
        (None, Some("Foreground")) => finalizers.push(FOREGROUND.into()),
        _ => {}
    }
    let metadata = object.metadata_mut();
    metadata.insert("deletionTimestamp".into(), time::rfc3339(call.now).into());
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
    object["status"]["phase"] = "Terminating".into();
    Step::Put { object, also: Also::default() }
}
