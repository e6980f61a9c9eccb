//! `authorization.k8s.io/v1`: may somebody do something, and what may I do?

use serde_json::{Map, Value, json};
use wheelhouse_meta::Status;
use wheelhouse_meta::field::{BadValue, ErrorList, FieldError, Path};
use wheelhouse_meta::gotext;
use wheelhouse_meta::gvk::GroupKind;

use crate::attributes::{Attributes, Decision, FieldRequirement, Target};
use crate::field_selector;
use crate::lookups::Answer;
use crate::rbac::policy::aggregate;
use crate::rbac::{Rule, RulesFor};
use crate::user::User;

/// The three reviews that ask one question; they differ in who asks about whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessReview<'a> {
    /// About anybody.
    Subject,
    /// About anybody, inside the path's namespace.
    Local { namespace: &'a str },
    /// About the caller.
    SelfSubject { caller: &'a User },
}

/// Answers a SubjectAccessReview, LocalSubjectAccessReview or SelfSubjectAccessReview: the body with its `status`.
pub fn access(review: AccessReview<'_>, mut body: Value, authorize: &dyn Fn(&Attributes<'_>) -> Decision) -> Answer<Value> {
    let errors = validate(review, &body);
    if !errors.is_empty() {
        // Upstream's kind is empty here.
        return Err(Box::new(Status::invalid(&GroupKind::new("authorization.k8s.io", ""), "", &errors)));
    }
    if let AccessReview::Local { namespace } = review
        && namespace != body["metadata"]["namespace"].as_str().unwrap_or_default()
    {
        return Err(Box::new(Status::bad_request(format!("spec.resourceAttributes.namespace must match namespace: {namespace}"))));
    }
    let user = match review {
        AccessReview::SelfSubject { caller } => caller.clone(),
        AccessReview::Subject | AccessReview::Local { .. } => user_of(&body["spec"]),
    };
    let decision = decide(&body["spec"], &user, authorize);
    let mut status = json!({"allowed": decision.allowed()});
    if !decision.reason().is_empty() {
        status["reason"] = decision.reason().into();
    }
    drop_empty(&mut body["spec"]);
    body["status"] = status;
    Ok(body)
}

fn decide(spec: &Value, user: &User, authorize: &dyn Fn(&Attributes<'_>) -> Decision) -> Decision {
    let text = |attributes: &Value, key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
    let resource = &spec["resourceAttributes"];
    if !resource.is_object() {
        let path = &spec["nonResourceAttributes"];
        let (path, verb) = (text(path, "path"), text(path, "verb"));
        return authorize(&Attributes::new(user, &verb, Target::Path(&path)));
    }
    let [verb, group, version, kind, subresource, namespace, name] =
        ["verb", "group", "version", "resource", "subresource", "namespace", "name"].map(|key| text(resource, key));
    let target =
        Target::Resource { group: &group, version: &version, resource: &kind, subresource: &subresource, namespace: &namespace, name: &name };
    let field_selector = requirements(&resource["fieldSelector"]);
    authorize(&Attributes { field_selector: &field_selector, ..Attributes::new(user, &verb, target) })
}

/// The requirements that have the form of a field selector's. Others do not narrow the request, so ignoring them allows nothing more.
fn requirements(selector: &Value) -> Vec<FieldRequirement> {
    if let Some(raw) = selector["rawSelector"].as_str() {
        return field_selector::parse(raw);
    }
    let one = |r: &Value| {
        let negated = match r["operator"].as_str()? {
            "In" => false,
            "NotIn" => true,
            _ => return None,
        };
        let [value] = r["values"].as_array()?.as_slice() else { return None };
        Some(FieldRequirement { field: r["key"].as_str()?.to_owned(), negated, value: value.as_str()?.to_owned() })
    };
    selector["requirements"].as_array().into_iter().flatten().filter_map(one).collect()
}

fn user_of(spec: &Value) -> User {
    let strings = |v: &Value| -> Vec<String> { v.as_array().into_iter().flatten().filter_map(|s| s.as_str().map(str::to_owned)).collect() };
    User {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: strings(&spec["groups"]),
        extra: spec["extra"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), strings(v))).collect(),
    }
}

