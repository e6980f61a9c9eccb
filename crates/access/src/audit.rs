//! Audit events at level Metadata: who asked for what, when, and what came of it.
//!
//! An event never holds a body, so a Secret's data or a token in an answer cannot get into the log; credentials that a client put into the
//! query are masked.

use std::collections::BTreeMap;

use serde::Serialize;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::Status;

use crate::attributes::{Attributes, Decision, Target};
use crate::time::rfc3339_micro;
use crate::user::User;

/// Query parameters whose values are credentials.
const SECRET_PARAMETERS: [&str; 2] = ["token", "access_token"];

/// Paths that clients and load balancers read all the time and that say nothing about who did what.
const QUIET_PATHS: [&str; 6] = ["/healthz", "/livez", "/readyz", "/version", "/openapi", "/api"];

/// Whether a request gets an event. All do but two kinds: reads of health and discovery, and reads by the control plane itself, which would
/// outnumber everything else.
pub fn is_recorded(attributes: &Attributes<'_>, in_process: bool) -> bool {
    let reads = matches!(attributes.verb, "get" | "list" | "watch" | "head");
    match attributes.target {
        Target::Resource { .. } => !(in_process && reads),
        Target::Path(path) => !(reads && QUIET_PATHS.iter().any(|quiet| path.starts_with(quiet))),
    }
}

/// When in the life of a request an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// The headers of a long-running answer (a watch) were sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

/// What is known of a request when its event is written.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The request's audit id, also sent in the `Audit-ID` header.
    pub id: &'a str,
    pub stage: Stage,
    /// Path and query, as sent.
    pub uri: &'a str,
    /// Verb and target as authorized; their user is the authenticated one, before impersonation.
    pub attributes: &'a Attributes<'a>,
    pub impersonated: Option<&'a User>,
    /// Empty if the impersonation was not constrained.
    pub impersonation_constraint: &'a str,
    /// Client first, then the proxies it came through.
    pub source_ips: &'a [String],
    pub user_agent: &'a str,
    pub code: u16,
    /// The answer, if it was a failure.
    pub failure: Option<&'a Status>,
    /// `None` before authorization (401).
    pub decision: Option<&'a Decision>,
    pub received: Timestamp,
    pub now: Timestamp,
    /// Further notes, e.g. of admission.
    pub annotations: BTreeMap<String, String>,
}

/// `audit.k8s.io/v1 Event`, in upstream's field order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<User>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectReference>,
    response_status: ResponseStatus,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct AuthenticationMetadata {
    impersonation_constraint: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference {
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct ResponseStatus {
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    code: u16,
}

impl Event {
    pub fn new(record: Record<'_>) -> Self {
        let mut annotations = record.annotations;
        if let Some(decision) = record.decision {
            let word = if decision.allowed() { "allow" } else { "forbid" };
            annotations.insert("authorization.k8s.io/decision".into(), word.into());
            annotations.insert("authorization.k8s.io/reason".into(), decision.reason().into());
        }
        let constraint = record.impersonation_constraint;
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: record.id.to_owned(),
            stage: record.stage,
            request_uri: mask(record.uri),
            verb: record.attributes.verb.to_owned(),
            user: record.attributes.user.clone(),
            impersonated_user: record.impersonated.cloned(),
            authentication_metadata: (!constraint.is_empty()).then(|| AuthenticationMetadata { impersonation_constraint: constraint.to_owned() }),
            source_ips: record.source_ips.to_vec(),
            user_agent: record.user_agent.to_owned(),
            object_ref: object(record.attributes),
            response_status: response(record.code, record.failure),
            request_received_timestamp: rfc3339_micro(record.received),
            stage_timestamp: rfc3339_micro(record.now),
            annotations,
        }
    }

    /// One line of the log, with its line feed.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("an event has only string keys and plain values");
        line.push(b'\n');
        line
    }
}

fn object(attributes: &Attributes<'_>) -> Option<ObjectReference> {
    let Target::Resource { group, version, resource, subresource, namespace, name } = attributes.target else { return None };
    Some(ObjectReference {
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        api_group: group.to_owned(),
        api_version: version.to_owned(),
        subresource: subresource.to_owned(),
    })
}

fn response(code: u16, failure: Option<&Status>) -> ResponseStatus {
    let Some(status) = failure else { return ResponseStatus { code, ..ResponseStatus::default() } };
    ResponseStatus { metadata: BTreeMap::new(), status: status.status.clone(), message: status.message.clone(), reason: status.reason.clone(), code }
}

/// The URI without the values of parameters that are credentials.
fn mask(uri: &str) -> String {
    let Some((path, query)) = uri.split_once('?') else { return uri.to_owned() };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if SECRET_PARAMETERS.contains(&key) => format!("{key}=[elided]"),
        _ => pair.to_owned(),
    });
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_noise_is_left_out() {
        let user = User::default();
        let pods = || Target::Resource { group: "", version: "v1", resource: "pods", subresource: "", namespace: "", name: "" };
        let rows = [
            ("list", pods(), false, true),
            ("list", pods(), true, false),
            ("create", pods(), true, true),
            ("get", Target::Path("/readyz/etcd"), false, false),
            ("get", Target::Path("/apis"), false, false),
            ("get", Target::Path("/metrics"), false, true),
            ("post", Target::Path("/healthz"), false, true),
        ];
        for (verb, target, in_process, expected) in rows {
            assert_eq!(is_recorded(&Attributes::new(&user, verb, target.clone()), in_process), expected, "{verb} {target:?}");
        }
    }

    #[test]
    fn events_have_upstreams_shape() {
        let user = User { name: "jane".into(), groups: vec!["dev".into()], ..User::default() };
        let target = Target::Resource { group: "apps", version: "v1", resource: "deployments", subresource: "scale", namespace: "ns", name: "web" };
        let attributes = Attributes::new(&user, "update", target);
        let status = Status::forbidden(&wheelhouse_meta::GroupResource::new("apps", "deployments"), "web", "no");
        let event = Event::new(Record {
            id: "11111111-1111-1111-1111-111111111111",
            stage: Stage::ResponseComplete,
            uri: "/apis/apps/v1/namespaces/ns/deployments/web/scale?token=abc&x=1",
            attributes: &attributes,
            impersonated: None,
            impersonation_constraint: "",
            source_ips: &["10.0.0.1".to_owned()],
            user_agent: "kubectl",
            code: 403,
            failure: Some(&status),
            decision: Some(&Decision::NoOpinion { reason: String::new() }),
            received: Timestamp::from_secs(1_767_225_600),
            now: Timestamp::from_micros(1_767_225_600_000_250),
            annotations: BTreeMap::new(),
        });
        let line = event.to_line();
        assert_eq!(line.last(), Some(&b'\n'));
        let found: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            found,
            json!({
                "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "11111111-1111-1111-1111-111111111111",
                "stage": "ResponseComplete", "requestURI": "/apis/apps/v1/namespaces/ns/deployments/web/scale?token=[elided]&x=1",
                "verb": "update", "user": {"username": "jane", "groups": ["dev"]}, "sourceIPs": ["10.0.0.1"], "userAgent": "kubectl",
                "objectRef": {"resource": "deployments", "namespace": "ns", "name": "web", "apiGroup": "apps", "apiVersion": "v1", "subresource": "scale"},
                "responseStatus": {"metadata": {}, "status": "Failure", "message": "deployments.apps \"web\" is forbidden: no", "reason": "Forbidden", "code": 403},
                "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z", "stageTimestamp": "2026-01-01T00:00:00.000250Z",
                "annotations": {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""},
            })
        );
    }
}
