//! Against documents that upstream 1.36 served, recorded without descriptions.

use super::*;
use crate::protobuf::wire::Reader;
use crate::types::{Field, ListKind, Scalar, Struct};

fn resource(group: &str, kind: &str, plural: &str) -> Resource {
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced: true,
        verbs: verbs.map(str::to_owned).to_vec(),
        subresources: Vec::new(),
        schema: None,
        props: None,
    }
}

fn subresource(of: &Resource, name: &str, verbs: &[&str]) -> Subresource {
    Subresource {
        name: name.to_owned(),
        group: of.group.clone(),
        version: of.version.clone(),
        kind: of.kind.clone(),
        verbs: verbs.iter().map(|v| v.to_string()).collect(),
    }
}

fn budget() -> Resource {
    let mut budget = resource("policy", "PodDisruptionBudget", "poddisruptionbudgets");
    budget.subresources = vec![subresource(&budget, "status", &["get", "patch", "update"])];
    budget
}

fn pod() -> Resource {
    let mut pod = resource("", "Pod", "pods");
    let mut exec = subresource(&pod, "exec", &[]);
    exec.kind = "PodExecOptions".to_owned();
    let mut eviction = subresource(&pod, "eviction", &["create"]);
    (eviction.group, eviction.kind) = ("policy".to_owned(), "Eviction".to_owned());
    pod.subresources = vec![exec, subresource(&pod, "log", &["get"]), eviction];
    pod
}

fn custom() -> Resource {
    let mut spec = Struct::new(vec![
        Field::verbatim("replicas", Schema::Scalar(Scalar::Int64)),
        Field::verbatim("tags", Schema::list(Schema::Scalar(Scalar::String), ListKind::Set, Vec::new())),
    ]);
    spec.preserve_unknown = true;
    let mut fields = crate::catalog().partial_object().as_struct().unwrap().fields.clone();
    fields.push(Field::verbatim("spec", spec.into()));
    let mut thing = resource("k.example.com", "Thing", "things");
    thing.schema = Some(Struct::new(fields).into());
    thing
}

fn parsed(document: &Document) -> Value {
    serde_json::from_slice(&document.json).unwrap()
}

