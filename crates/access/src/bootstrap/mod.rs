//! The roles and bindings that every cluster starts with, and how they are kept.
//!
//! ```text
//! policy.json --objects--> what should be        existing objects --plan--> creates, updates, replacements
//! ```
//!
//! The objects are upstream's of 1.36, as a server of that version lists them, and one role of our own (`own.json`): a node's network parts act as the
//! node, and read what upstream's read as `kube-proxy` and as the network plugin's service account. It lets nodes read all pods, as every plugin
//! with network policies must: peers are found by the labels and addresses of pods anywhere. A cluster's administrator may add to them: a start only
//! adds rules and subjects that are missing and never takes any away, and an object annotated
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` is left alone.

pub mod aggregation;

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::lookups::Lookups;
use crate::rbac::policy::{GROUP, PolicyKind};
use crate::rbac::rule::{Rule, uncovered};

const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// One object of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyObject {
    pub kind: PolicyKind,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
    /// The whole object, with apiVersion, kind and metadata.
    pub body: Value,
}

/// What has to be done to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Create,
    /// The stored object with what it lacked; it carries the stored resource version.
    Update,
    /// A binding to another role: a role reference never changes, so the old object is deleted first.
    Replace,
}

/// One step of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub change: Change,
    pub object: PolicyObject,
}

/// Everything a new cluster gets, cluster-scoped objects first. Shared by all clusters of the process.
pub fn objects() -> &'static [PolicyObject] {
    static OBJECTS: LazyLock<Vec<PolicyObject>> = LazyLock::new(|| {
        let parse = |text| serde_json::from_str::<Vec<Map<String, Value>>>(text).expect("the policy is part of the program and is read in a test");
        [include_str!("policy.json"), include_str!("own.json")].into_iter().flat_map(parse).map(read).collect()
    });
    &OBJECTS
}

/// Names of the namespaces that the policy's objects live in; they must exist before.
pub const NAMESPACES: [&str; 2] = ["kube-public", "kube-system"];

fn read(mut entry: Map<String, Value>) -> PolicyObject {
    let mut take = |key: &str| entry.remove(key).unwrap_or_default();
    let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
    let (kind_name, namespace, name, labels) = (text(take("kind")), text(take("namespace")), text(take("name")), take("labels"));
    let kind = match kind_name.as_str() {
        "ClusterRole" => PolicyKind::ClusterRole,
        "Role" => PolicyKind::Role,
        "ClusterRoleBinding" => PolicyKind::ClusterRoleBinding,
        _ => PolicyKind::RoleBinding,
    };
    let mut metadata = json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}, "annotations": {AUTOUPDATE: "true"}});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.clone().into();
    }
    for (key, value) in labels.as_object().into_iter().flatten() {
        metadata["labels"][key] = value.clone();
    }
    let mut body = json!({"apiVersion": API_VERSION, "kind": kind_name, "metadata": metadata});
    for (key, value) in entry {
        body[&key] = value;
    }
    PolicyObject { kind, namespace, name, body }
}

/// What a start has to do, given what is stored.
pub fn plan(stored: &dyn Lookups) -> Vec<Operation> {
    objects().iter().filter_map(|wanted| plan_one(wanted, stored.get(GROUP, wanted.kind.resource(), &wanted.namespace, &wanted.name))).collect()
}

fn plan_one(wanted: &PolicyObject, stored: Option<Value>) -> Option<Operation> {
    let operation = |change, body| Some(Operation { change, object: PolicyObject { body, ..wanted.clone() } });
    let Some(stored) = stored else { return operation(Change::Create, wanted.body.clone()) };
    if stored["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return None;
    }
    let mut merged = stored.clone();
    for part in ["labels", "annotations"] {
        add_missing_keys(&mut merged["metadata"], part, &wanted.body["metadata"][part]);
    }
    match wanted.kind {
        PolicyKind::Role | PolicyKind::ClusterRole => add_missing_rules(&mut merged, &wanted.body),
        PolicyKind::RoleBinding | PolicyKind::ClusterRoleBinding => {
            if merged["roleRef"] != wanted.body["roleRef"] {
                let mut body = wanted.body.clone();
                body["metadata"]["labels"] = merged["metadata"]["labels"].clone();
                body["metadata"]["annotations"] = merged["metadata"]["annotations"].clone();
                return operation(Change::Replace, body);
            }
            add_missing_items(&mut merged, "subjects", &wanted.body["subjects"]);
        }
    }
    if merged == stored { None } else { operation(Change::Update, merged) }
}

fn add_missing_keys(metadata: &mut Value, part: &str, wanted: &Value) {
    for (key, value) in wanted.as_object().into_iter().flatten() {
        if metadata[part][key].is_null() {
            metadata[part][key] = value.clone();
        }
    }
}

fn add_missing_items(object: &mut Value, key: &str, wanted: &Value) {
    for item in wanted.as_array().into_iter().flatten() {
        if !object[key].is_array() {
            object[key] = json!([]);
        }
        if let Some(list) = object[key].as_array_mut()
            && !list.contains(item)
        {
            list.push(item.clone());
        }
    }
}

fn add_missing_rules(merged: &mut Value, wanted: &Value) {
    if wanted["aggregationRule"].is_object() {
        // The rules of an aggregated role are its controller's.
        if !merged["aggregationRule"].is_object() {
            merged["aggregationRule"] = wanted["aggregationRule"].clone();
        } else {
            add_missing_items(&mut merged["aggregationRule"], "clusterRoleSelectors", &wanted["aggregationRule"]["clusterRoleSelectors"]);
        }
        return;
    }
    let missing = uncovered(&rules_of(merged), &rules_of(wanted));
    if missing.is_empty() {
        return;
    }
    if !merged["rules"].is_array() {
        merged["rules"] = json!([]);
    }
    if let Some(rules) = merged["rules"].as_array_mut() {
        rules.extend(missing.iter().map(|rule| json!(rule)));
    }
}

pub(crate) fn rules_of(role: &Value) -> Vec<Rule> {
    Option::<Vec<Rule>>::deserialize(&role["rules"]).ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests;
