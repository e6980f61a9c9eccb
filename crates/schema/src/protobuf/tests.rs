//! Against bodies that upstream 1.36 sent (`testdata/protobuf.json`): the same object as protobuf and as JSON, with
//! placeholders in the JSON (`<uid:1>`) for what differs between runs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::decode::MAX_VALUES;
use crate::types::Schema;
use crate::{catalog, normalise};
use serde_json::Value;

struct Recorded {
    name: String,
    bytes: Vec<u8>,
    json: Value,
    other: Value,
}

fn recorded() -> Vec<Recorded> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../../testdata/protobuf.json")).unwrap();
    all.into_iter()
        .map(|entry| Recorded {
            name: entry["name"].as_str().unwrap().to_owned(),
            bytes: STANDARD.decode(entry["bytes"].as_str().unwrap()).unwrap(),
            json: entry["json"].clone(),
            other: entry,
        })
        .collect()
}

fn pod() -> Recorded {
    recorded().into_iter().find(|r| r.name == "pod").unwrap()
}

fn schema_of(unknown: &Unknown<'_>) -> Schema {
    let (group, version) = unknown.api_version.split_once('/').unwrap_or(("", &unknown.api_version));
    catalog().kind(group, version, &unknown.kind).unwrap().schema.clone()
}

/// An enveloped object as JSON, with its apiVersion and kind.
fn read(bytes: &[u8]) -> (Value, Schema) {
    let unknown = open(bytes).unwrap();
    let schema = schema_of(&unknown);
    let mut value = decode(unknown.raw, &schema).unwrap();
    value["apiVersion"] = unknown.api_version.clone().into();
    value["kind"] = unknown.kind.clone().into();
    (value, schema)
}

fn assert_same(wanted: &Value, found: &Value, path: &str) {
    match (wanted, found) {
        (Value::String(text), _) if text.contains('<') => {}
        (Value::Object(a), Value::Object(b)) => {
            assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{path}");
            a.iter().for_each(|(key, value)| assert_same(value, &b[key], &format!("{path}.{key}")));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{path}");
            a.iter().zip(b).for_each(|(a, b)| assert_same(a, b, path));
        }
        _ => assert_eq!(wanted, found, "{path}"),
    }
}

#[test]
fn recorded_objects_read_as_upstreams_json() {
    for recording in recorded() {
        let (value, _) = read(&recording.bytes);
        assert_same(&recording.json, &value, &recording.name);
    }
}

#[test]
fn recorded_objects_are_written_byte_for_byte() {
    for recording in recorded() {
        let (value, schema) = read(&recording.bytes);
        assert_eq!(encode_object(&value, &schema).unwrap(), recording.bytes, "{}", recording.name);
    }
}

#[test]
fn lists_partial_objects_and_statuses_too() {
    let pod = pod();
    for name in ["list", "partial", "status"] {
        let bytes = STANDARD.decode(pod.other[name].as_str().unwrap()).unwrap();
        let (value, schema) = read(&bytes);
        assert_eq!(encode_object(&value, &schema).unwrap(), bytes, "{name}");
    }
    let bytes = STANDARD.decode(pod.other["list"].as_str().unwrap()).unwrap();
    let (list, _) = read(&bytes);
    let unknown = open(&pod.bytes).unwrap();
    let joined = list_object("v1", "PodList", &list["metadata"], [unknown.raw]).unwrap();
    assert_eq!(joined, bytes, "a list made of encoded items");
}

