use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::reconciler::testing::{NOW, World};

type Outcomes = BTreeMap<(EffectKind, String), Result<Value, String>>;

struct Run {
    world: World,
    memory: BTreeMap<Key, Memory>,
    now: Timestamp,
}

const PODS: [&str; 4] = ["p0", "p1", "p2", "p3"];

impl Run {
    fn new(replicas: i64, spec: Value) -> Self {
        let mut autoscaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": "a", "uid": "h", "generation": 1},
            "spec": {
                "minReplicas": 1, "maxReplicas": 10, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
            },
        });
        wheelhouse_meta::patch::merge_value(&mut autoscaler["spec"], spec);
        let mut world = World::new();
        world.put(autoscaler);
        for name in PODS.iter().take(usize::try_from(replicas).unwrap()) {
            world.put(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": "d"}},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": "Running", "startTime": "2025-12-31T00:00:00Z",
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T00:01:00Z"}]},
            }));
        }
        let mut run = Self { world, memory: BTreeMap::new(), now: NOW };
        run.size(replicas);
        run
    }

    fn size(&mut self, replicas: i64) {
        self.world.put(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "a", "uid": "d"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": {}}, "status": {"replicas": replicas},
        }));
    }

    fn call(&mut self, effects: &Outcomes) -> Plan {
        let cx = Context { now: self.now, failure: None, effects };
        HorizontalPodAutoscalerController.reconcile(&Key::new("a", "h"), self.world.view(), &cx, &mut self.memory)
    }

    /// Asks, hands in these millicores of each pod, and answers the second plan.
    fn decide(&mut self, cpu: &[i64]) -> Plan {
        let usage = |(name, milli): (&&str, &i64)| json!({"metadata": {"name": name}, "timestamp": "2026-01-01T00:10:00Z", "window": "30s", "containers": [{"name": "c", "usage": {"cpu": format!("{milli}m")}}]});
        let list = json!({"items": PODS.iter().zip(cpu).map(usage).collect::<Vec<_>>()});
        self.answer(Ok(list))
    }

    fn answer(&mut self, outcome: Result<Value, String>) -> Plan {
        let asked = self.call(&Outcomes::new());
        assert_eq!(asked.effects.len(), 1, "{asked:?}");
        let plan = self.call(&Outcomes::from([((EffectKind::ReadMetrics, "0".into()), outcome)]));
        self.now = self.now.plus(Duration::from_secs(15));
        plan
    }
}

/// The size that a plan sets; the target's own if it sets none.
fn size(plan: &Plan) -> Option<i64> {
    plan.operations.iter().find_map(|operation| match operation {
        Operation::Update { subresource: "scale", object, .. } => object["spec"]["replicas"].as_i64(),
        _ => None,
    })
}

fn status(plan: &Plan) -> Value {
    let status = plan.operations.iter().find_map(|operation| match operation {
        Operation::Update { subresource: "status", object, .. } => Some(object["status"].clone()),
        _ => None,
    });
    status.unwrap_or_default()
}

fn reason(plan: &Plan, kind: &str) -> String {
    let status = status(plan);
    let condition = status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == kind).unwrap().clone();
    format!("{} {}", condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
}

#[test]
fn usage_above_the_target_grows_the_workload() {
    let mut run = Run::new(2, json!({}));
    let asked = run.call(&Outcomes::new());
    assert_eq!(asked.effects[0].input["path"], "/apis/metrics.k8s.io/v1beta1/namespaces/a/pods?labelSelector=app%3Dd");
    let plan = run.decide(&[900, 700]);
    assert_eq!(size(&plan), Some(4), "80 % of 50 %: 1.6 times 2 pods");
    let status = status(&plan);
    assert_eq!(status["currentMetrics"][0]["resource"]["current"], json!({"averageUtilization": 80, "averageValue": "800m"}));
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(2), &json!(4)));
    assert_eq!(plan.events[0].message, "New size: 4; reason: cpu resource utilization (percentage of request) above target");
    assert_eq!(
        ["AbleToScale", "ScalingActive", "ScalingLimited"].map(|kind| reason(&plan, kind)),
        ["True SucceededRescale", "True ValidMetricFound", "False DesiredWithinRange"]
    );
    assert_eq!(plan.requeue_at, Some(NOW.plus(PERIOD)));
    assert!(run.call(&Outcomes::new()).effects.len() == 1, "the next reading is due");
}

#[test]
fn what_is_near_the_target_changes_nothing() {
    let plan = Run::new(2, json!({})).decide(&[540, 540]);
    assert_eq!((size(&plan), reason(&plan, "AbleToScale").as_str()), (None, "True ReadyForNewScale"));
}