fn without_descriptions(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.get("description").is_some_and(Value::is_string) {
                object.remove("description");
            }
            object.values_mut().for_each(without_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}

#[test]
fn documents_equal_upstreams() {
    let documents = Documents::new("v1.36.2", vec![resource("coordination.k8s.io", "Lease", "leases"), budget()]);
    for (path, recorded) in [
        ("apis/coordination.k8s.io/v1", include_str!("../../testdata/openapi-coordination-v1.json")),
        ("apis/policy/v1", include_str!("../../testdata/openapi-policy-v1.json")),
    ] {
        let recorded: Value = serde_json::from_str(recorded).unwrap();
        let mut ours = parsed(documents.v3(path).unwrap());
        without_descriptions(&mut ours);
        for part in ["paths", "components"] {
            for (name, wanted) in recorded[part].as_object().unwrap() {
                assert_eq!(&ours[part][name], wanted, "{path} {name}");
            }
        }
        assert_eq!(ours, recorded);
    }
}

#[test]
fn the_index_names_every_document_with_its_hash() {
    let documents = Documents::new("v1.36.2", vec![pod(), budget()]);
    let index = parsed(documents.index());
    let paths: Vec<&String> = index["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["api", "api/v1", "apis", "apis/policy", "apis/policy/v1"]);
    let address = index["paths"]["apis/policy/v1"]["serverRelativeURL"].as_str().unwrap();
    let hash = address.strip_prefix("/openapi/v3/apis/policy/v1?hash=").unwrap();
    assert_eq!(documents.v3("apis/policy/v1").unwrap().hash, hash);
    assert!(documents.v3("apis/nope/v1").is_none());

    let again = Documents::new("v1.36.2", vec![pod(), budget()]);
    assert_eq!(again.index().json, documents.index().json);
    let mut fewer = budget();
    fewer.verbs.pop();
    let other = Documents::new("v1.36.2", vec![pod(), fewer]);
    assert_ne!(other.v3_hash("apis/policy/v1"), Some(hash));
    assert_eq!(other.v3_hash("api/v1"), documents.v3_hash("api/v1"));
}

#[test]
fn clients_find_what_they_look_up() {
    let documents = Documents::new("v1.36.2", vec![pod()]);
    let document = parsed(documents.v3("api/v1").unwrap());
    let item = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"];
    let names: Vec<&str> = item["patch"]["parameters"].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert_eq!(item["patch"]["x-kubernetes-group-version-kind"]["kind"], "Pod");
    let pod = &document["components"]["schemas"]["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["x-kubernetes-group-version-kind"][0], json!({"group": "", "kind": "Pod", "version": "v1"}));
    let spec = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"];
    let containers = &spec["properties"]["containers"];
    assert!(containers["description"].as_str().unwrap().starts_with("List of containers"));
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    let paths = document["paths"].as_object().unwrap();
    let at = "/api/v1/namespaces/{namespace}/pods/{name}";
    assert_eq!(paths[&format!("{at}/exec")]["post"]["operationId"], "connectCoreV1PostNamespacedPodExec");
    assert_eq!(paths[&format!("{at}/eviction")]["post"]["x-kubernetes-group-version-kind"]["group"], "policy");
    assert!(paths[&format!("{at}/log")]["get"]["responses"]["200"]["content"]["text/plain"].is_object());
}

#[test]
fn every_reference_has_its_definition() {
    let documents = Documents::new("v1.36.2", vec![pod(), budget(), custom()]);
    let check = |document: &Value, prefix: &str, definitions: &Value| {
        let text = document.to_string();
        for part in text.split("\"$ref\":\"").skip(1) {
            let name = part.split('"').next().unwrap().strip_prefix(prefix).unwrap();
            assert!(definitions[name].is_object(), "{name}");
        }
    };
    for path in ["api", "apis", "api/v1", "apis/policy", "apis/policy/v1", "apis/k.example.com/v1"] {
        let document = parsed(documents.v3(path).unwrap());
        check(&document, "#/components/schemas/", &document["components"]["schemas"]);
    }
    let v2 = parsed(documents.v2());
    check(&v2, "#/definitions/", &v2["definitions"]);
    assert_eq!(v2["swagger"], "2.0");
    let names = v2["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]["x-kubernetes-group-version-kind"].as_array().unwrap();
    assert_eq!(names.len(), 3, "the core version and each group's");
}

#[test]
fn custom_kinds_are_described_from_their_schema() {
    let documents = Documents::new("v1.36.2", vec![custom()]);
    let document = parsed(documents.v3("apis/k.example.com/v1").unwrap());
    let thing = &document["components"]["schemas"]["com.example.k.v1.Thing"];
    assert_eq!(thing["x-kubernetes-group-version-kind"], json!([{"group": "k.example.com", "kind": "Thing", "version": "v1"}]));
    let spec = &thing["properties"]["spec"];
    assert_eq!(spec["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(spec["properties"]["tags"]["x-kubernetes-list-type"], "set");
    let list = &document["components"]["schemas"]["com.example.k.v1.ThingList"];
    assert_eq!(list["properties"]["items"]["items"]["$ref"], "#/components/schemas/com.example.k.v1.Thing");
    let patch = &document["paths"]["/apis/k.example.com/v1/namespaces/{namespace}/things/{name}"]["patch"];
    assert_eq!(patch["requestBody"]["content"].as_object().unwrap().len(), 3, "no strategic merge");
}

/// The text of field 1 of each message under `number` of `bytes`: the names in a map of gnostic's.
fn names(bytes: &[u8], number: u32) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((at, wire)) = reader.tag().unwrap() {
        match at == number {
            true => found.push(String::from_utf8(first(reader.bytes().unwrap(), 1).to_vec()).unwrap()),
            false => reader.skip(wire).unwrap(),
        }
    }
    found
}

/// The bytes of the first field with this number.
fn first(bytes: &[u8], number: u32) -> &[u8] {
    let mut reader = Reader::new(bytes);
    while let Some((at, wire)) = reader.tag().unwrap() {
        match at == number {
            true => return reader.bytes().unwrap(),
            false => reader.skip(wire).unwrap(),
        }
    }
    panic!("no field {number}");
}

#[test]
fn the_protobuf_form_has_every_path_and_definition() {
    let documents = Documents::new("v1.36.2", vec![budget(), custom()]);
    let v2 = parsed(documents.v2());
    let bytes = &documents.v2_protobuf().json;
    assert_eq!(first(bytes, 1), b"2.0");
    let keys = |part: &str| v2[part].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(first(bytes, 8), 2), keys("paths"));
    assert_eq!(names(first(bytes, 9), 1), keys("definitions"));
}
