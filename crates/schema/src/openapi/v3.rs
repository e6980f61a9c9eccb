//! OpenAPI 3.0 documents.

use serde_json::{Map, Value, json};

use super::definitions::{Definitions, Dialect};
use super::operations::{Answer, Body, Operation, Parameter, Path, common};
use super::paths::{self, group_words};
use super::{Content, Resource, group_version_path};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const OBJECT_TYPES: [&str; 3] = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];
const CUSTOM_TYPES: [&str; 2] = ["application/json", "application/yaml"];
const WATCH_TYPES: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

pub(super) fn render(version: &str, resources: &[Resource], content: &Content) -> Value {
    let (paths, tag) = described(resources, content);
    let mut versions = vec![(String::new(), "v1".to_owned())];
    if let Content::GroupVersion { group, version } = content
        && !group.is_empty()
    {
        versions.push((group.clone(), version.clone()));
    }
    let mut definitions = Definitions::new(Dialect::V3, resources, versions);
    let custom = matches!(content, Content::GroupVersion { group, version } if here(resources, group, version).any(Resource::is_custom));
    let paths: Map<String, Value> = paths.into_iter().map(|p| (p.path.clone(), item(&p, &tag, custom, &mut definitions))).collect();
    if custom {
        return json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
            "paths": paths,
            "components": {"schemas": definitions.finish()},
        });
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": paths,
        "components": {
            "schemas": definitions.finish(),
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication"}},
        },
    })
}

/// A document's paths and the tag of its operations.
fn described(resources: &[Resource], content: &Content) -> (Vec<Path>, String) {
    match content {
        Content::CoreVersions => (vec![discovery("/api/", "getCoreAPIVersions", "APIVersions")], "core".to_owned()),
        Content::Groups => (vec![discovery("/apis/", "getAPIVersions", "APIGroupList")], "apis".to_owned()),
        Content::Group(group) => {
            let words = group_words(group);
            let path = discovery(&format!("/apis/{group}/"), &format!("get{words}APIGroup"), "APIGroup");
            (vec![path], lower_first(&words))
        }
        Content::GroupVersion { group, version } => {
            let words = group_words(group);
            let id = format!("get{words}{}APIResources", paths::capitalised(version));
            let root = format!("/{}/", group_version_path(group, version));
            let mut all = Vec::new();
            if !here(resources, group, version).any(Resource::is_custom) {
                all.push(discovery(&root, &id, "APIResourceList"));
            }
            all.extend(here(resources, group, version).flat_map(paths::of_resource));
            (all, format!("{}_{version}", lower_first(&words)))
        }
    }
}

fn here<'a>(resources: &'a [Resource], group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Resource> {
    resources.iter().filter(move |r| r.group == group && r.version == version)
}

pub(super) fn discovery(path: &str, id: &str, kind: &str) -> Path {
    let operation = Operation {
        method: "get",
        id: id.to_owned(),
        action: None,
        target: None,
        parameters: Vec::new(),
        body: None,
        codes: &[200, 401],
        answer: Answer::Object(format!("{META}.{kind}")),
    };
    Path { path: path.to_owned(), operations: vec![operation] }
}

pub(super) fn lower_first(words: &str) -> String {
    let mut characters = words.chars();
    match characters.next() {
        Some(first) => first.to_lowercase().chain(characters).collect(),
        None => String::new(),
    }
}

fn item(path: &Path, tag: &str, custom: bool, definitions: &mut Definitions<'_>) -> Value {
    let shared = common(&path.operations);
    let mut out = Map::new();
    if !shared.is_empty() {
        out.insert("parameters".to_owned(), shared.iter().map(parameter).collect());
    }
    for operation in &path.operations {
        out.insert(operation.method.to_owned(), write(operation, &shared, tag, custom, definitions));
    }
    Value::Object(out)
}

fn write(operation: &Operation, shared: &[Parameter], tag: &str, custom: bool, definitions: &mut Definitions<'_>) -> Value {
    let mut out = Map::new();
    out.insert("tags".to_owned(), json!([tag]));
    out.insert("operationId".to_owned(), operation.id.as_str().into());
    let mut own: Vec<&Parameter> = operation.parameters.iter().filter(|p| !shared.contains(p)).collect();
    own.sort();
    if !own.is_empty() {
        out.insert("parameters".to_owned(), own.into_iter().map(parameter).collect());
    }
    if let Some(body) = &operation.body {
        out.insert("requestBody".to_owned(), request_body(body, custom, definitions));
    }
    let responses = operation.codes.iter().map(|code| (code.to_string(), response(*code, &operation.answer, custom, definitions)));
    out.insert("responses".to_owned(), Value::Object(responses.collect()));
    if let Some(action) = operation.action {
        out.insert("x-kubernetes-action".to_owned(), action.into());
    }
    if let Some((group, version, kind)) = &operation.target {
        let target = json!({"group": group, "version": version, "kind": kind});
        out.insert("x-kubernetes-group-version-kind".to_owned(), target);
    }
    Value::Object(out)
}

fn parameter(parameter: &Parameter) -> Value {
    let mut out = json!({
        "name": parameter.name,
        "in": parameter.place,
        "schema": {"type": parameter.kind, "uniqueItems": true},
    });
    if parameter.place == "path" {
        out["required"] = true.into();
    }
    out
}

fn request_body(body: &Body, custom: bool, definitions: &mut Definitions<'_>) -> Value {
    match body {
        Body::Object { definition, required } => {
            let schema = definitions.refer(definition);
            let mut out = if custom {
                json!({"content": {"application/json": {"schema": schema}, "application/yaml": {"schema": schema}}})
            } else {
                json!({"content": {"*/*": {"schema": schema}}})
            };
            if *required {
                out["required"] = true.into();
            }
            out
        }
        Body::Patch { strategic } => {
            let patch = definitions.refer(&format!("{META}.Patch"));
            let content: Map<String, Value> =
                patch_types(*strategic).into_iter().map(|media| (media.to_owned(), json!({ "schema": patch }))).collect();
            json!({"content": content, "required": true})
        }
    }
}

pub(super) fn patch_types(strategic: bool) -> Vec<&'static str> {
    let mut types = vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
    if strategic {
        types.push("application/strategic-merge-patch+json");
    }
    types
}

pub(super) fn reason(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        _ => "Unauthorized",
    }
}

fn response(code: u16, answer: &Answer, custom: bool, definitions: &mut Definitions<'_>) -> Value {
    let mut out = json!({ "description": reason(code) });
    if code == 401 {
        return out;
    }
    let text = json!({"type": "string"});
    let (schema, types) = match answer {
        Answer::Object(definition) | Answer::Watchable(definition) if custom => (definitions.refer(definition), CUSTOM_TYPES.to_vec()),
        Answer::Object(definition) => (definitions.refer(definition), OBJECT_TYPES.to_vec()),
        Answer::Watchable(definition) => (definitions.refer(definition), OBJECT_TYPES.into_iter().chain(WATCH_TYPES).collect()),
        Answer::Text => (text, OBJECT_TYPES.into_iter().chain(["text/plain"]).collect()),
        Answer::Stream => (text, vec!["*/*"]),
    };
    let content: Map<String, Value> = types.into_iter().map(|media| (media.to_owned(), json!({ "schema": schema }))).collect();
    out["content"] = content.into();
    out
}