#[test]
fn shrinking_waits_for_the_window() {
    let mut run = Run::new(4, json!({}));
    let plan = run.decide(&[100, 100, 100, 100]);
    assert_eq!((size(&plan), reason(&plan, "AbleToScale").as_str()), (None, "True ScaleDownStabilized"));
    for _ in 0..19 {
        assert_eq!(size(&run.decide(&[100, 100, 100, 100])), None);
    }
    assert_eq!(size(&run.decide(&[100, 100, 100, 100])), Some(1));
}

#[test]
fn growth_has_a_rate_and_an_end() {
    let plan = Run::new(1, json!({})).decide(&[5000]);
    assert_eq!((size(&plan), reason(&plan, "ScalingLimited").as_str()), (Some(4), "True ScaleUpLimit"));
    let plan = Run::new(2, json!({"maxReplicas": 3})).decide(&[5000, 5000]);
    assert_eq!((size(&plan), reason(&plan, "ScalingLimited").as_str()), (Some(3), "True TooManyReplicas"));
    let rules =
        json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}});
    let mut run = Run::new(2, json!({"behavior": rules}));
    assert_eq!(size(&run.decide(&[5000, 5000])), Some(3));
    run.size(3);
    let plan = run.decide(&[5000, 5000]);
    assert_eq!((size(&plan), reason(&plan, "ScalingLimited").as_str()), (None, "True ScaleUpLimit"), "one a minute");
}

#[test]
fn pods_without_samples_damp_the_change() {
    // As if idle: (1000 + 0 + 0) / 3 is under the target, so growing would be wrong.
    assert_eq!(size(&Run::new(3, json!({})).decide(&[1000])), None);
    let mut run = Run::new(
        3,
        json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}}}),
    );
    assert_eq!(size(&run.decide(&[100, 100])), None, "as if fully used");
}

#[test]
fn bounds_hold_without_metrics() {
    let mut run = Run::new(2, json!({"minReplicas": 3}));
    let plan = run.call(&Outcomes::new());
    assert_eq!((size(&plan), plan.events[0].message.as_str()), (Some(3), "New size: 3; reason: Current number of replicas below Spec.MinReplicas"));
    let mut run = Run::new(0, json!({}));
    let plan = run.call(&Outcomes::new());
    assert_eq!((size(&plan), reason(&plan, "ScalingActive").as_str()), (None, "False ScalingDisabled"));
}

#[test]
fn what_cannot_be_read_is_told() {
    let plan = Run::new(2, json!({})).answer(Err("the server could not find the requested resource".into()));
    let told: Vec<&str> = plan.events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!((size(&plan), told), (None, vec!["FailedGetResourceMetric", "FailedComputeMetricsReplicas"]));
    assert_eq!(reason(&plan, "ScalingActive"), "False FailedGetResourceMetric");
    assert!(plan.events[1].message.starts_with("invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: "));
    let mut run = Run::new(2, json!({"scaleTargetRef": {"name": "none"}}));
    let plan = run.call(&Outcomes::new());
    assert_eq!(
        (reason(&plan, "AbleToScale").as_str(), plan.events[0].message.as_str()),
        ("False FailedGetScale", "deployments.apps \"none\" not found")
    );
}

#[test]
fn other_metrics_share_the_same_way() {
    let external = json!([{"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"q": "x"}}}, "target": {"type": "AverageValue", "averageValue": "10"}}}]);
    let mut run = Run::new(2, json!({"metrics": external}));
    let asked = run.call(&Outcomes::new());
    assert_eq!(asked.effects[0].input["path"], "/apis/external.metrics.k8s.io/v1beta1/namespaces/a/queue?labelSelector=q%3Dx");
    assert_eq!(size(&run.answer(Ok(json!({"items": [{"value": "25"}, {"value": "10"}]})))), Some(4));
    let pods = json!([{"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "100"}}}]);
    let sample = |name: &str| json!({"describedObject": {"name": name}, "value": "150"});
    assert_eq!(size(&Run::new(2, json!({"metrics": pods})).answer(Ok(json!({"items": [sample("p0"), sample("p1")]})))), Some(3));
    let object = json!([{"type": "Object", "object": {"metric": {"name": "rps"}, "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"}, "target": {"type": "Value", "value": "100"}}}]);
    let mut run = Run::new(2, json!({"metrics": object}));
    assert_eq!(run.call(&Outcomes::new()).effects[0].input["path"], "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/services/s/rps");
    assert_eq!(size(&run.answer(Ok(json!({"items": [{"value": "200"}]})))), Some(4));
}
