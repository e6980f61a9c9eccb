//! Custom resources: the kinds that a cluster defines for itself.
//!
//! ```text
//! CustomResourceDefinition --Definition::read--> one CustomResource (a Kind) for each served version --> resources of this cluster alone
//! ```
//!
//! Objects are stored in the definition's storage version. Versions differ in schema only (`strategy: None`): an object goes from one to another by
//! its apiVersion, and is pruned and defaulted by the schema of the version it is read in. What a stored object lacks is filled in when it is read,
//! so that a default which the definition gains shows at once.

mod defaulting;
mod format;
mod json_path;
mod schema;
pub mod validate;

use std::sync::Arc;

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_meta::duration::human_duration;
use wheelhouse_meta::time;
use wheelhouse_schema::{FieldValidation, Schema, decode_value, normalise};

pub use json_path::JsonPath;
use validate::Validator;

use super::names::{keep, keep_all};
use crate::kind::{Column, Kind, KindInfo, OtherVersion, RequestContext, Scope, Subresource, Verb, Verdict};
use crate::registry::{Behaviour, Entry};
use crate::{subresource, table};

/// In the order in which upstream's discovery lists them.
const VERBS: &[Verb] = &[Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Patch, Verb::Create, Verb::Update, Verb::Watch];

const NONE: &[Subresource] = &[];
const STATUS: &[Subresource] = &[subresource::STATUS];
const SCALE: &[Subresource] = &[subresource::SCALE];
const STATUS_AND_SCALE: &[Subresource] = &[subresource::STATUS, subresource::SCALE];

/// Where a custom resource keeps what a Scale shows.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalePaths {
    /// As the definition writes it, `.spec.replicas`.
    pub spec_text: String,
    pub spec: Vec<String>,
    pub status: Vec<String>,
    pub selector: Option<Vec<String>>,
}

