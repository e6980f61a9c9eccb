//! Every kind against recorded answers of upstream: what is stored, which errors in which order, which row.
//!
//! `testdata/golden.json` of each kind's folder is made by `extract_goldens.py`. The test plays the registry's part around a kind: decoding,
//! metadata, generation, and for pods the admission plugins that were on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_kinds::{Entry, KindInfo, NameRule, Profile, Registry, RequestContext, Requester, Scope, scale};
use wheelhouse_meta::field::{ErrorList, Path};
use wheelhouse_meta::validation::{NameFormat, object_meta_create, object_meta_update};
use wheelhouse_schema::{FieldValidation, catalog, decode_value, normalise};

/// Recorded answers that are known not to be met, each with the reason.
const UNMET: &[(&str, &str)] = &[
    ("a-objects/obj-svc/again", "node ports are allocated by the API server"),
    ("b-validation/bad-svc/bad-11", "cluster IPs are allocated by the API server"),
    ("b-validation/bad-svc/bad-33", "the duplicate is of node ports that the API server has allocated before"),
    ("b-validation/bad-deploy/bad-18", "an empty map of labels is shown as an unset one, since decoding drops it"),
    (
        "b-updates/upd-crd/upd-0",
        "the server established the definition before this write, which it had not yet when the recorded old object was read",
    ),
    ("b-updates/upd-crd/upd-3", "as upd-0: the accepted names are the server's"),
    ("f-deletes/del-crd/release", "as upd-0: the progress of the deletion is the server's"),
    ("b-validation/bad-crd/bad-14", "CEL rules are not compiled"),
    ("b-validation/bad-crd/bad-16", "CEL rules are not compiled"),
    ("b-updates/upd-apisvc/upd-0", "whether a Service answers is found out by a controller"),
    ("b-validation/bad-map/bad-4", "expressions are not compiled"),
    ("b-validation/bad-devcl/bad-0", "expressions are not compiled"),
    ("b-validation/bad-devcl/bad-1", "expressions are not compiled"),
    ("b-validation/bad-devcl/bad-2", "expressions are not compiled"),
    ("b-validation/bad-rclaim/bad-8", "the namespace's labels are looked at by the API server"),
    ("f-deletes/del-devcl/release", "upstream compares opaque parameters by their bytes, which a patch rewrites"),
    ("a-tables/tab-fs/rows", "the condition is reported by a controller"),
];

/// When the recorded objects were made, and a minute later.
const CREATED: &str = "2024-02-03T04:05:06Z";
const NOW: Timestamp = Timestamp::from_secs(1_706_933_106 + 60);

/// Who the recordings' administrator is.
static GROUPS: LazyLock<[String; 2]> = LazyLock::new(|| ["system:masters".to_owned(), "system:authenticated".to_owned()]);
static EXTRA: LazyLock<BTreeMap<String, Vec<String>>> =
    LazyLock::new(|| BTreeMap::from([("authentication.kubernetes.io/credential-id".to_owned(), vec!["X509SHA256=<cert>".to_owned()])]));

fn folder(info: &KindInfo) -> PathBuf {
    let group = match info.group {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("src").join(group).join(info.singular).join("testdata/golden.json")
}

fn pointer_parent<'a>(value: &'a mut Value, path: &str) -> (&'a mut Value, String) {
    let (parent, last) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = if parent.is_empty() { value } else { value.pointer_mut(&format!("/{parent}")).expect("a recorded path exists") };
    (parent, last.replace("~1", "/").replace("~0", "~"))
}

fn unpack(value: &Value, bases: &[Value]) -> Value {
    let Some(base) = value.get("$base").and_then(Value::as_str) else { return value.clone() };
    let mut object = bases[base.parse::<usize>().expect("a base is a number")].clone();
    for (path, new) in value.get("$set").and_then(Value::as_object).into_iter().flatten() {
        match pointer_parent(&mut object, path) {
            (Value::Array(list), last) => list[last.parse::<usize>().expect("an index")] = new.clone(),
            (Value::Object(map), last) => {
                map.insert(last, new.clone());
            }
            _ => panic!("{path} leads nowhere"),
        }
    }
    for path in value.get("$unset").and_then(Value::as_array).into_iter().flatten() {
        if let (Value::Object(map), last) = pointer_parent(&mut object, path.as_str().expect("a path")) {
            map.remove(&last);
        }
    }
    object
}

