//! The API's OpenAPI 3.1 document, from one table of operations. A test compares the table with the router.

use axum::Json;
use serde_json::{Map, Value, json};

/// One operation.
pub struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    pub id: &'static str,
    pub summary: &'static str,
    /// Schema of the request body, empty for none.
    request: &'static str,
    /// Status and schema of the answer when all is well; an empty schema for no body.
    answer: (u16, &'static str),
    /// Whether it needs an API key.
    pub authenticated: bool,
}

const fn operation(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    request: &'static str,
    answer: (u16, &'static str),
) -> Operation {
    Operation { method, path, id, summary, request, answer, authenticated: true }
}

const CLUSTER: &str = "/v1/clusters/{name}";
const KUBECONFIGS: &str = "/v1/clusters/{name}/kubeconfigs";
const KUBECONFIG: &str = "/v1/clusters/{name}/kubeconfigs/{id}";
const TOKENS: &str = "/v1/clusters/{name}/node-tokens";
const TOKEN: &str = "/v1/clusters/{name}/node-tokens/{id}";

/// Every operation for tenants.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        authenticated: false,
        ..operation("post", "/v1/tenants", "signUp", "Sign up; the answer holds the first API key", "SignUp", (201, "NewTenant"))
    },
    operation("get", "/v1/tenants/me", "getTenant", "The tenant of the API key", "", (200, "Tenant")),
    operation("delete", "/v1/tenants/me", "deleteTenant", "Delete the tenant and all its clusters", "", (202, "")),
    operation("post", "/v1/api-keys", "createApiKey", "Make an API key; its text is shown once", "ApiKeyRequest", (201, "NewApiKey")),
    operation("get", "/v1/api-keys", "listApiKeys", "List API keys", "", (200, "ApiKeyList")),
    operation("delete", "/v1/api-keys/{id}", "revokeApiKey", "Revoke an API key", "", (204, "")),
    operation("post", "/v1/clusters", "createCluster", "Ask for a cluster", "ClusterRequest", (202, "Cluster")),
    operation("get", "/v1/clusters", "listClusters", "List clusters", "", (200, "ClusterList")),
    operation("get", CLUSTER, "getCluster", "Read a cluster, or wait for its next change", "", (200, "Cluster")),
    operation("patch", CLUSTER, "updateCluster", "Change replicas, suspend or resume", "ClusterPatch", (200, "Cluster")),
    operation("delete", CLUSTER, "deleteCluster", "Delete a cluster and everything in it", "", (202, "")),
    operation("post", KUBECONFIGS, "createKubeconfig", "Issue a kubeconfig; it is shown once", "CredentialRequest", (201, "NewKubeconfig")),
    operation("get", KUBECONFIGS, "listKubeconfigs", "List a cluster's kubeconfigs", "", (200, "CredentialList")),
    operation("delete", KUBECONFIG, "revokeKubeconfig", "Revoke a kubeconfig", "", (204, "")),
    operation("post", TOKENS, "createNodeToken", "Make a token that nodes join with", "CredentialRequest", (201, "NewNodeToken")),
    operation("get", TOKENS, "listNodeTokens", "List a cluster's node tokens", "", (200, "CredentialList")),
    operation("delete", TOKEN, "revokeNodeToken", "Revoke a node token", "", (204, "")),
];

pub async fn document() -> Json<Value> {
    Json(render())
}

/// The whole document.
pub fn render() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = describe(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Wheelhouse tenant API", "version": "v1", "description": "Hosted Kubernetes control planes."},
        "paths": paths,
        "components": {
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer", "bearerFormat": "whk_<id>_<secret>"}},
            "schemas": schemas(),
        },
    })
}

