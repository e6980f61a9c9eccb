//! Every constructor against a recorded answer of kube-apiserver 1.36.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Reason, Status};
use crate::field::{ErrorList, FieldError, Path};
use crate::gvk::{GroupKind, GroupResource};
use crate::validation;

fn core(resource: &str) -> GroupResource {
    GroupResource::new("", resource)
}

fn invalid(kind: GroupKind, name: &str, error: FieldError) -> Status {
    Status::invalid(&kind, name, &ErrorList::from(vec![error]))
}

fn built() -> BTreeMap<&'static str, Status> {
    let none = GroupResource::default();
    let list_denied = "User \"system:serviceaccount:g-token:default\" cannot list resource \"pods\" in API group \"\" in the namespace \"g-token\"";
    let media = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    let percent = validation::percent("abc").remove(0);
    let surge = "spec.strategy.rollingUpdate.maxSurge";
    BTreeMap::from([
        ("not-found", Status::not_found(&core("configmaps"), "min")),
        ("already-exists", Status::already_exists(&GroupResource::new("apiregistration.k8s.io", "apiservices"), "v2.full.example.com")),
        ("optimistic-lock", Status::optimistic_lock(&GroupResource::new("batch", "cronjobs"), "full")),
        (
            "uid-precondition",
            Status::uid_precondition(&core("pods"), "full", "/registry/pods/g-upd-pod/full", "33333333-3333-3333-3333-333333333333", "<uid:1>"),
        ),
        (
            "forbidden-name",
            Status::forbidden(&core("pods"), "full", "error looking up service account g-bad-pod-1/missing: serviceaccount \"missing\" not found"),
        ),
        ("forbidden-list", Status::forbidden(&core("pods"), "", list_denied)),
        ("forbidden-path", Status::forbidden(&none, "", "User \"jane\" cannot get path \"/logs\"")),
        ("unauthorized", Status::unauthorized()),
        ("expired-continue", Status::continue_expired("<continue>")),
        ("expired-list", Status::resource_expired(super::RESOURCE_VERSION_TOO_OLD)),
        ("too-large", Status::resource_version_too_large(999_999_999_999, 7)),
        (
            "too-many",
            Status::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 10).with_cause(
                "DisruptionBudget",
                "The disruption budget x is still being processed by the server.",
                "",
            ),
        ),
        ("media-type", Status::unsupported_media_type(&media)),
        ("media-type-router", Status::unsupported_media_type_by_router()),
        ("not-acceptable", Status::not_acceptable(&media)),
        ("not-acceptable-router", Status::not_acceptable_by_router(&media)),
        ("not-allowed", Status::method_not_allowed()),
        ("path-not-found", Status::path_not_found()),
        ("internal", Status::internal_error("the spec replicas field \".spec.replicas\" does not exist")),
        ("json-patch", Status::generic_server_response(422, "", &none, "", "any", 0)),
        ("bad-request", Status::bad_request("the name of the object (other) does not match the name on the URL (full)")),
        ("plain", Status::plain("strconv.ParseUint: parsing \"abc\": invalid syntax")),
        (
            "invalid-required",
            invalid(
                GroupKind::new("", "ConfigMap"),
                "",
                FieldError::required(&Path::new("metadata").child("name"), "name or generateName is required"),
            ),
        ),
        (
            "invalid-not-supported",
            Status::invalid(&GroupKind::new("meta.k8s.io", "CreateOptions"), "", &validation::field_validation("Odd", &Path::new("fieldValidation"))),
        ),
        ("invalid-several", invalid(GroupKind::new("apps", "Deployment"), "full", FieldError::invalid(&Path::new(surge), "abc", percent))),
    ])
}

#[test]
fn constructors_write_what_upstream_answers() {
    let mut recorded: BTreeMap<String, Value> = serde_json::from_str(include_str!("../../testdata/statuses.json")).expect("testdata is valid");
    // Conflicts of apply have a test beside apply.
    recorded.remove("apply-conflict");
    let built = built();
    assert_eq!(built.keys().copied().collect::<Vec<_>>(), recorded.keys().map(String::as_str).collect::<Vec<_>>());
    for (name, status) in built {
        let json: Value = serde_json::from_slice(&status.to_json()).unwrap();
        assert_eq!(json, recorded[name], "{name}");
    }
}

#[test]
fn several_errors_make_one_sentence() {
    let path = Path::new("spec");
    let errors = ErrorList::from(vec![
        FieldError::required(&path.child("a"), ""),
        FieldError::required(&path.child("a"), ""),
        FieldError::forbidden(&path.child("b"), "no"),
    ]);
    let status = Status::invalid(&GroupKind::new("apps", "Deployment"), "d", &errors);
    assert_eq!(status.message, "Deployment.apps \"d\" is invalid: [spec.a: Required value, spec.b: Forbidden: no]");
    assert_eq!(status.details.map(|d| d.causes.len()), Some(3), "causes are not deduplicated");
}

#[test]
fn a_status_reads_back_and_keeps_field_order() {
    let status = Status::conflict(&core("pods"), "p", "why");
    let json = String::from_utf8(status.to_json()).unwrap();
    assert_eq!(
        json,
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"Operation cannot be fulfilled on pods \
         \\\"p\\\": why\",\"reason\":\"Conflict\",\"details\":{\"name\":\"p\",\"kind\":\"pods\"},\"code\":409}"
    );
    let read: Status = serde_json::from_str(&json).unwrap();
    assert!(read.is(Reason::Conflict) && !read.is(Reason::NotFound));
    assert_eq!(Status::resource_version_too_large(2, 1).retry_after_seconds(), Some(1));
}
