use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::lookups::MemoryLookups;

fn stored(objects: impl IntoIterator<Item = Value>) -> MemoryLookups {
    objects.into_iter().fold(MemoryLookups::default(), |world, object| {
        let resource = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
        world.with(GROUP, &resource, object)
    })
}

fn all() -> Vec<Value> {
    objects().iter().map(|o| o.body.clone()).collect()
}

#[test]
fn the_policy_is_whole() {
    let count = |kind| objects().iter().filter(|o| o.kind == kind).count();
    assert_eq!([PolicyKind::ClusterRole, PolicyKind::ClusterRoleBinding, PolicyKind::Role, PolicyKind::RoleBinding].map(count), [71, 52, 7, 7]);
    for object in objects() {
        assert_eq!(object.namespace.is_empty(), matches!(object.kind, PolicyKind::ClusterRole | PolicyKind::ClusterRoleBinding), "{}", object.name);
        // Every binding finds its role.
        let role = object.body["roleRef"]["name"].as_str();
        assert!(
            role.is_none_or(|role| objects().iter().any(|o| o.name == role && o.body["kind"] == object.body["roleRef"]["kind"])),
            "{}",
            object.name
        );
    }
}

#[test]
fn an_empty_cluster_gets_everything_and_a_full_one_nothing() {
    let first = plan(&MemoryLookups::default());
    assert_eq!(first.len(), objects().len());
    assert!(first.iter().all(|o| o.change == Change::Create));
    assert!(plan(&stored(all())).is_empty());
}

/// Edits one stored object and answers what the plan does about it.
fn after(name: &str, kind: &str, edit: impl Fn(&mut Value)) -> Vec<Operation> {
    let mut objects = all();
    edit(objects.iter_mut().find(|o| o["metadata"]["name"] == name && o["kind"] == kind).unwrap());
    plan(&stored(objects))
}

#[test]
fn missing_rules_and_subjects_come_back_and_additions_stay() {
    let extra = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]});
    let plan = after("system:basic-user", "ClusterRole", |role| role["rules"] = json!([extra]));
    assert_eq!((plan.len(), &plan[0].change), (1, &Change::Update));
    let rules = plan[0].object.body["rules"].as_array().unwrap();
    assert_eq!(rules[0], extra);
    // The two review resources and the SelfSubjectReview, broken down to one verb on one thing each.
    assert_eq!(rules.len(), 4);

    let plan = after("system:public-info-viewer", "ClusterRoleBinding", |b| {
        b["subjects"] = json!([{"kind": "Group", "apiGroup": GROUP, "name": "mine"}]);
    });
    let names: Vec<&str> = plan[0].object.body["subjects"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mine", "system:authenticated", "system:unauthenticated"]);

    let plan = after("cluster-admin", "ClusterRoleBinding", |b| b["roleRef"]["name"] = json!("view"));
    assert_eq!((plan.len(), &plan[0].change), (1, &Change::Replace));

    let plan = after("view", "ClusterRole", |role| {
        role["rules"] = json!([extra]);
        role["metadata"]["labels"] = json!({"mine": "1"});
    });
    assert_eq!(plan[0].object.body["rules"], json!([extra]));
    assert_eq!(plan[0].object.body["metadata"]["labels"].as_object().unwrap().len(), 3);
}

#[test]
fn objects_that_opted_out_are_left_alone() {
    let opted_out = |object: &mut Value| {
        object["metadata"]["annotations"][AUTOUPDATE] = json!("false");
        object["rules"] = json!([]);
    };
    assert!(after("system:basic-user", "ClusterRole", opted_out).is_empty());
}

/// Runs the aggregation until nothing changes and compares with what upstream's controller had made of the same roles.
#[test]
fn aggregated_roles_end_up_as_recorded() {
    let mut roles: Vec<Value> = all().into_iter().filter(|o| o["kind"] == "ClusterRole").collect();
    for _ in 0..4 {
        for i in 0..roles.len() {
            if let Some(rules) = aggregation::plan(&roles[i], &roles) {
                roles[i]["rules"] = json!(rules);
            }
        }
    }
    assert!(roles.iter().all(|role| aggregation::plan(role, &roles).is_none()));
    let recorded: BTreeMap<String, Value> = serde_json::from_str(include_str!("../../testdata/aggregated.json")).unwrap();
    for (name, rules) in recorded {
        let role = roles.iter().find(|r| r["metadata"]["name"] == name.as_str()).unwrap();
        assert_eq!(role["rules"], rules, "{name}");
    }
}