fn describe(operation: &Operation) -> Value {
    let reference = |schema: &str| json!({"$ref": format!("#/components/schemas/{schema}")});
    let (status, schema) = operation.answer;
    let mut answer = json!({"description": operation.summary});
    if !schema.is_empty() {
        answer["content"] = json!({"application/json": {"schema": reference(schema)}});
    }
    let problem = json!({"description": "A problem", "content": {"application/problem+json": {"schema": reference("Problem")}}});
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters(operation),
        "responses": {status.to_string(): answer, "default": problem},
    });
    if !operation.request.is_empty() {
        described["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": reference(operation.request)}}});
    }
    if operation.authenticated {
        described["security"] = json!([{"apiKey": []}]);
    }
    described
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let names = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = names.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})).collect();
    let mut query = |name: &str, kind: &str, description: &str| {
        parameters.push(json!({"name": name, "in": "query", "description": description, "schema": {"type": kind}}));
    };
    if operation.method == "get" && operation.answer.1.ends_with("List") {
        query("limit", "integer", "Items of a page, 1 to 500");
        query("continue", "string", "Where the page before this one ended");
    }
    if operation.id == "getCluster" {
        query("after", "string", "Answer once the cluster has changed after this resourceVersion");
        query("timeoutSeconds", "integer", "How long to wait for that, at most 50");
    }
    if operation.id == "createCluster" {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 128},
            "description": "Repeating the request with the same key answers the cluster that it made",
        }));
    }
    parameters
}

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let time = json!({"type": "string", "format": "date-time"});
    let object = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "properties": properties});
    let list = |item: &str| {
        let items = json!({"type": "array", "items": {"$ref": format!("#/components/schemas/{item}")}});
        object(&["items"], json!({"items": items, "continue": {"type": "string"}}))
    };
    let network = object(&[], json!({"podCIDR": text, "serviceCIDR": text, "dns": text}));
    let condition = object(&["type", "status"], json!({"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": time}));
    let replicas = json!({"type": "integer", "enum": [3, 5]});
    let credential = json!({"id": text, "createdAt": time, "expiresAt": time, "description": text});
    let with = |extra: Value| {
        let mut properties = credential.clone();
        for (name, value) in extra.as_object().into_iter().flatten() {
            properties[name] = value.clone();
        }
        object(&["id"], properties)
    };
    let tenant = json!({"id": text, "name": text, "email": text, "quota": object(&[], json!({"clusters": number})), "suspended": {"type": "boolean"}, "createdAt": time});
    let mut new_tenant = tenant.clone();
    new_tenant["apiKey"] = object(&["id", "key"], json!({"id": text, "key": text}));
    let key = json!({"id": text, "description": text, "createdAt": time});
    let mut new_key = key.clone();
    new_key["key"] = text.clone();
    json!({
        "SignUp": object(&["name", "email"], json!({"name": text, "email": text, "invitation": text})),
        "Tenant": object(&["id"], tenant),
        "NewTenant": object(&["id", "apiKey"], new_tenant),
        "ApiKeyRequest": object(&[], json!({"description": text})),
        "ApiKey": object(&["id"], key),
        "NewApiKey": object(&["id", "key"], new_key),
        "ApiKeyList": list("ApiKey"),
        "ClusterRequest": object(&["name"], json!({"name": text, "replicas": replicas, "version": text, "network": network})),
        "ClusterPatch": object(&[], json!({"replicas": replicas, "suspended": {"type": "boolean"}})),
        "Cluster": object(&["name", "id", "state"], json!({
            "name": text, "id": text, "state": {"type": "string", "enum": ["Pending", "Ready", "Suspended", "Deleting"]},
            "replicas": number, "readyReplicas": number, "version": text, "network": network, "suspended": {"type": "boolean"},
            "endpoint": text, "serverName": text, "conditions": {"type": "array", "items": condition},
            "createdAt": time, "generation": number, "resourceVersion": text,
        })),
        "ClusterList": list("Cluster"),
        "CredentialRequest": object(&[], json!({"ttlSeconds": number, "description": text})),
        "Credential": with(json!({})),
        "CredentialList": list("Credential"),
        "NewKubeconfig": with(json!({"kubeconfig": text})),
        "NewNodeToken": with(json!({"token": text, "caCertHash": text, "joinCommand": text})),
        "Problem": object(&["type", "title", "status"], json!({
            "type": text, "title": text, "status": number, "detail": text,
            "errors": {"type": "array", "items": object(&["field", "message"], json!({"field": text, "message": text}))},
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_resolves() {
        let document = render();
        let text = document.to_string();
        let mut checked = 0;
        for part in text.split("\"#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
            checked += 1;
        }
        assert!(checked > OPERATIONS.len(), "each operation refers to its problem at least");
    }

    #[test]
    fn operations_are_told_apart() {
        let mut ids: Vec<_> = OPERATIONS.iter().map(|operation| operation.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), OPERATIONS.len());
    }

    #[test]
    fn the_router_serves_every_operation_and_no_other() {
        let source = include_str!("lib.rs");
        let routes = source.lines().filter(|line| line.contains(".route(\"/v1/"));
        let mut served = 0;
        for line in routes {
            let path = line.split('"').nth(1).unwrap_or_default();
            for method in ["get", "post", "patch", "delete", "put"] {
                if line.contains(&format!("{method}(")) {
                    served += 1;
                    assert!(OPERATIONS.iter().any(|o| o.path == path && o.method == method), "{method} {path} is not in the document");
                }
            }
        }
        assert_eq!(served, OPERATIONS.len());
    }
}