fn validate(review: AccessReview<'_>, body: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = &body["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() && other.is_object() {
        errors.push(FieldError::invalid(
            &path.child("nonResourceAttributes"),
            non_resource(other),
            "cannot be specified in combination with resourceAttributes",
        ));
    }
    if !resource.is_object() && !other.is_object() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid(&path.child("resourceAttributes"), BadValue::Text("null".into()), detail));
    }
    if !matches!(review, AccessReview::SelfSubject { .. }) && is_empty(&spec["user"]) && is_empty(&spec["groups"]) {
        errors.push(FieldError::invalid(&path.child("user"), "", "at least one of user or group must be specified"));
    }
    let attributes = path.child("resourceAttributes");
    for key in ["fieldSelector", "labelSelector"] {
        validate_selector(&resource[key], &attributes.child(key), &mut errors);
    }
    validate_metadata(review, body, &mut errors);
    if matches!(review, AccessReview::Local { .. }) {
        let namespace = body["metadata"]["namespace"].as_str().unwrap_or_default();
        if resource.is_object() && resource["namespace"].as_str().unwrap_or_default() != namespace {
            let found = resource["namespace"].as_str().unwrap_or_default();
            errors.push(FieldError::invalid(&Path::new("spec.resourceAttributes.namespace"), found, "must match metadata.namespace"));
        }
        if other.is_object() {
            errors.push(FieldError::invalid(&Path::new("spec.nonResourceAttributes"), non_resource(other), "disallowed on this kind of request"));
        }
    }
    errors
}

/// As Go encodes the internal struct, which has no JSON names.
fn non_resource(attributes: &Value) -> BadValue {
    let text = |key: &str| gotext::json(&Value::from(attributes[key].as_str().unwrap_or_default()));
    BadValue::Text(format!("{{\"Path\":{},\"Verb\":{}}}", text("path"), text("verb")))
}

fn validate_metadata(review: AccessReview<'_>, body: &Value, errors: &mut ErrorList) {
    let mut metadata = body["metadata"].as_object().cloned().unwrap_or_default();
    metadata.remove("managedFields");
    let detail = match review {
        AccessReview::Local { .. } => {
            metadata.remove("namespace");
            "must be empty except for namespace"
        }
        AccessReview::Subject | AccessReview::SelfSubject { .. } => "must be empty",
    };
    metadata.retain(|_, value| !is_empty(value));
    if !metadata.is_empty() {
        errors.push(FieldError::invalid(&Path::new("metadata"), BadValue::Text(gotext::json(&Value::Object(metadata))), detail));
    }
}

fn validate_selector(selector: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    if !selector.is_object() {
        return;
    }
    let (raw, requirements) =
        (selector["rawSelector"].as_str().unwrap_or_default(), selector["requirements"].as_array().map_or(&[][..], Vec::as_slice));
    if !raw.is_empty() && !requirements.is_empty() {
        errors.push(FieldError::invalid(&path.child("rawSelector"), raw, "may not specified at the same time as requirements"));
    }
    if raw.is_empty() && requirements.is_empty() {
        errors.push(FieldError::required(&path.child("requirements"), format!("when {path} is specified, requirements or rawSelector is required")));
    }
    let list = path.child("requirements");
    for (i, requirement) in requirements.iter().enumerate() {
        let at = list.index(i);
        let values = requirement["values"].as_array().map_or(0, Vec::len);
        match requirement["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if values == 0 => {
                errors.push(FieldError::required(&at.child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                errors.push(FieldError::forbidden(&at.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            _ => {}
        }
        if is_empty(&requirement["key"]) {
            errors.push(FieldError::required(&at.child("key"), "must be specified"));
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Empty strings are not sent back, as Go leaves them out.
fn drop_empty(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.values_mut().for_each(drop_empty);
        map.retain(|_, v| !matches!(v, Value::String(s) if s.is_empty()) && !v.is_null());
    }
}

/// Answers a SelfSubjectRulesReview. `rules_for` gives the caller's rules in a namespace.
pub fn rules(body: &Value, rules_for: &dyn Fn(&str) -> RulesFor) -> Answer<Value> {
    let namespace = body["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Box::new(Status::bad_request("no namespace on request")));
    }
    let found = rules_for(namespace);
    let resource: Vec<Value> = found.rules.iter().filter(|r| !r.resources.is_empty()).map(resource_rule).collect();
    let paths = found.rules.iter().filter(|r| !r.non_resource_urls.is_empty());
    let paths: Vec<Value> = paths.map(|r| json!({"verbs": r.verbs, "nonResourceURLs": r.non_resource_urls})).collect();
    let mut status = json!({"resourceRules": resource, "nonResourceRules": paths, "incomplete": !found.errors.is_empty()});
    if !found.errors.is_empty() {
        status["evaluationError"] = aggregate(&found.errors).into();
    }
    Ok(json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {}, "status": status}))
}

fn resource_rule(rule: &Rule) -> Value {
    let mut out = Map::new();
    out.insert("verbs".into(), json!(rule.verbs));
    for (key, list) in [("apiGroups", &rule.api_groups), ("resources", &rule.resources), ("resourceNames", &rule.resource_names)] {
        if !list.is_empty() {
            out.insert(key.into(), json!(list));
        }
    }
    Value::Object(out)
}
