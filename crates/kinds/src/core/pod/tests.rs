//! What recorded answers do not cover: subresources that are written by patches, and rows of running pods.

use serde_json::{Value, json};
use wheelhouse_base::Timestamp;

use super::PodKind;
use crate::kind::{Kind, RequestContext, Typed};

const NOW: Timestamp = Timestamp::from_secs(1_706_933_166);

fn pod() -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "creationTimestamp": "2024-02-03T04:05:06Z"},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "c", "image": "i", "resources": {
            "limits": {"cpu": "200m", "memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}}}]},
    });
    let kind = Typed::<PodKind>::new();
    kind.default(&mut pod);
    let cx = RequestContext { now: NOW, ..RequestContext::default() };
    assert!(kind.prepare_create(&mut pod, &cx).errors.is_empty());
    pod
}

fn update(subresource: &str, change: impl FnOnce(&mut Value)) -> (Value, String) {
    let kind = Typed::<PodKind>::new();
    let old = pod();
    let mut new = old.clone();
    change(&mut new);
    kind.default(&mut new);
    let cx = RequestContext { now: NOW, subresource, ..RequestContext::default() };
    let errors = kind.prepare_update(&mut new, &old, &cx).errors.aggregate();
    (new, errors)
}

#[test]
fn a_resize_takes_cpu_and_memory_only() {
    let requests = "/spec/containers/0/resources/requests";
    let (new, errors) = update("resize", |pod| {
        pod.pointer_mut(requests).expect("requests")["cpu"] = "150m".into();
        pod["spec"]["containers"][0]["image"] = "other".into();
    });
    assert_eq!(errors, "");
    assert_eq!(new["spec"]["containers"][0]["image"], "i");
    assert_eq!(new.pointer(requests).expect("requests")["cpu"], "150m");
    let (_, errors) = update("resize", |pod| pod.pointer_mut(requests).expect("requests")["cpu"] = "1".into());
    let over = "spec.containers[0].resources.requests: Invalid value: \"1\": must be less than or equal to cpu limit of 200m";
    assert_eq!(errors, over);
    let (_, errors) = update("resize", |pod| pod.pointer_mut(requests).expect("requests")["ephemeral-storage"] = "1Gi".into());
    assert_eq!(errors, "spec: Forbidden: only cpu and memory resources are mutable");
}