/// What both sides are compared by: all but what the registry and the allocators set.
fn comparable(mut object: Value, info: &KindInfo) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata.remove(key);
        }
    }
    if info.kind == "Service"
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        for key in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            spec.remove(key);
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().expect("a port").remove("nodePort");
        }
    }
    // Null and unset are one to every client; which of them stands there is the schema's business.
    strip_nulls(&mut object);
    object
}

fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

fn name_format(rule: NameRule) -> NameFormat {
    match rule {
        NameRule::Subdomain => NameFormat::Dns1123Subdomain,
        NameRule::SubdomainBytes => NameFormat::Dns1123SubdomainBytes,
        NameRule::Label => NameFormat::Dns1123Label,
        NameRule::Label1035 => NameFormat::Dns1035Label,
        NameRule::PathSegment => NameFormat::PathSegment,
        NameRule::Own => NameFormat::Custom(|_, _| Vec::new()),
    }
}

struct Player<'a> {
    entry: &'a Entry,
    case: &'a Map<String, Value>,
    bases: &'a [Value],
}

impl Player<'_> {
    fn field(&self, name: &str) -> Option<Value> {
        self.case.get(name).map(|v| unpack(v, self.bases))
    }

    fn text(&self, name: &str) -> &str {
        self.case.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn context(&self) -> RequestContext<'_> {
        let (subresource, group, version) = (self.text("subresource"), self.text("group"), self.text("version"));
        let user = Some(Requester { name: "admin", uid: "", groups: &*GROUPS, extra: Some(&EXTRA) });
        RequestContext { now: Timestamp::from_secs(NOW.as_secs() - 60), user, seed: 1, subresource, group, version, raw: None }
    }

    /// As a body comes in: decoded, defaulted, of the stored version.
    fn decode(&self, body: Value) -> Result<Value, String> {
        let info = self.entry.info();
        let schema = &catalog().kind(self.entry.group, self.entry.version, info.kind).expect("a built-in kind").schema;
        let mut value = decode_value(body, schema, FieldValidation::Ignore).map_err(|e| e.to_string())?.value;
        normalise(&mut value, schema);
        let kind = self.entry.kind().expect("a stored kind");
        match self.entry.other_version() {
            Some(other) => {
                (other.default)(&mut value);
                (other.to_stored)(&mut value);
            }
            None => kind.default(&mut value),
        }
        let metadata = value["metadata"].as_object_mut().expect("metadata");
        if info.scope == Scope::Namespaced {
            metadata.insert("namespace".to_owned(), self.text("namespace").into());
        }
        Ok(value)
    }

    fn served(&self, mut value: Value) -> Value {
        if let Some(other) = self.entry.other_version() {
            (other.from_stored)(&mut value);
        }
        value
    }

    fn create(&self) -> Result<(Value, ErrorList, Vec<String>), String> {
        let (info, kind) = (self.entry.info(), self.entry.kind().expect("a stored kind"));
        let mut value = self.decode(self.field("in").expect("a body"))?;
        value["metadata"]["creationTimestamp"] = CREATED.into();
        let uid = self.field("stored").and_then(|s| s["metadata"]["uid"].as_str().map(str::to_owned));
        value["metadata"]["uid"] = uid.unwrap_or_else(|| "uid-1".to_owned()).into();
        value["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
        if info.generation {
            value["metadata"]["generation"] = 1.into();
        } else {
            value["metadata"].as_object_mut().expect("metadata").remove("generation");
        }
        match info.kind {
            "Pod" => admit_pod(&mut value),
            "Node" => append(&mut value["spec"], "taints", json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})),
            "PersistentVolumeClaim" => append(&mut value["metadata"], "finalizers", json!("kubernetes.io/pvc-protection")),
            "PersistentVolume" => append(&mut value["metadata"], "finalizers", json!("kubernetes.io/pv-protection")),
            "VolumeAttributesClass" => append(&mut value["metadata"], "finalizers", json!("kubernetes.io/vac-protection")),
            _ => {}
        }
        let verdict = kind.prepare_create(&mut value, &self.context());
        let format = name_format(kind.name_rule());
        let mut errors = object_meta_create(&value["metadata"], info.scope == Scope::Namespaced, format, &Path::new("metadata"));
        errors.extend(verdict.errors);
        if info.kind == "Service" && errors.is_empty() {
            let mut service = serde_json::from_value(value.clone()).expect("a service");
            errors.extend(wheelhouse_kinds::core::service::families::assign(&mut service, &["IPv4"]));
            value = serde_json::to_value(service).expect("a service");
        }
        Ok((value, errors, verdict.warnings))
    }

    fn update(&self) -> Result<(Value, ErrorList, Vec<String>), String> {
        let (info, kind) = (self.entry.info(), self.entry.kind().expect("a stored kind"));
        let mut old = self.field("old").expect("an old object");
        if let Some(other) = self.entry.other_version() {
            (other.to_stored)(&mut old);
        }
        let mut new = self.decode(self.field("in").expect("a body"))?;
        for key in ["uid", "creationTimestamp", "generation", "deletionTimestamp"] {
            if let Some(value) = old["metadata"].get(key) {
                new["metadata"][key] = value.clone();
            }
        }
        let verdict = kind.prepare_update(&mut new, &old, &self.context());
        if info.generation && self.text("subresource") != "status" && kind.spec_changed(&new, &old) {
            new["metadata"]["generation"] = (old["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
        }
        let mut errors = object_meta_update(&new["metadata"], &old["metadata"], &Path::new("metadata"));
        errors.extend(verdict.errors);
        Ok((new, errors, verdict.warnings))
    }

    /// `Err` says what differs.
    fn play(&self) -> Result<(), String> {
        let info = self.entry.info();
        if self.text("subresource") == "scale" {
            return self.scale();
        }
        if let Some(cells) = self.case.get("cells") {
            return self.row(cells);
        }
        let (value, errors, warnings) = if self.case.contains_key("old") { self.update()? } else { self.create()? };
        let got = errors.aggregate();
        let expected = self.text("errors");
        if got != expected {
            return Err(format!("errors\n    expected {expected}\n    got      {got}"));
        }
        if let Some(stored) = self.field("stored") {
            let (got, expected) = (comparable(self.served(value), info), comparable(stored, info));
            if let Some(difference) = difference(&got, &expected, "") {
                return Err(difference);
            }
        }
        let recorded = self.case.get("warnings").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        // That a whole version is deprecated is said by the API server, whatever the request.
        let expected: Vec<&str> = recorded.filter(|w| !w.starts_with("v1 Endpoints is deprecated")).collect();
        let unescaped: Vec<String> = warnings.iter().map(|w| w.replace('\\', "\\\\").replace('"', "\\\"")).collect();
        if got.is_empty() && unescaped != expected {
            return Err(format!("warnings\n    expected {expected:?}\n    got      {warnings:?}"));
        }
        Ok(())
    }

    fn scale(&self) -> Result<(), String> {
        let mut object = self.field("old").or_else(|| self.field("in")).expect("an object");
        if let Some(expected) = self.case.get("cells") {
            let mut cells = scale::row(&scale::of(&object), NOW);
            cells[3] = "<age>".into();
            let got = Value::Array(cells);
            return if got == *expected { Ok(()) } else { Err(format!("cells\n    expected {expected}\n    got      {got}")) };
        }
        let errors = scale::write(&self.field("in").expect("a scale"), &mut object).aggregate();
        if errors != self.text("errors") {
            return Err(format!("errors\n    expected {}\n    got      {errors}", self.text("errors")));
        }
        let Some(stored) = self.field("stored") else { return Ok(()) };
        let info = self.entry.info();
        difference(&comparable(scale::of(&object), info), &comparable(stored, info), "").map_or(Ok(()), Err)
    }

    fn row(&self, expected: &Value) -> Result<(), String> {
        let kind = self.entry.kind().expect("a stored kind");
        if let Some(columns) = self.case.get("columns") {
            let got: Vec<Value> = kind.columns().iter().map(|c| json!([c.name, c.kind, c.format, c.priority])).collect();
            if Value::Array(got.clone()) != *columns {
                return Err(format!("columns\n    expected {columns}\n    got      {}", Value::Array(got)));
            }
        }
        let object = match self.case.get("made") {
            Some(Value::Bool(true)) => self
                .field("in")
                .map(|mut v| {
                    if let Some(other) = self.entry.other_version() {
                        (other.to_stored)(&mut v);
                    }
                    v
                })
                .expect("an object"),
            _ => self.create()?.0,
        };
        let mut cells = kind.row(&object, NOW);
        for (cell, expected) in cells.iter_mut().zip(expected.as_array().expect("cells")) {
            if matches!(expected.as_str(), Some("<age>" | "<time>")) {
                *cell = expected.clone();
            }
        }
        let got = Value::Array(cells);
        if got == *expected { Ok(()) } else { Err(format!("cells\n    expected {expected}\n    got      {got}")) }
    }
}

/// What an admission plugin of the recording adds to a list.
fn append(parent: &mut Value, list: &str, item: Value) {
    if parent.is_null() {
        *parent = json!({});
    }
    let list = &mut parent[list];
    if list.is_null() {
        *list = json!([]);
    }
    let list = list.as_array_mut().expect("a list");
    if !list.contains(&item) {
        list.push(item);
    }
}

/// What the admission plugins do to every pod of the recording.
fn admit_pod(pod: &mut Value) {
    let spec = pod["spec"].as_object_mut().expect("a spec");
    let named = spec.get("serviceAccountName").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
    if !named {
        spec.insert("serviceAccountName".into(), "default".into());
        spec.insert("serviceAccount".into(), "default".into());
    }
    if spec.get("automountServiceAccountToken") != Some(&json!(false)) {
        let volume = json!({"name": "kube-api-access-<random>", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}});
        let volumes = spec.entry("volumes").or_insert(json!([]));
        if volumes.is_null() {
            *volumes = json!([]);
        }
        volumes.as_array_mut().expect("volumes").push(volume);
        for list in ["initContainers", "containers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let mounts = container.as_object_mut().expect("a container").entry("volumeMounts").or_insert(json!([]));
                let mount =
                    json!({"name": "kube-api-access-<random>", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
                if mounts.is_null() {
                    *mounts = json!([]);
                }
                mounts.as_array_mut().expect("mounts").push(mount);
            }
        }
    }
    spec.entry("priority").or_insert(json!(0));
    spec.entry("preemptionPolicy").or_insert(json!("PreemptLowerPriority"));
    let tolerations = spec.entry("tolerations").or_insert(json!([]));
    if tolerations.is_null() {
        *tolerations = json!([]);
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        tolerations.as_array_mut().expect("tolerations").push(toleration);
    }
}

fn difference(got: &Value, expected: &Value, path: &str) -> Option<String> {
    match (got, expected) {
        (Value::Object(a), Value::Object(b)) => a
            .keys()
            .chain(b.keys())
            .find_map(|key| difference(a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"))),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| difference(a, b, &format!("{path}[{i}]")))
        }
        _ if got == expected => None,
        _ => Some(format!("{path}\n    expected {expected}\n    got      {got}")),
    }
}

#[test]
fn kinds_answer_as_recorded() {
    let registry = Registry::new(Profile::Tenant);
    let only = std::env::var("GOLDEN_ONLY").unwrap_or_default();
    let mut totals: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut failures = Vec::new();
    let mut needless: Vec<&str> = UNMET.iter().map(|u| u.0).collect();
    for kind in registry.kinds() {
        let path = folder(kind.info());
        let Ok(text) = std::fs::read_to_string(&path) else {
            failures.push(format!("{} has no test data at {}", kind.info().kind, path.display()));
            continue;
        };
        let document: Value = serde_json::from_str(&text).expect("test data is JSON");
        let bases: Vec<Value> = document["bases"].as_array().expect("bases").clone();
        for case in document["cases"].as_array().expect("cases") {
            let case = case.as_object().expect("a case");
            let id = case["case"].as_str().expect("an id");
            if !id.contains(&only) && kind.info().singular != only {
                continue;
            }
            let info = kind.info();
            let entry = registry.kind(case["group"].as_str().unwrap_or(""), case["version"].as_str().unwrap_or(""), info.kind);
            let Some(entry) = entry else {
                failures.push(format!("{id}: {} is not served in {}", info.kind, case["version"]));
                continue;
            };
            let result = Player { entry, case, bases: &bases }.play();
            let area = id.split('/').next().unwrap_or_default();
            let total = totals.entry(area.to_owned()).or_default();
            total.1 += 1;
            let unmet = UNMET.iter().any(|u| u.0 == id);
            match result {
                Ok(()) => total.0 += 1,
                Err(_) if unmet => needless.retain(|n| *n != id),
                Err(why) => failures.push(format!("{} {id}: {why}", info.kind)),
            }
        }
    }
    for (area, (passed, total)) in &totals {
        println!("{area}: {passed} of {total}");
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert!(!only.is_empty() || needless.is_empty(), "met after all: {needless:?}");
}
