//! One object in every form that a client may ask for.
//!
//! The stored version as JSON is copied, never encoded. Every other form decodes the stored value first.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use wheelhouse_base::{Revision, Timestamp};
use wheelhouse_meta::Status;
use wheelhouse_schema::{catalog, protobuf};

use crate::request::Answer;
use crate::request::media::{Encoding, Media, View};
use crate::request::query::Query;
use crate::resource::Resource;
use crate::stored;

/// How much of the object a table's row carries (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum RowObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl RowObject {
    pub fn parse(query: &Query) -> Answer<Self> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => {
                let quoted = wheelhouse_meta::gotext::quote(other);
                let why = format!("includeObject: Invalid value: {quoted}: must be 'Metadata', 'Object', 'None', or empty");
                Err(Status::bad_request(format!("Unable to convert to Table as requested: {why}")).into())
            }
        }
    }
}

/// A negotiated form of a resource's objects.
#[derive(Clone)]
pub struct Form {
    pub resource: Arc<Resource>,
    pub media: Media,
    pub row_object: RowObject,
    pub now: Timestamp,
}

/// A stored value with its revision; revision 0 is an object that was not stored (a dry run).
#[derive(Clone, Copy)]
pub struct Item<'a> {
    pub revision: Revision,
    pub value: &'a [u8],
}

impl Form {
    /// Whether stored bytes are served as they are.
    pub fn copies(&self) -> bool {
        self.media == Media::default() && self.resource.other_version().is_none() && !self.resource.is_custom()
    }