/// One version of a custom resource.
pub struct CustomResource {
    /// Group and version are those of storage.
    info: KindInfo,
    api_version: String,
    stored_api_version: String,
    schema: Schema,
    validator: Validator,
    stored: Arc<Stored>,
    columns: Vec<Column>,
    cells: Vec<(String, JsonPath)>,
    selectable: Vec<(&'static str, JsonPath)>,
    selectable_names: Vec<&'static str>,
    scale: Option<ScalePaths>,
    deprecation: Option<String>,
    has_status: bool,
}

/// The storage version's part in every version.
struct Stored {
    schema: Schema,
    props: Value,
}

/// The entries of an accepted definition, one for each served version; empty for one that cannot be served. `definition` is the whole object.
pub fn entries(definition: &Value) -> Vec<Entry> {
    let spec = &definition["spec"];
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    let Some(stored) = versions.iter().find(|v| v["storage"] == true) else { return Vec::new() };
    let props = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    let shared = Arc::new(Stored { schema: schema::of_object(&props(stored)), props: props(stored) });
    let served = versions.iter().filter(|v| v["served"] == true);
    served.filter_map(|version| entry(definition, version, stored["name"].as_str()?, &shared)).collect()
}

fn entry(definition: &Value, version: &Value, storage: &str, stored: &Arc<Stored>) -> Option<Entry> {
    let (group, name) = (keep(definition["spec"]["group"].as_str()?)?, keep(version["name"].as_str()?)?);
    let kind = Arc::new(CustomResource::read(definition, version, storage, stored)?);
    // The conversions need the kind, and are its methods.
    let nothing: fn(&mut Value) = |_| {};
    let other = (name != storage).then_some(OtherVersion {
        group,
        version: name,
        default: nothing,
        to_stored: nothing,
        from_stored: nothing,
        selectable: &[],
    });
    Some(Entry { group, version: name, behaviour: Behaviour::Stored { kind, other } })
}

impl CustomResource {
    fn read(definition: &Value, version: &Value, storage: &str, stored: &Arc<Stored>) -> Option<Self> {
        let spec = &definition["spec"];
        let names = &definition["status"]["acceptedNames"];
        let group = keep(spec["group"].as_str()?)?;
        let texts =
            |list: &'_ Value| -> Option<&'static [&'static str]> { keep_all(list.as_array().into_iter().flatten().filter_map(Value::as_str)) };
        let (status, scale) = (&version["subresources"]["status"], scale_paths(&version["subresources"]["scale"]));
        let kind = names["kind"].as_str()?;
        let info = KindInfo {
            short_names: texts(&names["shortNames"])?,
            categories: texts(&names["categories"])?,
            scope: if spec["scope"] == "Namespaced" { Scope::Namespaced } else { Scope::Cluster },
            verbs: VERBS,
            subresources: match (status.is_object(), scale.is_some()) {
                (false, false) => NONE,
                (true, false) => STATUS,
                (false, true) => SCALE,
                (true, true) => STATUS_AND_SCALE,
            },
            generation: true,
            unconditional_update: false,
            ..KindInfo::namespaced(group, keep(storage)?, keep(kind)?, keep(names["plural"].as_str()?)?, keep(names["singular"].as_str()?)?)
        };
        let name = version["name"].as_str()?;
        let props = version["schema"]["openAPIV3Schema"].clone();
        let (columns, cells) = columns(version);
        let selectable: Vec<(&'static str, JsonPath)> =
            version["selectableFields"].as_array().into_iter().flatten().filter_map(|field| selectable(&field["jsonPath"])).collect();
        Some(Self {
            api_version: format!("{group}/{name}"),
            stored_api_version: format!("{group}/{storage}"),
            schema: schema::of_object(&props),
            validator: Validator::new(props),
            stored: Arc::clone(stored),
            columns,
            cells,
            selectable_names: selectable.iter().map(|(name, _)| *name).collect(),
            selectable,
            scale,
            deprecation: deprecation(definition, version, kind),
            has_status: status.is_object(),
            info,
        })
    }

    /// Errors of an object; those that the old one has as well are let through, since nobody made them with this write.
    fn check(&self, object: &Value, old: Option<&Value>) -> Verdict {
        let errors = self.validator.check(object);
        let known = match old {
            Some(old) if !errors.is_empty() => self.validator.check(old),
            _ => return errors.into(),
        };
        let errors: Vec<_> = errors.iter().filter(|error| !known.iter().any(|k| k == *error)).cloned().collect();
        Verdict { errors: errors.into(), warnings: Vec::new() }
    }
}

/// `.spec.color` as the field selector's `spec.color`.
fn selectable(path: &Value) -> Option<(&'static str, JsonPath)> {
    let text = path.as_str()?;
    Some((keep(text.strip_prefix('.')?)?, JsonPath::parse(text)?))
}

fn scale_paths(scale: &Value) -> Option<ScalePaths> {
    let fields = |key: &str| {
        let path = JsonPath::parse(scale[key].as_str()?)?;
        Some(path.fields()?.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    Some(ScalePaths {
        spec_text: scale["specReplicasPath"].as_str()?.to_owned(),
        spec: fields("specReplicasPath")?,
        status: fields("statusReplicasPath")?,
        selector: fields("labelSelectorPath"),
    })
}

/// What an answer in a deprecated version warns of.
fn deprecation(definition: &Value, version: &Value, kind: &str) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(text) = version["deprecationWarning"].as_str() {
        return Some(text.to_owned());
    }
    let group = definition["spec"]["group"].as_str()?;
    let name = version["name"].as_str()?;
    let mut text = format!("{group}/{name} {kind} is deprecated");
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let better = versions.filter(|v| v["served"] == true && v["deprecated"] != true).filter_map(|v| v["name"].as_str());
    if let Some(better) = better.max_by_key(|name| version_order(name))
        && version_order(better) > version_order(name)
    {
        text.push_str(&format!("; use {group}/{better} {kind}"));
    }
    Some(text)
}

/// Versions by preference: `v2` over `v1` over `v1beta2` over `v1alpha1` over anything else. The greatest is preferred.
pub fn version_order(name: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parse = || {
        let rest = name.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest[..end].parse().ok().filter(|_| !rest.starts_with('0'))?;
        let (stage, minor) = match &rest[end..] {
            "" => (3, ""),
            tail if tail.starts_with("beta") => (2, &tail[4..]),
            tail if tail.starts_with("alpha") => (1, &tail[5..]),
            _ => return None,
        };
        let minor: u64 = if minor.is_empty() && stage == 3 { 0 } else { minor.parse().ok()? };
        Some((stage, major, minor))
    };
    let (stage, major, minor) = parse().unwrap_or_default();
    (stage, major, minor, std::cmp::Reverse(name.to_owned()))
}

/// The name, then what the definition asks for; the age where it asks for nothing.
fn columns(version: &Value) -> (Vec<Column>, Vec<(String, JsonPath)>) {
    let (mut columns, mut cells) = (vec![table::NAME], Vec::new());
    let declared = version["additionalPrinterColumns"].as_array().map(Vec::as_slice).unwrap_or_default();
    let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})];
    for column in if declared.is_empty() { &age } else { declared } {
        let text = |key: &str| column[key].as_str().unwrap_or_default();
        let names = (keep(text("name")), keep(text("type")), keep(text("format")), JsonPath::parse(text("jsonPath")));
        let (Some(name), Some(kind), Some(format), Some(path)) = names else { continue };
        let priority = column["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or_default();
        columns.push(Column { name, kind, format, description: "A value of the object, by the definition's JSON path.", priority });
        cells.push((kind.to_owned(), path));
    }
    (columns, cells)
}

/// A column's value of a type; null where it is another.
fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", other) => other.to_string().into(),
        ("integer", Value::Number(n)) => n.as_i64().or_else(|| n.as_f64().map(|f| f as i64)).into(),
        ("number", Value::Number(n)) => n.as_f64().into(),
        ("date", Value::String(_)) => match time::from_json(Some(value)) {
            Some(then) => human_duration(now.as_secs() - then.as_secs()).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

impl Kind for CustomResource {
    fn info(&self) -> &KindInfo {
        &self.info
    }

    fn schema(&self) -> Option<Schema> {
        Some(self.schema.clone())
    }

    fn default(&self, object: &mut Value) {
        defaulting::whole_numbers(object);
        defaulting::apply(object, self.validator.props());
        normalise(object, &self.schema);
    }

    fn prepare_create(&self, object: &mut Value, _: &RequestContext<'_>) -> Verdict {
        if self.has_status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        self.check(object, None)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, cx: &RequestContext<'_>) -> Verdict {
        let status = if cx.subresource == "status" { new.get("status").cloned() } else { old.get("status").cloned() };
        if cx.subresource == "status" {
            *new = old.clone();
        }
        if self.has_status
            && let Some(fields) = new.as_object_mut()
        {
            match status {
                Some(status) => fields.insert("status".to_owned(), status),
                None => fields.remove("status"),
            };
        }
        self.check(new, Some(old))
    }

    fn spec_changed(&self, new: &Value, old: &Value) -> bool {
        let part = |object: &Value| -> Value {
            let own = |key: &str| !matches!(key, "metadata" | "apiVersion" | "kind") && (key != "status" || !self.has_status);
            let kept = object.as_object().into_iter().flatten().filter(|(key, _)| own(key));
            Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
        };
        part(new) != part(old)
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = object["metadata"]["name"].clone();
        let cells = self.cells.iter().map(|(kind, path)| path.find(object).map_or(Value::Null, |value| cell(kind, value, now)));
        std::iter::once(name).chain(cells).collect()
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.selectable.iter().map(|(name, path)| (*name, path.find(object).filter(|v| !v.is_null()).map(text).unwrap_or_default())).collect()
    }

    fn selectable_names(&self) -> &[&'static str] {
        &self.selectable_names
    }

    fn is_custom(&self) -> bool {
        true
    }

    fn complete(&self, object: &mut Value) {
        prune(object, &self.stored.schema);
        defaulting::apply(object, &self.stored.props);
    }

    fn to_stored(&self, object: &mut Value) {
        set_api_version(object, &self.stored_api_version);
    }

    fn to_served(&self, object: &mut Value) {
        set_api_version(object, &self.api_version);
        prune(object, &self.schema);
    }

    fn scale(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn props(&self) -> Option<&Value> {
        Some(self.validator.props())
    }

    fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }
}

fn set_api_version(object: &mut Value, api_version: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
    }
}

/// Drops what a schema does not know.
fn prune(object: &mut Value, schema: &Schema) {
    // Values of a wrong type are kept under a schema that is made at run time, so this refuses nothing that was once stored.
    if let Ok(decoded) = decode_value(object.clone(), schema, FieldValidation::Ignore) {
        *object = decoded.value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_upstreams() {
        let mut names = vec!["v1alpha1", "foo10", "v1", "v11beta2", "v10", "v12alpha1", "v3beta1", "foo1", "v2"];
        names.sort_by_key(|name| std::cmp::Reverse(version_order(name)));
        assert_eq!(names, ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10"]);
    }

    fn definition() -> Value {
        let props = |fields: Value| json!({"openAPIV3Schema": {"type": "object", "properties": fields}});
        json!({
            "spec": {"group": "k.example.com", "scope": "Namespaced", "versions": [
                {"name": "v1", "served": true, "storage": false, "deprecated": true, "schema": props(json!({"a": {"type": "string", "default": "one"}}))},
                {"name": "v2", "served": true, "storage": true,
                    "schema": props(json!({"a": {"type": "string"}, "b": {"type": "string", "default": "two"}}))},
                {"name": "v3alpha1", "served": false, "storage": false, "schema": props(json!({}))},
            ]},
            "status": {"acceptedNames": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}},
        })
    }

    #[test]
    fn versions_prune_and_default_by_their_own_schema() {
        let entries = entries(&definition());
        assert_eq!(entries.iter().map(|e| (e.version, e.other_version().is_some())).collect::<Vec<_>>(), [("v1", true), ("v2", false)]);
        let (v1, v2) = (entries[0].kind().unwrap(), entries[1].kind().unwrap());
        assert_eq!(v1.deprecation(), Some("k.example.com/v1 Thing is deprecated; use k.example.com/v2 Thing"));
        let mut object = json!({"apiVersion": "k.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "a": "x"});
        v1.to_stored(&mut object);
        assert_eq!(object["apiVersion"], "k.example.com/v2");
        let stored = object.clone();
        v2.complete(&mut object);
        assert_eq!((&object["a"], &object["b"]), (&json!("x"), &json!("two")), "a default shows when the object is read");
        let mut back = stored;
        v1.complete(&mut back);
        v1.to_served(&mut back);
        assert_eq!(back, json!({"apiVersion": "k.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "a": "x"}));
    }
}
