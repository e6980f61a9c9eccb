//! Field ownership through sequences of writes.

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_schema::catalog;

use super::{ApplyError, LAST_APPLIED, Manager, SingleVersion, apply, check_type, update};
use crate::gvk::GroupVersionKind;
use crate::object::Object;
use crate::status::Status;

const NOW: Timestamp = Timestamp::from_secs(0);
const LATER: Timestamp = Timestamp::from_secs(60);

struct World {
    live: Value,
}

impl World {
    fn config_map(data: Value) -> Self {
        let live = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "uid": "u"}, "data": data});
        Self { live }
    }

    fn versions() -> SingleVersion<'static> {
        let kind = catalog().kind("", "v1", "ConfigMap").expect("config maps are in the table");
        SingleVersion { api_version: "v1", schema: &kind.schema }
    }

    fn manager(name: &str, now: Timestamp) -> Manager<'_> {
        Manager { name, api_version: "v1", subresource: "", reset_fields: &[], now }
    }

    fn apply(&mut self, name: &str, data: Value, annotations: Value, force: bool) -> Result<(), ApplyError> {
        let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
        if !annotations.is_null() {
            body["metadata"]["annotations"] = annotations;
        }
        self.live = apply(&self.live, &body, &Self::manager(name, NOW), force, &Self::versions())?;
        Ok(())
    }

    fn owners(&self) -> Vec<String> {
        let entries = self.live.meta_list("managedFields");
        entries.iter().map(|e| format!("{} {} {}", e["manager"].as_str().unwrap_or(""), e["operation"], e["fieldsV1"])).collect()
    }
}

#[test]
fn the_first_apply_attributes_what_was_there() {
    let mut world = World::config_map(json!({"a": "1"}));
    world.apply("me", json!({"b": "2"}), Value::Null, false).unwrap();
    assert_eq!(world.live["data"], json!({"a": "1", "b": "2"}));
    assert_eq!(world.owners(), ["me \"Apply\" {\"f:data\":{\"f:b\":{}}}", "before-first-apply \"Update\" {\"f:data\":{\".\":{},\"f:a\":{}}}"]);
    world.apply("me", json!({}), Value::Null, false).unwrap();
    assert_eq!(world.live["data"], json!({"a": "1"}), "what is not applied any more goes");
}

#[test]
fn kubectl_takes_over_from_client_side_apply() {
    let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}}).to_string();
    let mut world = World::config_map(json!({"a": "1"}));
    world.live["metadata"]["annotations"] = json!({LAST_APPLIED: last});
    let refused = world.apply("other", json!({"a": "2"}), Value::Null, false).unwrap_err();
    assert_eq!(Status::from(refused).message, "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a");
    world.apply("kubectl", json!({"a": "2"}), Value::Null, false).unwrap();
    assert_eq!(world.live["data"], json!({"a": "2"}));
    let annotation = world.live.annotation(LAST_APPLIED).unwrap_or_default();
    assert!(annotation.ends_with("\"data\":{\"a\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"m\"}}\n"), "{annotation}");
}

#[test]
fn updates_move_ownership_and_time_only_with_changes() {
    let world = World::config_map(json!({"a": "1"}));
    let mut live = world.live.clone();
    live["metadata"].as_object_mut().unwrap().remove("uid");
    let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    let created = update(&empty, live, &World::manager("", NOW), &World::versions());
    let entry = &created.meta_list("managedFields")[0];
    assert_eq!((entry["manager"].as_str(), entry["time"].as_str()), (Some("unknown"), Some("1970-01-01T00:00:00Z")));
    let mut stored = created.clone();
    stored["metadata"]["uid"] = "u".into();

    let same = update(&stored, stored.clone(), &World::manager("w", LATER), &World::versions());
    assert_eq!(same, stored);

    let mut new = stored.clone();
    new["data"]["b"] = "2".into();
    let changed = update(&stored, new.clone(), &World::manager("w", LATER), &World::versions());
    let entries = changed.meta_list("managedFields");
    assert_eq!((entries.len(), &entries[1]["fieldsV1"], &entries[1]["time"]), (2, &json!({"f:data": {"f:b": {}}}), &json!("1970-01-01T00:01:00Z")));

    new["metadata"]["managedFields"] = json!([{}]);
    let cleared = update(&stored, new, &World::manager("w", LATER), &World::versions());
    assert!(cleared.meta_list("managedFields").is_empty());
    let mut again = cleared.clone();
    again["data"]["c"] = "3".into();
    let untracked = update(&cleared, again, &World::manager("w", LATER), &World::versions());
    assert!(untracked.meta_list("managedFields").is_empty(), "stays untracked until an apply");
}

#[test]
fn bodies_are_checked() {
    let mut world = World::config_map(json!({}));
    let message = |e: ApplyError| Status::from(e).message;
    assert_eq!(
        message(world.apply("me", json!({"a": 5}), Value::Null, false).unwrap_err()),
        "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:5}"
    );
    assert_eq!(
        message(world.apply("me", json!([]), json!("x"), false).unwrap_err()),
        "failed to create typed patch object (/m; /v1, Kind=ConfigMap): errors:\n  .data: expected map, got &{[]}\n  \
         .metadata.annotations: expected map, got &{x}"
    );
    let expected = GroupVersionKind::new("", "v1", "ConfigMap");
    assert_eq!(message(check_type(&json!({}), &expected).unwrap_err()), "invalid object type: /, Kind=");
    assert_eq!(check_type(&world.live, &expected), Ok(()));
}

mod properties {
    use proptest::prelude::*;
    use serde_json::Map;

    use super::*;

    fn data() -> impl Strategy<Value = Map<String, Value>> {
        prop::collection::btree_map("[a-e]", "[xy]", 0..5).prop_map(|map| map.into_iter().map(|(k, v)| (k, Value::from(v))).collect())
    }

    fn data_of(object: &Value) -> Map<String, Value> {
        object["data"].as_object().cloned().unwrap_or_default()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn applying_overlays_repeats_without_change_and_can_be_given_up(live in data(), applied in data()) {
            let mut world = World::config_map(Value::Object(live.clone()));
            world.apply("me", Value::Object(applied.clone()), Value::Null, true).unwrap();
            let mut overlaid = live.clone();
            overlaid.extend(applied.clone());
            prop_assert_eq!(data_of(&world.live), overlaid);

            let first = world.live.clone();
            world.apply("me", Value::Object(applied.clone()), Value::Null, false).unwrap();
            prop_assert_eq!(&world.live, &first);

            world.apply("me", json!({}), Value::Null, false).unwrap();
            // A key that was there with the same value belongs to both, so it stays.
            let kept = live.into_iter().filter(|(k, v)| applied.get(k).is_none_or(|a| a == v));
            prop_assert_eq!(data_of(&world.live), kept.collect::<Map<_, _>>());
        }
    }
}