    /// Whether only metadata is shown, so that JSON needs no decoding.
    fn partial_json(&self) -> Option<&'static str> {
        match self.media {
            Media { encoding: Encoding::Json, view: View::Partial { beta } | View::PartialList { beta } } => Some(meta_version(beta)),
            _ => None,
        }
    }

    /// A whole object.
    pub fn object(&self, item: Item<'_>) -> Answer<Bytes> {
        let resource = &self.resource;
        if self.copies() {
            let mut out = Vec::new();
            stored::push_object(&mut out, &resource.api_version, resource.info().kind, item.revision, item.value);
            return Ok(out.into());
        }
        match self.media.view {
            View::Object => self.encode(&self.served(item)?),
            View::Partial { beta } => {
                if self.media.encoding == Encoding::Json {
                    return Ok(self.partial(item, meta_version(beta))?.into());
                }
                self.encode(&self.partial_value(item, meta_version(beta))?)
            }
            View::PartialList { .. } => {
                let message =
                    format!("you requested PartialObjectMetadataList, but the requested object is not a list ({})", resource.go_type(false));
                Err(Status::not_acceptable_because(message).into())
            }
            View::Table { beta } => {
                let mut out = Vec::new();
                self.table_head(&mut out, meta_version(beta), item.revision, &ListTail::default(), true);
                self.row(&mut out, item)?;
                out.extend_from_slice(b"]}");
                Ok(self.finish_json(out))
            }
        }
    }

    /// The object of a watch event. Tables carry their columns in the first event only.
    pub fn event_object(&self, item: Item<'_>, columns: bool) -> Answer<Bytes> {
        let View::Table { beta } = self.media.view else { return self.object(item) };
        let mut out = Vec::new();
        self.table_head(&mut out, meta_version(beta), item.revision, &ListTail::default(), columns);
        self.row(&mut out, item)?;
        out.extend_from_slice(b"]}");
        Ok(out.into())
    }

    /// One item of a list in JSON, without a comma: an object, partial metadata or a row.
    pub fn push_list_item(&self, out: &mut Vec<u8>, item: Item<'_>) -> Answer<()> {
        if self.copies() {
            stored::push_item(out, item.revision, item.value);
            return Ok(());
        }
        if let Some(version) = self.partial_json() {
            out.extend_from_slice(&self.partial(item, version)?);
            return Ok(());
        }
        if let View::Table { .. } = self.media.view {
            return self.row(out, item);
        }
        let mut object = self.served(item)?;
        // Upstream's items of a typed list have lost their type; those of a custom resource never do.
        if let Some(fields) = object.as_object_mut().filter(|_| !self.resource.is_custom()) {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        serde_json::to_writer(out, &object).expect("a Vec takes every byte");
        Ok(())
    }

    /// The beginning of a list in JSON, up to and without its first item. `tail` is what its metadata says besides the revision.
    pub fn push_list_head(&self, out: &mut Vec<u8>, revision: Revision, tail: &ListTail) {
        if let View::Table { beta } = self.media.view {
            return self.table_head(out, meta_version(beta), revision, tail, true);
        }
        let (version, kind) = self.list_type();
        let _ = write!(out, "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":");
        if self.resource.is_custom() && self.media.view == View::Object && tail.continue_token.is_empty() {
            // Upstream writes the empty token of these lists, which are made of maps.
            let _ = write!(out, "{{\"continue\":\"\",\"resourceVersion\":\"{revision}\"}}");
        } else {
            tail.push(out, revision);
        }
        out.extend_from_slice(b",\"items\":[");
    }

    /// apiVersion and kind of a list that is no table.
    fn list_type(&self) -> (String, String) {
        match self.media.view {
            View::Partial { beta } | View::PartialList { beta } => (meta_version(beta).into(), "PartialObjectMetadataList".into()),
            View::Object | View::Table { .. } => (self.resource.api_version.clone(), self.resource.list_kind()),
        }
    }

    /// A list in protobuf. Its items are encoded one by one, so that only their bytes are held and never their values.
    pub fn protobuf_list(&self, revision: Revision, tail: &ListTail, items: impl Iterator<Item = Answer<Vec<u8>>>) -> Answer<Bytes> {
        let mut metadata = Vec::new();
        tail.push(&mut metadata, revision);
        let metadata: Value = serde_json::from_slice(&metadata).map_err(Status::internal_error)?;
        let items: Vec<Vec<u8>> = items.collect::<Answer<_>>()?;
        let (version, kind) = self.list_type();
        let list = protobuf::list_object(&version, &kind, &metadata, items.iter().map(Vec::as_slice));
        Ok(list.map_err(Status::internal_error)?.into())
    }

    /// One item of such a list.
    pub fn protobuf_item(&self, item: Item<'_>) -> Answer<Vec<u8>> {
        let encoded = match self.media.view {
            View::Partial { beta } | View::PartialList { beta } => {
                let version = meta_version(beta).trim_start_matches("meta.k8s.io/");
                let kind = catalog().kind("meta.k8s.io", version, "PartialObjectMetadata");
                let kind = kind.ok_or_else(|| Status::internal_error("partial metadata has no schema"))?;
                protobuf::encode(&self.partial_value(item, meta_version(beta))?, &kind.schema)
            }
            View::Object | View::Table { .. } => protobuf::encode(&self.served(item)?, &self.resource.schema),
        };
        encoded.map_err(|error| Status::internal_error(error).into())
    }

    fn table_head(&self, out: &mut Vec<u8>, version: &str, revision: Revision, tail: &ListTail, columns: bool) {
        let _ = write!(out, "{{\"kind\":\"Table\",\"apiVersion\":\"{version}\",\"metadata\":");
        tail.push(out, revision);
        out.extend_from_slice(b",\"columnDefinitions\":");
        if columns {
            let columns: Vec<Value> = self.resource.kind().columns().iter().map(column).collect();
            serde_json::to_writer(&mut *out, &columns).expect("a Vec takes every byte");
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(b",\"rows\":[");
    }

    fn row(&self, out: &mut Vec<u8>, item: Item<'_>) -> Answer<()> {
        let object = self.stored_object(item)?;
        let cells = self.resource.kind().row(&object, self.now);
        out.extend_from_slice(b"{\"cells\":");
        serde_json::to_writer(&mut *out, &cells).expect("a Vec takes every byte");
        out.extend_from_slice(b",\"object\":");
        let beta = self.media.view == View::Table { beta: true };
        match self.row_object {
            RowObject::None => out.extend_from_slice(b"null"),
            RowObject::Metadata => out.extend_from_slice(&self.partial(item, meta_version(beta))?),
            RowObject::Object => serde_json::to_writer(&mut *out, &self.served(item)?).expect("a Vec takes every byte"),
        }
        out.push(b'}');
        Ok(())
    }

    fn stored_object(&self, item: Item<'_>) -> Answer<Value> {
        read(&self.resource, item)
    }

    /// The object in the served version.
    pub fn served(&self, item: Item<'_>) -> Answer<Value> {
        let mut object = self.stored_object(item)?;
        self.resource.to_served(&mut object);
        Ok(object)
    }

    fn partial(&self, item: Item<'_>, version: &str) -> Answer<Vec<u8>> {
        let mut out = Vec::with_capacity(512);
        let _ = write!(out, "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{version}\",\"metadata\":");
        let metadata = stored::metadata_json(item.value, item.revision);
        match self.resource.kind().annotations_from_fields() {
            [] => out.extend_from_slice(&metadata),
            dropped => serde_json::to_writer(&mut out, &without_annotations(&metadata, dropped)?).expect("a Vec takes every byte"),
        }
        out.push(b'}');
        Ok(out)
    }

    fn partial_value(&self, item: Item<'_>, version: &str) -> Answer<Value> {
        serde_json::from_slice(&self.partial(item, version)?).map_err(|error| Status::internal_error(error).into())
    }

    /// A value that is complete: a list made of values, a review, a Scale.
    pub fn encode(&self, value: &Value) -> Answer<Bytes> {
        encode_value(value, self.media.encoding)
    }

    /// Text that is written as JSON, in the form asked for.
    pub fn finish_json(&self, json: Vec<u8>) -> Bytes {
        if self.media.encoding == Encoding::Yaml { crate::respond::yaml(&json) } else { json.into() }
    }
}

/// Any value with apiVersion and kind, in any encoding.
pub fn encode_value(value: &Value, encoding: Encoding) -> Answer<Bytes> {
    match encoding {
        Encoding::Json => Ok(serde_json::to_vec(value).map_err(Status::internal_error)?.into()),
        Encoding::Yaml => Ok(crate::yaml::to_string(value).into()),
        Encoding::Protobuf => {
            let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or("");
            let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
            let kind = catalog().kind(group, version, text("kind"));
            let schema = kind.map(|kind| Cow::Borrowed(&kind.schema));
            let schema = schema.ok_or_else(|| Status::not_acceptable_because(format!("{} has no protobuf form", text("kind"))))?;
            Ok(protobuf::encode_object(value, &schema).map_err(Status::internal_error)?.into())
        }
    }
}

/// Reads a stored value in the stored version.
pub fn read(resource: &Resource, item: Item<'_>) -> Answer<Value> {
    let mut object = stored::decode(item.value, &resource.stored_api_version, resource.info().kind, item.revision).map_err(Status::internal_error)?;
    if let Some(kind) = resource.entry.kind() {
        kind.complete(&mut object);
    }
    Ok(object)
}

fn meta_version(beta: bool) -> &'static str {
    if beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
}

/// Metadata without some annotations; without any when none is left.
fn without_annotations(metadata: &[u8], dropped: &[&str]) -> Answer<Value> {
    let mut metadata: Value = serde_json::from_slice(metadata).map_err(Status::internal_error)?;
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|name, _| !dropped.contains(&name.as_str()));
        if annotations.is_empty()
            && let Some(fields) = metadata.as_object_mut()
        {
            fields.remove("annotations");
        }
    }
    Ok(metadata)
}

fn column(column: &wheelhouse_kinds::Column) -> Value {
    json!({
        "name": column.name, "type": column.kind, "format": column.format, "description": column.description, "priority": column.priority,
    })
}

/// What a list's metadata says besides its revision.
#[derive(Clone, Debug, Default)]
pub struct ListTail {
    pub continue_token: String,
    pub remaining: Option<usize>,
}

impl ListTail {
    fn push(&self, out: &mut Vec<u8>, revision: Revision) {
        out.push(b'{');
        if revision != 0 {
            let _ = write!(out, "\"resourceVersion\":\"{revision}\"");
        }
        if !self.continue_token.is_empty() {
            // A token is URL-safe base64, so it needs no escaping.
            let _ = write!(out, ",\"continue\":\"{}\"", self.continue_token);
        }
        if let Some(remaining) = self.remaining {
            let _ = write!(out, ",\"remainingItemCount\":{remaining}");
        }
        out.push(b'}');
    }
}
