use serde_json::json;

use super::*;
use crate::catalog;
use crate::types::{Field, Scalar, Struct};

fn kind(group: &str, version: &str, kind: &str) -> Schema {
    catalog().kind(group, version, kind).unwrap().schema.clone()
}

fn problems(text: &str) -> Vec<String> {
    decode(text.as_bytes(), &kind("", "v1", "Pod"), FieldValidation::Strict).unwrap().problems
}

fn refused(schema: &Schema, text: &str) -> String {
    decode(text.as_bytes(), schema, FieldValidation::Strict).unwrap_err().to_string()
}

#[test]
fn unknown_fields_are_pruned_and_reported_in_order() {
    let text = r#"{"kind":"Pod","spec":{"containers":[{"name":"c","imagee":"x"}],"unheardOf":{"a":1}},"bogus":1,"Metadata":{}}"#;
    let decoded = decode(text.as_bytes(), &kind("", "v1", "Pod"), FieldValidation::Warn).unwrap();
    assert_eq!(decoded.value, json!({"kind": "Pod", "spec": {"containers": [{"name": "c"}]}}));
    assert_eq!(
        decoded.problems,
        [
            r#"unknown field "spec.containers[0].imagee""#,
            r#"unknown field "spec.unheardOf""#,
            r#"unknown field "bogus""#,
            r#"unknown field "Metadata""#
        ]
    );
    assert_eq!(strict_error(&decoded.problems[2..]).unwrap(), r#"strict decoding error: unknown field "bogus", unknown field "Metadata""#);
    let ignored = decode(text.as_bytes(), &kind("", "v1", "Pod"), FieldValidation::Ignore).unwrap();
    assert_eq!((ignored.value, ignored.problems.len()), (decoded.value, 0));
}

#[test]
fn duplicates_are_reported_once_and_structs_merge() {
    let text = r#"{"kind":"A","metadata":{"labels":{"a":"1"},"namespace":"x"},"kind":"Pod","kind":"Pod","metadata":{"name":"dup","name":"full"}}"#;
    let decoded = decode(text.as_bytes(), &kind("", "v1", "Pod"), FieldValidation::Strict).unwrap();
    assert_eq!(decoded.problems, [r#"duplicate field "kind""#, r#"duplicate field "metadata""#, r#"duplicate field "metadata.name""#]);
    let metadata = json!({"labels": {"a": "1"}, "namespace": "x", "name": "full"});
    assert_eq!(decoded.value, json!({"kind": "Pod", "metadata": metadata}));
    assert_eq!(problems(r#"{"metadata":{"labels":{"a":"1","a":"2"}}}"#), [r#"duplicate field "metadata.labels.a""#]);
}

#[test]
fn type_errors_are_upstreams() {
    let deployment = kind("apps", "v1", "Deployment");
    let cases = [
        (r#"{"spec":{"replicas":"3"}}"#, "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (r#"{"spec":{"replicas":1.5}}"#, "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (
            r#"{"spec":{"replicas":3000000000}}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (r#"{"metadata":"text"}"#, "json: cannot unmarshal string into Go struct field Deployment.metadata of type v1.ObjectMeta"),
        (r#"{"metadata":{"labels":{"a":5}}}"#, "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"),
        (
            r#"{"spec":{"template":{"spec":{"containers":{}}}}}"#,
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            r#"{"spec":{"template":{"spec":{"restartPolicy":1}}}}"#,
            "json: cannot unmarshal number into Go struct field PodSpec.spec.template.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            r#"{"spec":{"template":{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":true}}}]}}}}"#,
            "json: cannot unmarshal bool into Go struct field HTTPGetAction.spec.template.spec.containers.livenessProbe.httpGet.port of type int32",
        ),
        ("[1]", "json: cannot unmarshal array into Go value of type v1.Deployment"),
    ];
    for (text, want) in cases {
        assert_eq!(refused(&deployment, text), want);
    }
}

#[test]
fn texts_with_a_form_of_their_own_are_checked() {
    let lease = kind("coordination.k8s.io", "v1", "Lease");
    assert_eq!(
        refused(&lease, r#"{"spec":{"renewTime":"2024-01-01"}}"#),
        r#"parsing time "2024-01-01" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "" as "T""#
    );
    let limits = kind("", "v1", "LimitRange");
    assert_eq!(
        refused(&limits, r#"{"spec":{"limits":[{"max":{"cpu":"abc"}}]}}"#),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    let secret = kind("", "v1", "Secret");
    assert_eq!(refused(&secret, r#"{"data":{"a":"b$d="}}"#), "illegal base64 data at input byte 1");
    let pod = kind("", "v1", "Pod");
    let text = r#"{"metadata":{"creationTimestamp":"2024-01-01T02:00:00.5+02:00"},
        "spec":{"containers":[{"resources":{"limits":{"cpu":1.5,"memory":"1.5Gi"}}}]}}"#;
    let decoded = decode(text.as_bytes(), &pod, FieldValidation::Strict).unwrap().value;
    assert_eq!(decoded["metadata"]["creationTimestamp"], "2024-01-01T00:00:00Z");
    assert_eq!(decoded["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "1500m", "memory": "1536Mi"}));
}

#[test]
fn syntax_comes_before_types() {
    let pod = kind("", "v1", "Pod");
    assert_eq!(refused(&pod, "{"), "unexpected end of JSON input");
    assert_eq!(refused(&pod, r#"{"metadata":"text", x}"#), "invalid character 'x' looking for beginning of object key string");
    assert_eq!(refused(&pod, "{} {}"), "invalid character '{' after top-level value");
}

#[test]
fn bytes_that_are_no_text_are_replaced() {
    let body = b"{\"metadata\":{\"name\":\"a\xff\"}}";
    let decoded = decode(body, &kind("", "v1", "Pod"), FieldValidation::Strict).unwrap();
    assert_eq!(decoded.value, json!({"metadata": {"name": "a\u{fffd}"}}));
}

#[test]
fn nulls_are_zero_values() {
    let pod = kind("", "v1", "Pod");
    let text = r#"{"metadata":{"labels":{"a":null},"creationTimestamp":null},"spec":{"containers":[null],"nodeSelector":null}}"#;
    let decoded = decode(text.as_bytes(), &pod, FieldValidation::Strict).unwrap();
    assert_eq!(decoded.value, json!({"metadata": {"labels": {"a": ""}}, "spec": {"containers": [{}]}}));
}

#[test]
fn depth_is_limited_without_a_panic() {
    let crd = kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let deep = |n: usize| {
        let schema = format!("{}{}{}", r#"{"not":"#.repeat(n), "{}", "}".repeat(n));
        format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#)
    };
    assert!(decode(deep(50).as_bytes(), &crd, FieldValidation::Strict).is_ok());
    let error = decode(deep(5000).as_bytes(), &crd, FieldValidation::Strict).unwrap_err();
    assert_eq!(error, DecodeError::TooDeep);
    let lists = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let raw = format!(r#"{{"data":{lists}}}"#);
    assert_eq!(refused(&kind("apps", "v1", "ControllerRevision"), &raw), "exceeded max depth");
}

#[test]
fn json_schema_choices_are_pruned_but_never_strict() {
    let crd = kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let schema = json!({"additionalProperties": {"type": "string", "odd": 1}, "items": [{"type": "object"}],
        "dependencies": {"a": ["b"]}, "default": {"any": null}});
    let body = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
    let decoded = decode(&serde_json::to_vec(&body).unwrap(), &crd, FieldValidation::Strict).unwrap();
    assert_eq!(decoded.problems, Vec::<String>::new());
    let read = &decoded.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(read["additionalProperties"], json!({"type": "string"}));
    assert_eq!(read["default"], json!({"any": null}));
    assert_eq!(read["dependencies"], json!({"a": ["b"]}));
}

#[test]
fn run_time_schemas_keep_what_validation_will_judge() {
    let mut spec = Struct::new(vec![Field::verbatim("size", Schema::Scalar(Scalar::Int64))]);
    spec.preserve_unknown = false;
    let partial = catalog().partial_object().as_struct().unwrap();
    let mut fields: Vec<Field> = partial.fields.clone();
    fields.push(Field::verbatim("spec", spec.into()));
    let thing: Schema = Struct::new(fields).into();
    let text = r#"{"kind":"Thing","top":1,"spec":{"size":"big","junk":null},"metadata":{"odd":1,"name":"x"},"kind":"Thing"}"#;
    let decoded = decode(text.as_bytes(), &thing, FieldValidation::Strict).unwrap();
    assert_eq!(decoded.value, json!({"kind": "Thing", "spec": {"size": "big"}, "metadata": {"name": "x"}}));
    assert_eq!(
        decoded.problems,
        [r#"duplicate field "kind""#, r#"unknown field "metadata.odd""#, r#"unknown field "spec.junk""#, r#"unknown field "top""#]
    );
}

#[test]
fn a_body_of_countless_empty_items_is_refused() {
    let items = "{},".repeat(MAX_VALUES) + "{}";
    let text = format!("{{\"spec\":{{\"containers\":[{items}]}}}}");
    assert_eq!(refused(&kind("", "v1", "Pod"), &text), "object has too many values");
}

#[test]
fn gos_zero_time_is_no_time() {
    let text = r#"{"metadata":{"creationTimestamp":"0001-01-01T00:00:00Z","name":"a"}}"#;
    let decoded = decode(text.as_bytes(), &kind("", "v1", "Pod"), FieldValidation::Strict).unwrap();
    assert_eq!(decoded.value, json!({"metadata": {"name": "a"}}));
}

#[test]
fn at_most_a_hundred_problems_are_noted() {
    let many: Vec<String> = (0..500).map(|n| format!("\"f{n}\":1")).collect();
    assert_eq!(problems(&format!("{{{}}}", many.join(","))).len(), MAX_PROBLEMS);
}
