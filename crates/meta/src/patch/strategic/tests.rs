//! Merging lists, and refusals, on pods.

use super::strategic_merge_patch;
use serde_json::{Value, json};
use wheelhouse_schema::catalog;

fn patch(target: Value, patch: Value) -> Result<Value, String> {
    let pod = &catalog().kind("", "v1", "Pod").expect("pods are in the table").schema;
    strategic_merge_patch(&target, patch.to_string().as_bytes(), pod).map_err(|e| e.to_string())
}

fn names(object: &Value) -> Vec<&str> {
    object["spec"]["containers"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect()
}

#[test]
fn lists_merge_by_key_and_keep_their_order() {
    let live = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "c"}]}});
    let patched = patch(live.clone(), json!({"spec": {"containers": [{"name": "c", "image": "2"}, {"name": "new"}]}})).unwrap();
    assert_eq!(names(&patched), ["a", "b", "c", "new"]);
    assert_eq!(patched["spec"]["containers"][0]["image"], "1");
    let patched = patch(live.clone(), json!({"spec": {"containers": [{"name": "b", "$patch": "delete"}]}})).unwrap();
    assert_eq!(names(&patched), ["a", "c"]);
    let patched = patch(live.clone(), json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}})).unwrap();
    assert_eq!(names(&patched), ["z"]);
    let order = json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}});
    assert_eq!(names(&patch(live, order).unwrap()), ["b", "c", "a"]);
}

#[test]
fn scalar_lists_merge_as_sets() {
    let live = json!({"metadata": {"finalizers": ["a", "b"]}});
    let patched = patch(live.clone(), json!({"metadata": {"finalizers": ["b", "c"]}})).unwrap();
    assert_eq!(patched["metadata"]["finalizers"], json!(["a", "b", "c"]));
    let patched = patch(live, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}})).unwrap();
    assert_eq!(patched["metadata"]["finalizers"], json!(["b"]));
}

#[test]
fn bad_directives_are_refused() {
    let live = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}]}});
    let error = |p: Value| patch(live.clone(), p).unwrap_err();
    assert_eq!(error(json!({"spec": {"$patch": "odd"}})), "unknown patch type: odd in map: map[$patch:odd]");
    assert_eq!(error(json!({"spec": {"containers": [{"image": "x"}]}})), "map: map[image:x] does not contain declared merge key: name");
    assert_eq!(error(json!({"spec": {"containers": ["x"]}})), "list element types are not identical: [[map[name:a]] [x]]");
    assert_eq!(error(json!({"spec": {"$setElementOrder/containers": "x"}})), "expected a []interface {}, but received a string");
    assert_eq!(error(json!({"metadata": {"$deleteFromPrimitiveList": []}})), "invalid patch format of primitive list");
}

mod properties {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn containers() -> impl Strategy<Value = Vec<(String, String)>> {
        prop::collection::vec(("[a-f]", "[xyz]"), 0..6).prop_map(|list| {
            let mut seen = std::collections::BTreeSet::new();
            list.into_iter().filter(|(name, _)| seen.insert(name.clone())).collect()
        })
    }

    fn pod(containers: &[(String, String)]) -> Value {
        let list: Vec<Value> = containers.iter().map(|(name, image)| json!({"name": name, "image": image})).collect();
        json!({"spec": {"containers": list}})
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_list_patch_is_a_union_by_name_and_repeats_without_change(live in containers(), patched in containers()) {
            let once = patch(pod(&live), pod(&patched)).unwrap();
            let mut expected: BTreeMap<String, String> = live.iter().cloned().collect();
            expected.extend(patched.iter().cloned());
            let found: BTreeMap<String, String> = once["spec"]["containers"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|c| (c["name"].as_str().unwrap_or_default().to_owned(), c["image"].as_str().unwrap_or_default().to_owned()))
                .collect();
            prop_assert_eq!(found, expected);
            let patched_names: Vec<&str> = patched.iter().map(|(name, _)| name.as_str()).collect();
            let in_order: Vec<&str> = names(&once).into_iter().filter(|n| patched_names.contains(n)).collect();
            prop_assert_eq!(in_order, patched_names, "the patch orders its own elements");
            prop_assert_eq!(&patch(once.clone(), pod(&patched)).unwrap(), &once);
        }
    }
}
