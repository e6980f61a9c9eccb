use std::collections::BTreeMap;

use super::*;
use crate::reconciler::testing::{World, context};
use serde_json::Value;

/// Plays plans against a world as the API server and the ReplicaSet controller would, so that whole rollouts run in a test.
struct Play {
    deployment: Value,
    sets: BTreeMap<String, Value>,
    events: Vec<String>,
}

impl Play {
    fn new(replicas: i32, strategy: Value) -> Self {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "a", "uid": "d", "generation": 1},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "strategy": strategy,
                "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "one"}]}},
            },
        });
        Self { deployment, sets: BTreeMap::new(), events: Vec::new() }
    }

    fn image(&mut self, image: &str) {
        self.deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        self.deployment["metadata"]["generation"] = json!(self.deployment["metadata"]["generation"].as_i64().unwrap() + 1);
    }

    /// One call of the reconciler, its operations carried out. Says whether anything changed.
    fn step(&mut self) -> bool {
        let mut world = World::new();
        world.put(self.deployment.clone());
        for set in self.sets.values() {
            world.put(set.clone());
        }
        let plan = DeploymentController.reconcile(&Key::new("a", "web"), world.view(), &context(), &mut ());
        self.events.extend(plan.events.iter().map(|event| event.message.clone()));
        let moved = !plan.operations.is_empty();
        for operation in plan.operations {
            match operation {
                Operation::Create { mut object, .. } => {
                    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                    object["metadata"]["uid"] = json!(format!("u-{name}"));
                    object["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:0{}:00Z", self.sets.len()));
                    self.sets.insert(name, object);
                }
                Operation::Patch { resource, key, mut patch, .. } => {
                    for precondition in ["uid", "resourceVersion"] {
                        patch["metadata"].as_object_mut().unwrap().remove(precondition);
                    }
                    assert_ne!(resource, DEPLOYMENTS, "the controller's role has no patch of Deployments");
                    wheelhouse_meta::patch::merge_value(self.sets.get_mut(&*key.name).unwrap(), patch);
                }
                Operation::Update { object, subresource: "", .. } => {
                    self.deployment["metadata"]["annotations"] = object["metadata"]["annotations"].clone()
                }
                Operation::Update { object, .. } => self.deployment["status"] = object["status"].clone(),
                Operation::Delete { key, .. } => {
                    self.sets.remove(&*key.name);
                }
                Operation::Post { .. } => panic!("a Deployment posts nothing"),
            }
        }
        moved
    }

    /// What the ReplicaSet controller and kubelets would do at once.
    fn pods_become_ready(&mut self) {
        for set in self.sets.values_mut() {
            let size = set["spec"]["replicas"].clone();
            set["status"] = json!({"replicas": size, "readyReplicas": size, "availableReplicas": size, "observedGeneration": 0});
        }
    }

    fn sizes(&self) -> Vec<i64> {
        let mut sets: Vec<&Value> = self.sets.values().collect();
        sets.sort_by_key(|set| set["metadata"]["creationTimestamp"].as_str().unwrap().to_owned());
        sets.iter().map(|set| set["spec"]["replicas"].as_i64().unwrap()).collect()
    }

    fn settle(&mut self) {
        for _ in 0..50 {
            let moved = self.step();
            self.pods_become_ready();
            if !moved && !self.step() {
                return;
            }
        }
        panic!("it never settles: {:?}", self.sizes());
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let conditions = self.deployment["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
        (found["status"].as_str().unwrap().to_owned(), found["reason"].as_str().unwrap().to_owned())
    }
}

fn rolling(surge: &str, unavailable: &str) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

