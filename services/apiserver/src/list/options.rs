//! The options of lists, watches and collection deletes.
//!
//! Decoding is lenient where Go's is (booleans) and strict where it is strict (integers); validation answers 422 about `ListOptions`,
//! selectors answer 400.

use std::collections::BTreeMap;
use std::sync::Arc;

use wheelhouse_base::Revision;
use wheelhouse_meta::Status;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};
use wheelhouse_meta::gvk::GroupKind;
use wheelhouse_meta::selector::{FieldSelector, FieldSelectorError, LabelSelector, ONLY_NAME_AND_NAMESPACE};
use wheelhouse_mvcc::KeyValue;

use crate::encode::{Item, read};
use crate::request::Answer;
use crate::request::query::{Query, parse_revision};
use crate::resource::Resource;
use crate::stored;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    Exact,
    NotOlderThan,
}

#[derive(Clone)]
pub struct ListOptions {
    pub selection: Selection,
    /// As sent; empty means unset.
    pub resource_version: String,
    pub version_match: Option<Match>,
    /// 0 for no limit.
    pub limit: usize,
    pub continue_token: String,
    pub timeout_seconds: Option<u64>,
    pub allow_bookmarks: bool,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// `watch`: validate as a watch's options. `name` restricts to one object, as `/watch/…/<name>` does.
    pub fn parse(query: &Query, resource: &Arc<Resource>, watch: bool, name: &str) -> Answer<Self> {
        let timeout_seconds = query.integer("timeoutSeconds")?;
        let limit = query.integer("limit")?;
        let selection = Selection::parse(query, resource, name)?;
        let options = Self {
            selection,
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: match query.text("resourceVersionMatch") {
                "Exact" => Some(Match::Exact),
                "NotOlderThan" => Some(Match::NotOlderThan),
                _ => None,
            },
            limit: limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0),
            continue_token: query.text("continue").to_owned(),
            timeout_seconds: timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0),
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.optional_flag("sendInitialEvents"),
        };
        let errors = if watch { options.watch_errors(query) } else { options.list_errors(query) };
        if !errors.is_empty() {
            return Err(Status::invalid(&GroupKind::new("meta.k8s.io", "ListOptions"), "", &errors).into());
        }
        Ok(options)
    }

    fn list_errors(&self, query: &Query) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("resourceVersionMatch");
        let sent = query.text("resourceVersionMatch");
        if !sent.is_empty() {
            if self.resource_version.is_empty() {
                errors.push(FieldError::forbidden(&path, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !self.continue_token.is_empty() {
                errors.push(FieldError::forbidden(&path, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if self.version_match.is_none() {
                errors.push(FieldError::not_supported(&path, sent, &["Exact", "NotOlderThan", ""]));
            }
            if self.version_match == Some(Match::Exact) && self.resource_version == "0" {
                errors.push(FieldError::forbidden(&path, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden(&Path::new("sendInitialEvents"), "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn watch_errors(&self, query: &Query) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("resourceVersionMatch");
        let sent = query.text("resourceVersionMatch");
        if self.send_initial_events.is_some() && self.version_match != Some(Match::NotOlderThan) {
            errors.push(FieldError::forbidden(&path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if !sent.is_empty() {
            if self.send_initial_events.is_none() {
                errors.push(FieldError::forbidden(&path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
            }
            if self.version_match != Some(Match::NotOlderThan) {
                errors.push(FieldError::not_supported(&path, sent, &["NotOlderThan"]));
            }
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(&path, "resourceVersionMatch is forbidden when continue is provided"));
        }
        errors
    }

    /// The revision asked for; `None` when unset. A bad one is upstream's unwrapped error.
    pub fn revision(&self) -> Result<Option<Revision>, String> {
        revision_of(&self.resource_version)
    }
}

/// A resource version in a query. The error is the text that upstream's storage gives.
pub fn revision_of(text: &str) -> Result<Option<Revision>, String> {
    parse_revision(text).map_err(|why| format!("resourceVersion: Invalid value: {}: {why}", wheelhouse_meta::gotext::quote(text)))
}

/// Which objects of one resource are wanted.
#[derive(Clone)]
pub struct Selection {
    resource: Arc<Resource>,
    labels: LabelSelector,
    fields: FieldSelector,
    /// The name that the fields demand, which narrows a range to one key.
    name: Option<String>,
    /// A field outside metadata is selected by, so the object must be read.
    reads_object: bool,
}

impl Selection {
    pub fn parse(query: &Query, resource: &Arc<Resource>, name: &str) -> Answer<Self> {
        let labels = LabelSelector::parse(query.text("labelSelector")).map_err(|error| Status::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(|error| Status::bad_request(error.to_string()))?;
        check_fields(&fields, resource)?;
        if !name.is_empty() {
            // A name in the path must agree with a name in the selector.
            let demanded = fields.requires_exact_match("metadata.name");
            if demanded.is_some_and(|demanded| demanded != name) {
                return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name").into());
            }
        }
        let demanded = if name.is_empty() { fields.requires_exact_match("metadata.name").map(str::to_owned) } else { Some(name.to_owned()) };
        let reads_object = fields.requirements().iter().any(|r| !matches!(r.field.as_str(), "metadata.name" | "metadata.namespace"));
        Ok(Self { resource: Arc::clone(resource), labels, fields, name: demanded.filter(|n| !n.is_empty() && !n.contains('/')), reads_object })
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything() && self.name.is_none()
    }

    /// The one name that can match.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub fn matches_record(&self, kv: &KeyValue) -> bool {
        self.matches(&kv.key, &kv.value)
    }

    /// Whether a record is selected. A value that cannot be read has no labels and no fields.
    pub fn matches(&self, key: &[u8], value: &[u8]) -> bool {
        let resource = &self.resource;
        if self.is_everything() {
            return true;
        }
        let Some((namespace, name)) = resource.names(key) else { return false };
        if self.name.as_deref().is_some_and(|wanted| wanted != name) {
            return false;
        }
        if !self.labels.is_everything() {
            let labels: BTreeMap<String, String> = stored::labels(value);
            if !self.labels.matches_by(|key| labels.get(key).map(String::as_str)) {
                return false;
            }
        }
        if self.fields.is_everything() {
            return true;
        }
        let fields = if self.reads_object { object_fields(resource, value) } else { Vec::new() };
        self.fields.matches_by(|field| match field {
            "metadata.name" => name,
            "metadata.namespace" => namespace,
            field => {
                let stored_name = stored_field(resource, field);
                fields.iter().find(|(known, _)| *known == stored_name).map_or("", |(_, value)| value.as_str())
            }
        })
    }
}

fn object_fields(resource: &Resource, value: &[u8]) -> Vec<(&'static str, String)> {
    match read(resource, Item { revision: 0, value }) {
        Ok(object) => resource.kind().selectable_fields(&object),
        Err(_) => Vec::new(),
    }
}

/// The stored version's name for a field of the served one.
fn stored_field<'f>(resource: &Resource, field: &'f str) -> &'f str {
    let renamed = resource.other_version().and_then(|other| other.selectable.iter().find(|(served, _)| *served == field));
    renamed.map_or(field, |(_, stored)| stored)
}

fn check_fields(fields: &FieldSelector, resource: &Resource) -> Answer<()> {
    let mut declared: Vec<&str> = ONLY_NAME_AND_NAMESPACE.to_vec();
    match resource.other_version() {
        Some(other) if !other.selectable.is_empty() => declared.extend(other.selectable.iter().map(|(served, _)| *served)),
        _ => declared.extend(resource.kind().selectable_names()),
    }
    fields.check_fields(&declared).map_err(|error| {
        // A custom resource counts as declaring fields even if it has none.
        let error = match error {
            FieldSelectorError::Unknown(field) if resource.is_custom() => FieldSelectorError::Unsupported(field),
            other => other,
        };
        Status::bad_request(error.to_string()).into()
    })
}