#[test]
fn what_a_client_sent_is_read() {
    let sent = STANDARD.decode(pod().other["sent"].as_str().unwrap()).unwrap();
    let (pod, _) = read(&sent);
    assert_eq!(pod["metadata"]["name"], "full");
    assert_eq!(pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"], "http", "two embedded structs deep");
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"]["memory"], "1536Mi");
}

#[test]
fn a_watch_frame_holds_an_enveloped_object() {
    let pod = pod();
    let frame = watch_frame("ADDED", &pod.bytes);
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    assert_eq!(length, frame.len() - 4);
    let outer = [MAGIC.as_slice(), &frame[4..]].concat();
    let outer = open(&outer).unwrap();
    assert_eq!((outer.api_version.as_str(), outer.kind.as_str()), ("", ""));
    let mut reader = wire::Reader::new(outer.raw);
    assert_eq!(reader.tag().unwrap(), Some((1, wire::LENGTH)));
    assert_eq!(reader.bytes().unwrap(), b"ADDED");
    assert_eq!(reader.tag().unwrap(), Some((2, wire::LENGTH)));
    let mut raw = wire::Reader::new(reader.bytes().unwrap());
    assert_eq!(raw.tag().unwrap(), Some((1, wire::LENGTH)));
    assert_eq!(raw.bytes().unwrap(), pod.bytes);
}

#[test]
fn zero_values_follow_gos_rules() {
    let schema = &catalog().kind("", "v1", "ConfigMap").unwrap().schema;
    // metadata is no pointer: written, with its strings, its zero generation and its empty time.
    let meta = b"\x0a\x10\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00";
    assert_eq!(encode(&json!({}), schema).unwrap(), meta);
    assert_eq!(encode(&json!({"data": {}, "immutable": null}), schema).unwrap(), meta);
    let immutable = encode(&json!({"immutable": false}), schema).unwrap();
    assert_eq!(immutable[meta.len()..], [0x20, 0]);
    let sorted = encode(&json!({"data": {"b": "2", "a": ""}}), schema).unwrap();
    assert_eq!(sorted[meta.len()..], *b"\x12\x05\x0a\x01a\x12\x00\x12\x06\x0a\x01b\x12\x012");
}

#[test]
fn negative_numbers_take_ten_bytes() {
    let schema = &catalog().kind("scheduling.k8s.io", "v1", "PriorityClass").unwrap().schema;
    let bytes = encode(&json!({"value": -1}), schema).unwrap();
    let tail = [0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert!(bytes.windows(tail.len()).any(|w| w == tail));
    assert_eq!(decode(&bytes, schema).unwrap()["value"], -1);
}

#[test]
fn json_schemas_round_trip() {
    let schema = &catalog().kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap().schema;
    let props = json!({"type": "object", "maximum": 1.5, "minLength": 0, "default": {"a": [1, null]}, "enum": ["a", 1],
        "properties": {"a": {"additionalProperties": true}, "b": {"additionalProperties": {"type": "string"}},
            "c": {"items": {"type": "string"}}, "d": {"items": [{"type": "string"}, {}]},
            "e": {"dependencies": {"x": ["y"], "z": {"not": {}}}}, "f": {"additionalProperties": false}}});
    let mut crd = json!({"spec": {"group": "g", "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": props}, "subresources": {"status": {}}}]}});
    normalise(&mut crd, schema);
    let bytes = encode(&crd, schema).unwrap();
    assert_eq!(decode(&bytes, schema).unwrap(), crd);
}

#[test]
fn a_body_cut_anywhere_is_an_error_or_a_smaller_object_never_a_panic() {
    let pod = pod();
    for length in 0..pod.bytes.len() {
        if let Ok(unknown) = open(&pod.bytes[..length]) {
            let schema = catalog().kind("", "v1", "Pod").unwrap().schema.clone();
            let _ = decode(unknown.raw, &schema);
        }
    }
    assert_eq!(open(&pod.bytes[..pod.bytes.len() / 2]), Err(ProtobufError::Malformed("unexpected EOF")));
    assert!(open(b"{}").is_err());
}

#[test]
fn every_changed_byte_is_survived() {
    let pod = pod();
    let raw = open(&pod.bytes).unwrap().raw.to_vec();
    let schema = catalog().kind("", "v1", "Pod").unwrap().schema.clone();
    for at in (0..raw.len()).step_by(11) {
        for flip in [0x01, 0x07, 0x80, 0xff] {
            let mut changed = raw.clone();
            changed[at] ^= flip;
            if let Ok(value) = decode(&changed, &schema) {
                let _ = encode(&value, &schema);
            }
        }
    }
}

#[test]
fn depth_and_number_of_values_are_capped() {
    // JSONSchemaProps.not (28) inside itself.
    let schema = catalog().definition(crate::types::JSON_SCHEMA_PROPS).unwrap();
    let mut deep = Vec::new();
    for _ in 0..5000 {
        let mut outer = Vec::new();
        wire::put_bytes(&mut outer, 28, &deep);
        deep = outer;
    }
    assert_eq!(decode(&deep, &schema), Err(ProtobufError::Malformed("exceeded max depth")));
    let finalizers: Vec<u8> = b"\x72\x00".repeat(MAX_VALUES + 1);
    assert_eq!(decode(&finalizers, &catalog().object_meta()), Err(ProtobufError::Malformed("object has too many values")));
}

#[test]
fn tables_and_custom_resources_have_no_protobuf() {
    let table = &catalog().kind("meta.k8s.io", "v1", "Table").unwrap().schema;
    assert!(matches!(encode(&json!({}), table), Err(ProtobufError::NoMessage(_))));
    let custom = Schema::from(crate::types::Struct::new(vec![crate::types::Field::verbatim("a", Schema::Any)]));
    assert!(matches!(encode(&json!({}), &custom), Err(ProtobufError::NoMessage(_))));
}

#[test]
fn a_value_of_the_wrong_type_names_its_field() {
    let schema = &catalog().kind("apps", "v1", "Deployment").unwrap().schema;
    let error = encode(&json!({"spec": {"replicas": "3"}}), schema).unwrap_err();
    assert_eq!(error.to_string(), "spec.replicas: expected an integer, found a string");
}

/// What kubectl 1.32 and 1.37 send for `create configmap`, `create deployment`, `create token` and a dozen more.
#[test]
fn kubectls_own_bodies_are_read_and_written_byte_for_byte() {
    let bodies: Vec<String> = serde_json::from_str(include_str!("../../testdata/kubectl.json")).unwrap();
    assert!(bodies.len() > 10);
    for body in bodies {
        let bytes = STANDARD.decode(body).unwrap();
        let (value, schema) = read(&bytes);
        assert_eq!(encode_object(&value, &schema).unwrap(), bytes, "{value}");
    }
}