#[test]
fn a_new_deployment_gets_its_set_at_full_size() {
    let mut play = Play::new(3, rolling("25%", "25%"));
    play.step();
    assert_eq!(play.sizes(), [3]);
    assert!(play.events[0].starts_with("Scaled up replica set web-") && play.events[0].ends_with(" from 0 to 3"), "{:?}", play.events);
    play.settle();
    assert_eq!(play.condition("Available"), ("True".into(), "MinimumReplicasAvailable".into()));
    assert_eq!(play.condition("Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    assert_eq!(play.deployment["metadata"]["annotations"][sets::REVISION], "1");
}

#[test]
fn a_rolling_update_stays_within_its_bounds_at_every_step() {
    for (surge, unavailable) in [("1", "0"), ("0", "1"), ("25%", "25%"), ("50%", "0"), ("100%", "100%")] {
        let strategy = rolling(surge, unavailable);
        let strategy: Value = serde_json::from_str(&strategy.to_string().replace("\"1\"", "1").replace("\"0\"", "0")).unwrap();
        let mut play = Play::new(10, strategy);
        play.settle();
        play.image("two");
        for step in 0.. {
            assert!(step < 60, "{surge}/{unavailable} never ends");
            let moved = play.step();
            let total: i64 = play.sizes().iter().sum();
            let resolved = |text: &str, up: bool| {
                let percent = text.strip_suffix('%').map(|p| p.parse::<f64>().unwrap() / 10.0);
                percent.map_or_else(|| text.parse().unwrap(), |p| if up { p.ceil() } else { p.floor() } as i64)
            };
            assert!(total <= 10 + resolved(surge, true), "{surge}/{unavailable}: {total} pods");
            let serving: i64 =
                play.sets.values().map(|s| s["status"]["availableReplicas"].as_i64().unwrap_or(0).min(s["spec"]["replicas"].as_i64().unwrap())).sum();
            assert!(serving >= 10 - resolved(unavailable, false), "{surge}/{unavailable}: {serving} serve");
            play.pods_become_ready();
            if !moved {
                break;
            }
        }
        assert_eq!(play.sizes(), [0, 10], "{surge}/{unavailable}");
    }
}

#[test]
fn going_back_takes_up_the_old_set_under_a_new_revision() {
    let mut play = Play::new(2, rolling("1", "1"));
    play.settle();
    play.image("two");
    play.settle();
    play.image("one");
    play.settle();
    assert_eq!(play.sizes(), [2, 0]);
    assert_eq!(play.deployment["metadata"]["annotations"][sets::REVISION], "3");
    let first = play.sets.values().find(|set| set["spec"]["replicas"] == 2).unwrap();
    assert_eq!(first["metadata"]["annotations"][sets::REVISION_HISTORY], "1");
}

#[test]
fn recreate_takes_everything_down_first() {
    let mut play = Play::new(3, json!({"type": "Recreate"}));
    play.settle();
    play.image("two");
    let mut lowest = i64::MAX;
    for _ in 0..10 {
        play.step();
        lowest = lowest.min(play.sizes().iter().sum());
        play.pods_become_ready();
    }
    assert_eq!((lowest, play.sizes()), (0, vec![0, 3]));
}

#[test]
fn old_sets_are_forgotten_beyond_the_limit() {
    let mut play = Play::new(1, rolling("1", "1"));
    play.deployment["spec"]["revisionHistoryLimit"] = json!(2);
    for image in ["a", "b", "c", "d", "e"] {
        play.image(image);
        play.settle();
    }
    assert_eq!(play.sets.len(), 3, "two old ones and the new");
}

#[test]
fn a_paused_deployment_rolls_nothing_out_but_scales() {
    let mut play = Play::new(2, rolling("1", "1"));
    play.settle();
    play.deployment["spec"]["paused"] = json!(true);
    play.image("two");
    play.settle();
    assert_eq!(play.sizes(), [2]);
    play.deployment["spec"]["replicas"] = json!(5);
    play.settle();
    assert_eq!(play.sizes(), [5]);
    assert_eq!(play.condition("Progressing"), ("Unknown".into(), "DeploymentPaused".into()));
}

#[test]
fn scaling_in_the_midst_of_a_rollout_keeps_the_proportion() {
    let mut play = Play::new(10, json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}));
    play.settle();
    play.image("broken");
    // The new set by maxSurge, the old one down by maxUnavailable, the new one into the room that gives.
    for _ in 0..3 {
        play.step();
    }
    let before = play.sizes();
    assert_eq!(before.iter().sum::<i64>(), 13, "{before:?}");
    play.deployment["spec"]["replicas"] = json!(15);
    play.step();
    assert_eq!(play.sizes().iter().sum::<i64>(), 18, "{:?}", play.sizes());
    assert!(play.sizes()[0] > before[0] && play.sizes()[1] > before[1], "{before:?} -> {:?}", play.sizes());
}
