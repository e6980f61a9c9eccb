//! The definitions of types, found from the operations that name them.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::Resource;
use super::descriptions::{Block, Descriptions};
use crate::types::{Choice, Field, ListKind, PatchStrategy, Presence, Scalar, Schema, Struct, StructRef};

/// Which OpenAPI the definitions are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn prefix(self) -> &'static str {
        match self {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        }
    }

    pub(super) fn reference(self, definition: &str) -> Value {
        json!({ "$ref": format!("{}{definition}", self.prefix()) })
    }
}

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const FIELDS_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";
const OR_ARRAY: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray";
const OR_BOOL: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool";
const OR_STRINGS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray";
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// Every group and version that upstream's own kinds ever had in 1.36's scheme. Documents of custom resources say that all of them have the machinery's kinds.
const ALL_VERSIONS: &[(&str, &[&str])] = &[
    ("", &["v1"]),
    ("admissionregistration.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("apps", &["v1", "v1beta1", "v1beta2"]),
    ("authentication.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("authorization.k8s.io", &["v1", "v1beta1"]),
    ("autoscaling", &["v1", "v2"]),
    ("batch", &["v1", "v1beta1"]),
    ("certificates.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("coordination.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("discovery.k8s.io", &["v1", "v1beta1"]),
    ("events.k8s.io", &["v1", "v1beta1"]),
    ("extensions", &["v1beta1"]),
    ("flowcontrol.apiserver.k8s.io", &["v1", "v1beta1", "v1beta2", "v1beta3"]),
    ("internal.apiserver.k8s.io", &["v1alpha1"]),
    ("networking.k8s.io", &["v1", "v1beta1"]),
    ("node.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("policy", &["v1", "v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("resource.k8s.io", &["v1", "v1alpha3", "v1beta1", "v1beta2"]),
    ("scheduling.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("storage.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("storagemigration.k8s.io", &["v1beta1"]),
];

/// Collects the definitions that are referred to, and those they refer to.
pub(super) struct Definitions<'a> {
    dialect: Dialect,
    resources: &'a [Resource],
    /// The versions that DeleteOptions and WatchEvent belong to in this document.
    versions: Vec<(String, String)>,
    found: BTreeMap<String, Value>,
    waiting: Vec<String>,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(dialect: Dialect, resources: &'a [Resource], versions: Vec<(String, String)>) -> Definitions<'a> {
        Definitions { dialect, resources, versions, found: BTreeMap::new(), waiting: Vec::new() }
    }

    /// A reference to a definition, which will be part of the result.
    pub(super) fn refer(&mut self, definition: &str) -> Value {
        if !self.found.contains_key(definition) {
            self.found.insert(definition.to_owned(), Value::Null);
            self.waiting.push(definition.to_owned());
        }
        self.dialect.reference(definition)
    }

    pub(super) fn finish(mut self) -> BTreeMap<String, Value> {
        let descriptions = Descriptions::unpack();
        let descriptions = descriptions.by_definition();
        while let Some(name) = self.waiting.pop() {
            let rendered = self.render(&name, &descriptions);
            self.found.insert(name, rendered);
        }
        self.found
    }

    fn render(&mut self, name: &str, descriptions: &HashMap<&str, Block<'_>>) -> Value {
        let block = descriptions.get(name);
        let mut rendered = match special(name, self.dialect) {
            Some(special) => special,
            None => match crate::catalog().definition(name) {
                Some(Schema::Struct(of)) => self.structure(&of, block),
                _ => self.custom(name),
            },
        };
        if let Some(text) = block.and_then(Block::own) {
            rendered.insert("description".to_owned(), text.into());
        }
        let kinds = self.kinds(name);
        if !kinds.is_empty() {
            rendered.insert("x-kubernetes-group-version-kind".to_owned(), kinds.into());
        }
        Value::Object(rendered)
    }

    fn kinds(&self, name: &str) -> Vec<Value> {
        let one = |group: &str, version: &str, kind: &str| json!({"group": group, "kind": kind, "version": version});
        if name == DELETE_OPTIONS || name == WATCH_EVENT {
            let kind = name.rsplit('.').next().unwrap_or_default();
            if self.resources.iter().any(Resource::is_custom) {
                return ALL_VERSIONS.iter().flat_map(|(group, versions)| versions.iter().map(|version| one(group, version, kind))).collect();
            }
            return self.versions.iter().map(|(group, version)| one(group, version, kind)).collect();
        }
        if let Some(custom) = self.resources.iter().find_map(|r| custom_kind(r, name)) {
            return vec![one(&custom.0, &custom.1, &custom.2)];
        }
        let of_definition = |kind: &&crate::Kind| kind.schema.as_struct().is_some_and(|of| of.definition == name);
        let kinds = crate::catalog().kinds().iter().filter(of_definition);
        // Machinery kinds are those of the core version to clients.
        kinds.map(|k| one(if k.group == "meta.k8s.io" { "" } else { k.group }, k.version, k.kind)).collect()
    }

    /// A kind that is not in the catalog, or its list.
    fn custom(&mut self, name: &str) -> Map<String, Value> {
        let resources = self.resources;
        for resource in resources {
            let definition = super::paths::definition(&resource.group, &resource.version, &resource.kind);
            if let (true, Some(Value::Object(props))) = (definition == name, &resource.props) {
                return self.declared(props);
            }
            if let (true, Some(Schema::Struct(of))) = (definition == name, &resource.schema) {
                return self.structure(of, None);
            }
            if format!("{definition}List") == name {
                let items = self.refer(&definition);
                let mut metadata = self.refer(LIST_META);
                if resource.is_custom() {
                    metadata = json!({ "allOf": [metadata] });
                }
                let list = json!({"type": "object", "required": ["items"], "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": metadata,
                    "items": {"type": "array", "items": items}}});
                return match list {
                    Value::Object(list) => list,
                    _ => Map::new(),
                };
            }
        }
        Map::new()
    }

    /// What a definition says, and what every object has besides.
    fn declared(&mut self, props: &Map<String, Value>) -> Map<String, Value> {
        let mut out = props.clone();
        let metadata = match self.dialect {
            Dialect::V3 => json!({ "allOf": [self.refer(OBJECT_META)] }),
            Dialect::V2 => self.refer(OBJECT_META),
        };
        let properties = out.entry("properties").or_insert_with(|| json!({}));
        properties["apiVersion"] = json!({"type": "string"});
        properties["kind"] = json!({"type": "string"});
        properties["metadata"] = metadata;
        self.embedded(properties);
        out
    }

    /// Embedded objects have a type header and metadata as well.
    fn embedded(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if fields.get("x-kubernetes-embedded-resource").is_some_and(|e| e == true) {
                    let metadata = match self.dialect {
                        Dialect::V3 => json!({ "allOf": [self.refer(OBJECT_META)] }),
                        Dialect::V2 => self.refer(OBJECT_META),
                    };
                    let properties = fields.entry("properties").or_insert_with(|| json!({}));
                    properties["apiVersion"] = json!({"type": "string"});
                    properties["kind"] = json!({"type": "string"});
                    properties["metadata"] = metadata;
                    fields.insert("required".to_owned(), json!(["kind", "apiVersion"]));
                }
                if fields.get("x-kubernetes-int-or-string").is_some_and(|i| i == true) && !fields.contains_key("anyOf") {
                    fields.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
                }
                fields.values_mut().for_each(|value| self.embedded(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.embedded(item)),
            _ => {}
        }
    }

    fn structure(&mut self, of: &Struct, block: Option<&Block<'_>>) -> Map<String, Value> {
        let mut out = Map::new();
        out.insert("type".to_owned(), "object".into());
        let properties: Map<String, Value> = of
            .fields
            .iter()
            .map(|field| {
                let text = block.and_then(|block| block.field(&field.name));
                (field.name.to_string(), self.property(field, text))
            })
            .collect();
        if !properties.is_empty() {
            out.insert("properties".to_owned(), properties.into());
        }
        let required: Vec<&str> = of.fields.iter().filter(|f| f.required).map(|f| f.name.as_ref()).collect();
        if !required.is_empty() {
            out.insert("required".to_owned(), required.into());
        }
        if of.atomic {
            out.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        if of.preserve_unknown {
            out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
        }
        if of.embedded_resource {
            out.insert("x-kubernetes-embedded-resource".to_owned(), true.into());
        }
        if let Some(Ok(unions)) = of.unions.map(serde_json::from_str::<Value>) {
            out.insert("x-kubernetes-unions".to_owned(), unions);
        }
        out
    }

    fn property(&mut self, field: &Field, description: Option<String>) -> Value {
        let mut extras = Map::new();
        if let Some(text) = description {
            extras.insert("description".to_owned(), text.into());
        }
        if let Some(default) = self.default(field) {
            extras.insert("default".to_owned(), default);
        }
        if let Some(key) = &field.merge_key {
            extras.insert("x-kubernetes-patch-merge-key".to_owned(), key.as_ref().into());
        }
        if let Some(strategy) = strategy(field.patch) {
            extras.insert("x-kubernetes-patch-strategy".to_owned(), strategy.into());
        }
        if field.declared_atomic {
            extras.insert("x-kubernetes-list-type".to_owned(), "atomic".into());
        }
        if field.nullable {
            extras.insert("nullable".to_owned(), true.into());
        }
        if is_granular(&field.schema) {
            extras.insert("x-kubernetes-map-type".to_owned(), "granular".into());
        }
        let mut value = self.schema(&field.schema, &field.values);
        let refers = value.contains_key("$ref");
        if refers && self.dialect == Dialect::V3 && !extras.is_empty() {
            // A reference takes nothing beside itself in OpenAPI v3.
            value = Map::from_iter([("allOf".to_owned(), Value::from(vec![Value::Object(value)]))]);
        }
        value.extend(extras);
        Value::Object(value)
    }

    /// Go's zero values show as defaults where they are always written; v2 documents have the declared ones only.
    fn default(&self, field: &Field) -> Option<Value> {
        if let Some(default) = &field.default {
            return Some(default.as_ref().clone());
        }
        if field.pointer || self.dialect == Dialect::V2 {
            return None;
        }
        match (&field.schema, field.presence) {
            (Schema::Struct(_), _) => Some(json!({})),
            (Schema::Scalar(Scalar::String), Presence::Always) => Some("".into()),
            (Schema::Scalar(Scalar::Bool), Presence::Always) => Some(false.into()),
            (Schema::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Float), Presence::Always) => Some(0.into()),
            _ => None,
        }
    }

    /// `values` are an enumeration's, of the scalar at the bottom.
    fn schema(&mut self, schema: &Schema, values: &[crate::Name]) -> Map<String, Value> {
        let referred = match schema {
            Schema::Struct(of) if !of.definition.is_empty() => Some(of.definition.as_ref()),
            Schema::Struct(of) => return self.structure(of, None),
            Schema::List(list) => {
                let mut out = typed("array", None);
                out.insert("items".to_owned(), self.schema(&list.items, values).into());
                if list.declared {
                    let kind = match list.kind {
                        ListKind::Atomic => "atomic",
                        ListKind::Set => "set",
                        ListKind::Map => "map",
                    };
                    out.insert("x-kubernetes-list-type".to_owned(), kind.into());
                }
                if !list.keys.is_empty() {
                    let keys: Vec<&str> = list.keys.iter().map(AsRef::as_ref).collect();
                    out.insert("x-kubernetes-list-map-keys".to_owned(), keys.into());
                }
                return out;
            }
            Schema::Map(map) => {
                let mut out = typed("object", None);
                out.insert("additionalProperties".to_owned(), self.schema(&map.values, values).into());
                if map.atomic || map.granular {
                    let kind = if map.atomic { "atomic" } else { "granular" };
                    out.insert("x-kubernetes-map-type".to_owned(), kind.into());
                }
                return out;
            }
            Schema::Any => Some(JSON),
            Schema::Choice(Choice::SchemaOrArray) => Some(OR_ARRAY),
            Schema::Choice(Choice::SchemaOrBool) => Some(OR_BOOL),
            Schema::Choice(Choice::SchemaOrStringArray) => Some(OR_STRINGS),
            Schema::Scalar(scalar) => match scalar {
                Scalar::Quantity => Some(QUANTITY),
                Scalar::IntOrString => Some(INT_OR_STRING),
                Scalar::Time => Some(TIME),
                Scalar::MicroTime => Some(MICRO_TIME),
                Scalar::RawObject => Some(RAW_EXTENSION),
                Scalar::FieldsV1 => Some(FIELDS_V1),
                _ => None,
            },
        };
        if let Some(definition) = referred {
            return match self.refer(definition) {
                Value::Object(reference) => reference,
                _ => Map::new(),
            };
        }
        let mut out = match schema {
            Schema::Scalar(Scalar::Bool) => typed("boolean", None),
            Schema::Scalar(Scalar::Int32) => typed("integer", Some("int32")),
            Schema::Scalar(Scalar::Int64) => typed("integer", Some("int64")),
            Schema::Scalar(Scalar::Float) => typed("number", Some("double")),
            Schema::Scalar(Scalar::Bytes) => typed("string", Some("byte")),
            _ => typed("string", None),
        };
        if !values.is_empty() && self.dialect == Dialect::V3 {
            let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
            out.insert("enum".to_owned(), values.into());
        }
        out
    }
}

fn custom_kind(resource: &Resource, name: &str) -> Option<(String, String, String)> {
    if resource.schema.is_none() && resource.props.is_none() {
        return None;
    }
    let definition = super::paths::definition(&resource.group, &resource.version, &resource.kind);
    let suffix = name.strip_prefix(definition.as_str())?;
    let list = match suffix {
        "" => false,
        "List" => true,
        _ => return None,
    };
    let kind = if list { format!("{}List", resource.kind) } else { resource.kind.clone() };
    Some((resource.group.clone(), resource.version.clone(), kind))
}

/// Definitions without fields of their own.
fn special(name: &str, dialect: Dialect) -> Option<Map<String, Value>> {
    let value = match (name, dialect) {
        (QUANTITY, Dialect::V3) => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        (QUANTITY, Dialect::V2) => json!({"type": "string"}),
        (INT_OR_STRING, Dialect::V3) => json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
        (INT_OR_STRING, Dialect::V2) => json!({"format": "int-or-string", "type": "string"}),
        (TIME | MICRO_TIME, _) => json!({"type": "string", "format": "date-time"}),
        (FIELDS_V1 | RAW_EXTENSION | PATCH, _) => json!({"type": "object"}),
        (JSON | OR_ARRAY | OR_BOOL | OR_STRINGS, _) => json!({}),
        _ => return None,
    };
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

fn typed(kind: &str, format: Option<&str>) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("type".to_owned(), kind.into());
    if let Some(format) = format {
        out.insert("format".to_owned(), format.into());
    }
    out
}

fn strategy(patch: PatchStrategy) -> Option<String> {
    let named = [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
    let words: Vec<&str> = named.into_iter().filter(|(set, _)| *set).map(|(_, word)| word).collect();
    (!words.is_empty()).then(|| words.join(","))
}

/// A copy of a built-in atomic struct that a field takes apart.
fn is_granular(schema: &Schema) -> bool {
    matches!(schema, Schema::Struct(StructRef::Owned(of)) if !of.definition.is_empty() && !of.atomic)
}