#[test]
fn ephemeral_containers_are_only_added() {
    let (new, errors) = update("ephemeralcontainers", |pod| {
        pod["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "e:1", "targetContainerName": "c"}]);
        pod["spec"]["containers"][0]["image"] = "other".into();
    });
    assert_eq!(errors, "");
    assert_eq!(new["spec"]["containers"][0]["image"], "i");
    let refused = [
        (json!({"name": "c", "image": "f"}), "spec.ephemeralContainers[0].name: Duplicate value: \"c\""),
        (json!({"name": "g", "image": "g", "targetContainerName": "nope"}), "spec.ephemeralContainers[0].targetContainerName: Not found: \"nope\""),
        (
            json!({"name": "f", "image": "f", "ports": [{"containerPort": 1}]}),
            "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
        ),
    ];
    for (container, expected) in refused {
        let (_, errors) = update("ephemeralcontainers", |pod| pod["spec"]["ephemeralContainers"] = json!([container]));
        assert_eq!(errors, expected);
    }
    let kind = Typed::<PodKind>::new();
    let cx = RequestContext { now: NOW, subresource: "ephemeralcontainers", ..RequestContext::default() };
    let mut changed = new.clone();
    changed["spec"]["ephemeralContainers"][0]["image"] = "e:2".into();
    let errors = kind.prepare_update(&mut changed, &new, &cx).errors.aggregate();
    let expected = "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be changed\n@@ -1,6 +1,6 @@\n {\n  \
                    \"Name\": \"e\",\n- \"Image\": \"e:1\",\n+ \"Image\": \"e:2\",\n  \"Command\": null,\n  \"Args\": null,\n  \
                    \"WorkingDir\": \"\",\n";
    assert_eq!(errors, expected);
    let mut removed = new.clone();
    removed["spec"].as_object_mut().expect("a spec").remove("ephemeralContainers");
    let errors = kind.prepare_update(&mut removed, &new, &cx).errors.aggregate();
    assert_eq!(errors, "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed\n");
}

fn cells(status: Value, deleting: bool) -> Vec<String> {
    let mut pod = pod();
    pod["spec"]["initContainers"] = json!([{"name": "i", "image": "i"}, {"name": "s", "image": "i", "restartPolicy": "Always"}]);
    pod["status"] = status;
    if deleting {
        pod["metadata"]["deletionTimestamp"] = "2024-02-03T04:06:00Z".into();
    }
    let row = Typed::<PodKind>::new().row(&pod, NOW);
    row[1..4].iter().map(|c| c.as_str().expect("text").to_owned()).collect()
}

#[test]
fn rows_tell_what_a_pod_is_doing() {
    let running = json!({"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}});
    let waiting =
        |reason: &str| json!({"name": "c", "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": {"waiting": {"reason": reason}}});
    let crashed = json!({"name": "c", "ready": false, "restartCount": 3, "image": "i", "imageID": "",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2024-02-03T04:05:36Z"}}});
    let through = json!({"name": "i", "ready": true, "restartCount": 1, "image": "i", "imageID": "", "state": {"terminated": {"exitCode": 0}}});
    let sidecar = json!({"name": "s", "ready": true, "started": true, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}});
    let inits = json!([through, sidecar]);
    let expect = |status: Value, deleting: bool, expected: [&str; 3]| assert_eq!(cells(status, deleting), expected);
    expect(json!({"phase": "Pending"}), false, ["0/2", "Pending", "0"]);
    expect(json!({"phase": "Running", "initContainerStatuses": inits, "containerStatuses": [running]}), false, ["2/2", "Running", "0"]);
    expect(json!({"phase": "Running", "initContainerStatuses": inits, "containerStatuses": [running]}), true, ["2/2", "Terminating", "0"]);
    expect(json!({"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff")]}), false, ["0/2", "ImagePullBackOff", "0"]);
    expect(
        json!({"phase": "Running", "initContainerStatuses": inits, "containerStatuses": [crashed]}),
        false,
        ["1/2", "CrashLoopBackOff", "3 (30s ago)"],
    );
    let failed = json!({"name": "i", "ready": false, "restartCount": 2, "image": "i", "imageID": "", "state": {"terminated": {"exitCode": 7}}});
    expect(json!({"phase": "Pending", "initContainerStatuses": [failed]}), false, ["0/2", "Init:ExitCode:7", "2"]);
    let starting = json!({"name": "i", "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}});
    expect(json!({"phase": "Pending", "initContainerStatuses": [starting]}), false, ["0/2", "Init:0/2", "0"]);
    let done = json!({"name": "c", "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    expect(json!({"phase": "Succeeded", "initContainerStatuses": inits, "containerStatuses": [done]}), true, ["1/2", "Completed", "0"]);
}

#[test]
fn a_pod_that_never_reached_a_node_goes_at_once() {
    let kind = Typed::<PodKind>::new();
    let mut pod = pod();
    assert_eq!(kind.grace_period(&pod), None);
    pod["spec"]["nodeName"] = "n1".into();
    assert_eq!(kind.grace_period(&pod), Some(30));
    pod["status"]["phase"] = "Failed".into();
    assert_eq!(kind.grace_period(&pod), None);
}

#[test]
fn the_class_follows_from_requests_and_limits() {
    let class =
        |resources: Value| super::qos_class(&serde_json::from_value(json!({"containers": [{"name": "c", "resources": resources}]})).expect("a spec"));
    assert_eq!(class(json!({})), "BestEffort");
    assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(class(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}})), "Guaranteed");
    assert_eq!(class(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}})), "Burstable");
}

#[test]
fn a_pod_is_selected_by_its_fields() {
    let kind = Typed::<PodKind>::new();
    let mut pod = pod();
    pod["spec"]["nodeName"] = "n1".into();
    pod["status"]["podIPs"] = json!([{"ip": "10.1.1.1"}, {"ip": "fd00::1"}]);
    let fields = kind.selectable_fields(&pod);
    let names: Vec<&str> = fields.iter().map(|f| f.0).collect();
    assert_eq!(names, kind.selectable_names());
    let value = |name: &str| fields.iter().find(|f| f.0 == name).map(|f| f.1.as_str());
    assert_eq!(value("spec.nodeName"), Some("n1"));
    assert_eq!(value("spec.hostNetwork"), Some("false"));
    assert_eq!(value("status.phase"), Some("Pending"));
    assert_eq!(value("status.podIP"), Some("10.1.1.1"));
    assert_eq!(value("status.nominatedNodeName"), Some(""));
}
