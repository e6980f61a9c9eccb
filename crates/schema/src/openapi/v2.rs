//! The Swagger 2.0 document.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::definitions::{Definitions, Dialect};
use super::operations::{Answer, Body, Operation, Parameter, Path, common};
use super::paths::{self, group_words};
use super::v3::{discovery, lower_first, patch_types, reason};
use super::{Resource, group_version_path};

const OBJECT_TYPES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const WATCH_TYPES: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

pub(super) fn render(version: &str, resources: &[Resource]) -> Value {
    let group_versions: BTreeSet<(&str, &str)> = resources.iter().map(|r| (r.group.as_str(), r.version.as_str())).collect();
    let mut versions = vec![(String::new(), "v1".to_owned())];
    versions.extend(group_versions.iter().filter(|(group, _)| !group.is_empty()).map(|(g, v)| (g.to_string(), v.to_string())));
    let mut definitions = Definitions::new(Dialect::V2, resources, versions);
    let mut all = Map::new();
    let mut add = |path: Path, tag: &str, definitions: &mut Definitions<'_>| {
        all.insert(path.path.clone(), item(&path, tag, definitions));
    };
    add(discovery("/api/", "getCoreAPIVersions", "APIVersions"), "core", &mut definitions);
    add(discovery("/apis/", "getAPIVersions", "APIGroupList"), "apis", &mut definitions);
    for (group, version) in group_versions {
        let words = group_words(group);
        if !group.is_empty() {
            let path = discovery(&format!("/apis/{group}/"), &format!("get{words}APIGroup"), "APIGroup");
            add(path, &lower_first(&words), &mut definitions);
        }
        let tag = format!("{}_{version}", lower_first(&words));
        let id = format!("get{words}{}APIResources", paths::capitalised(version));
        add(discovery(&format!("/{}/", group_version_path(group, version)), &id, "APIResourceList"), &tag, &mut definitions);
        for resource in resources.iter().filter(|r| r.group == group && r.version == version) {
            paths::of_resource(resource).into_iter().for_each(|path| add(path, &tag, &mut definitions));
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": all,
        "definitions": definitions.finish(),
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication"}},
        "security": [{"BearerToken": []}],
    })
}

fn item(path: &Path, tag: &str, definitions: &mut Definitions<'_>) -> Value {
    let shared = common(&path.operations);
    let mut out = Map::new();
    if !shared.is_empty() {
        out.insert("parameters".to_owned(), shared.iter().map(parameter).collect());
    }
    for operation in &path.operations {
        out.insert(operation.method.to_owned(), write(operation, &shared, tag, definitions));
    }
    Value::Object(out)
}

fn write(operation: &Operation, shared: &[Parameter], tag: &str, definitions: &mut Definitions<'_>) -> Value {
    let (schema, produces): (Value, Vec<&str>) = match &operation.answer {
        Answer::Object(definition) => (definitions.refer(definition), OBJECT_TYPES.to_vec()),
        Answer::Watchable(definition) => (definitions.refer(definition), OBJECT_TYPES.into_iter().chain(WATCH_TYPES).collect()),
        Answer::Text => (json!({"type": "string"}), ["text/plain"].into_iter().chain(OBJECT_TYPES).collect()),
        Answer::Stream => (json!({"type": "string"}), vec!["*/*"]),
    };
    let responses: Map<String, Value> = operation
        .codes
        .iter()
        .map(|code| {
            let mut response = json!({ "description": reason(*code) });
            if *code != 401 {
                response["schema"] = schema.clone();
            }
            (code.to_string(), response)
        })
        .collect();
    let mut own: Vec<&Parameter> = operation.parameters.iter().filter(|p| !shared.contains(p)).collect();
    own.sort();
    let mut parameters: Vec<Value> = own.into_iter().map(parameter).collect();
    let mut consumes = vec!["*/*"];
    match &operation.body {
        Some(Body::Object { definition, required }) => {
            let mut body = json!({"name": "body", "in": "body", "schema": definitions.refer(definition)});
            if *required {
                body["required"] = true.into();
            }
            parameters.insert(0, body);
        }
        Some(Body::Patch { strategic }) => {
            consumes = patch_types(*strategic);
            let patch = definitions.refer("io.k8s.apimachinery.pkg.apis.meta.v1.Patch");
            parameters.insert(0, json!({"name": "body", "in": "body", "required": true, "schema": patch}));
        }
        None => {}
    }
    let mut out = json!({
        "tags": [tag],
        "operationId": operation.id,
        "schemes": ["https"],
        "consumes": consumes,
        "produces": produces,
        "responses": responses,
    });
    if !parameters.is_empty() {
        out["parameters"] = parameters.into();
    }
    if let Some(action) = operation.action {
        out["x-kubernetes-action"] = action.into();
    }
    if let Some((group, version, kind)) = &operation.target {
        out["x-kubernetes-group-version-kind"] = json!({"group": group, "version": version, "kind": kind});
    }
    out
}

fn parameter(parameter: &Parameter) -> Value {
    let mut out = json!({
        "name": parameter.name,
        "in": parameter.place,
        "type": parameter.kind,
        "uniqueItems": true,
    });
    if parameter.place == "path" {
        out["required"] = true.into();
    }
    out
}
