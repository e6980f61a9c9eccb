//! Plugins against recorded answers (`testdata/admission.json`) and, where none was recorded, against upstream's documented behaviour.

use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::lookups::MemoryLookups;
use crate::user::User;

#[derive(Deserialize)]
struct Recording {
    name: String,
    namespace: String,
    world: Vec<Object>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Object {
    group: String,
    resource: String,
    object: Value,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    resource: String,
    body: Value,
    /// How many objects of the world were there.
    after: usize,
    expected: Value,
}

struct Write<'a> {
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
    operation: Operation,
    old: Option<&'a Value>,
}

impl<'a> Write<'a> {
    fn create(group: &'a str, resource: &'a str, namespace: &'a str) -> Self {
        Self { group, resource, subresource: "", namespace, name: "", operation: Operation::Create, old: None }
    }

    /// Mutates and validates; the answer is the object as it would be stored.
    fn admit(&self, mut object: Value, lookups: &MemoryLookups) -> Result<Value, Box<Status>> {
        let user = User::default();
        let Self { group, resource, subresource, namespace, name, .. } = *self;
        let attributes = Attributes::new(&user, "create", Target::Resource { group, version: "v1", resource, subresource, namespace, name });
        let request =
            Request { attributes: &attributes, operation: self.operation, old: self.old, dry_run: false, now: Timestamp::default(), seed: 7 };
        mutate(&request, &mut object, lookups)?;
        validate(&request, Some(&object), lookups, &mut Notes::default())?;
        Ok(object)
    }
}

fn in_namespace(name: &str) -> MemoryLookups {
    MemoryLookups::default().with("", "namespaces", json!({"metadata": {"name": name}, "status": {"phase": "Active"}})).with(
        "",
        "serviceaccounts",
        json!({"metadata": {"name": "default", "namespace": name}}),
    )
}

/// The default that precedes admission: a limit is also the request.
fn defaulted(mut object: Value) -> Value {
    for list in ["containers", "initContainers"] {
        for container in object["spec"][list].as_array_mut().into_iter().flatten() {
            for (name, value) in container["resources"]["limits"].as_object().cloned().into_iter().flatten() {
                if container["resources"]["requests"][&name].is_null() {
                    container["resources"]["requests"][&name] = value;
                }
            }
        }
    }
    object
}

#[test]
fn recorded_writes_are_admitted_alike() {
    let recordings: Vec<Recording> = serde_json::from_str(include_str!("../../testdata/admission.json")).unwrap();
    let mut played = 0;
    for recording in recordings {
        for case in recording.cases {
            let world =
                recording.world[..case.after].iter().fold(in_namespace(&recording.namespace), |w, o| w.with(&o.group, &o.resource, o.object.clone()));
            let admitted = Write::create("", &case.resource, &recording.namespace).admit(defaulted(case.body), &world);
            let place = format!("{}/{}", recording.name, case.id);
            match admitted {
                Err(status) => {
                    assert_eq!((status.code, status.message.as_str()), (403, case.expected["message"].as_str().unwrap_or("no refusal")), "{place}")
                }
                Ok(object) => {
                    for (key, expected) in case.expected.as_object().unwrap() {
                        let found = match key.as_str() {
                            "resources" => object["spec"]["containers"]
                                .as_array()
                                .unwrap()
                                .iter()
                                .map(|c| c.get("resources").cloned().unwrap_or(json!({})))
                                .collect(),
                            "annotations" => object["metadata"]["annotations"].clone(),
                            "message" => panic!("{place} was admitted"),
                            key => object["spec"][key].clone(),
                        };
                        assert_eq!(&found, expected, "{place} {key}");
                    }
                }
            }
            played += 1;
        }
    }
    assert_eq!(played, 24);
}

#[test]
fn namespaces_must_live() {
    let world = in_namespace("ns").with("", "namespaces", json!({"metadata": {"name": "going"}, "status": {"phase": "Terminating"}}));
    let configmap = || json!({"metadata": {"name": "a"}});
    assert!(Write::create("", "configmaps", "ns").admit(configmap(), &world).is_ok());
    let absent = Write::create("", "configmaps", "absent").admit(configmap(), &world).unwrap_err();
    assert_eq!((absent.code, absent.message.as_str()), (404, "namespaces \"absent\" not found"));
    let going = Write::create("", "configmaps", "going").admit(configmap(), &world).unwrap_err();
    assert_eq!(going.message, "configmaps \"a\" is forbidden: unable to create new content in namespace going because it is being terminated");
    let cause = &going.details.as_ref().unwrap().causes[0];
    assert_eq!(
        (cause.reason.as_str(), cause.message.as_str(), cause.field.as_str()),
        ("NamespaceTerminating", "namespace going is being terminated", "metadata.namespace")
    );
    let update = Write { operation: Operation::Update, ..Write::create("", "configmaps", "going") };
    assert!(update.admit(configmap(), &world).is_ok());
    // A namespace review must not tell whether the namespace exists.
    assert!(Write::create("authorization.k8s.io", "localsubjectaccessreviews", "absent").admit(json!({}), &world).is_ok());
    let delete = |name| Write { operation: Operation::Delete, name, ..Write::create("", "namespaces", name) };
    assert_eq!(
        delete("kube-system").admit(json!({}), &world).unwrap_err().message,
        "namespaces \"kube-system\" is forbidden: this namespace may not be deleted"
    );
    assert!(delete("ns").admit(json!({}), &world).is_ok());
}

fn pod(spec: Value) -> Value {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
    }
    json!({"metadata": {"name": "p"}, "spec": spec})
}

#[test]
fn pods_get_an_account_and_its_token() {
    let world = in_namespace("ns").with(
        "",
        "serviceaccounts",
        json!({"metadata": {"name": "bot", "namespace": "ns"}, "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "pull"}]}),
    );
    let admit = |spec| Write::create("", "pods", "ns").admit(pod(spec), &world);
    let plain = admit(json!({"initContainers": [{"name": "i"}]})).unwrap();
    let volume = &plain["spec"]["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.strip_prefix("kube-api-access-").is_some_and(|tail| tail.len() == 5), "{name}");
    let mount = json!([{"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    assert_eq!((&plain["spec"]["containers"][0]["volumeMounts"], &plain["spec"]["initContainers"][0]["volumeMounts"]), (&mount, &mount));
    assert_eq!(
        volume["projected"],
        json!({"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]})
    );
    // The pod's word counts before the account's.
    let bot = admit(json!({"serviceAccountName": "bot"})).unwrap();
    assert_eq!((&bot["spec"]["volumes"], &bot["spec"]["imagePullSecrets"]), (&Value::Null, &json!([{"name": "pull"}])));
    assert!(admit(json!({"serviceAccountName": "bot", "automountServiceAccountToken": true})).unwrap()["spec"]["volumes"].is_array());
    // A mount of the pod's own stands.
    let own = json!([{"name": "mine", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    let taken = admit(json!({"containers": [{"name": "c", "volumeMounts": own}]})).unwrap();
    assert_eq!((&taken["spec"]["volumes"], &taken["spec"]["containers"][0]["volumeMounts"]), (&Value::Null, &own));
    assert_eq!(
        admit(json!({"serviceAccountName": "missing"})).unwrap_err().message,
        "pods \"p\" is forbidden: error looking up service account ns/missing: serviceaccount \"missing\" not found"
    );
    // Admitting twice changes nothing.
    assert_eq!(Write::create("", "pods", "ns").admit(plain.clone(), &world).unwrap(), plain);
}

#[test]
fn enforced_accounts_limit_secrets_and_mirror_pods_use_none() {
    let world = in_namespace("ns").with(
        "",
        "serviceaccounts",
        json!({"metadata": {"name": "default", "namespace": "ns", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}, "secrets": [{"name": "ok"}]}),
    );
    let refused = |spec| Write::create("", "pods", "ns").admit(pod(spec), &world).unwrap_err().message.clone();
    let tail = "is not allowed because service account default does not reference that secret";
    assert!(Write::create("", "pods", "ns").admit(pod(json!({"volumes": [{"name": "v", "secret": {"secretName": "ok"}}]})), &world).is_ok());
    assert_eq!(
        refused(json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]})),
        format!("pods \"p\" is forbidden: volume with secret.secretName=\"s\" {tail}")
    );
    assert_eq!(
        refused(json!({"containers": [{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}]})),
        format!("pods \"p\" is forbidden: container c with envVar E referencing secret.secretName=\"s\" {tail}")
    );
    let mut mirror = pod(json!({}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let admitted = Write::create("", "pods", "ns").admit(mirror.clone(), &world).unwrap();
    assert_eq!((&admitted["spec"]["serviceAccountName"], &admitted["spec"]["volumes"]), (&Value::Null, &Value::Null));
    mirror["spec"]["serviceAccountName"] = json!("default");
    let refused = Write::create("", "pods", "ns").admit(mirror, &world).unwrap_err();
    assert_eq!(refused.message, "pods \"p\" is forbidden: a mirror pod may not reference service accounts");
}

#[test]
fn priorities_come_from_classes() {
    let class = |name: &str, value: i64, default: bool| json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "Never"});
    let world = in_namespace("ns").with("scheduling.k8s.io", "priorityclasses", class("high", 100, false));
    let admit = |spec, world: &MemoryLookups| Write::create("", "pods", "ns").admit(pod(spec), world);
    let high = admit(json!({"priorityClassName": "high"}), &world).unwrap();
    assert_eq!((&high["spec"]["priority"], &high["spec"]["preemptionPolicy"]), (&json!(100), &json!("Never")));
    let plain = admit(json!({}), &world).unwrap();
    assert_eq!((&plain["spec"]["priority"], &plain["spec"]["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
    assert_eq!(
        admit(json!({"priorityClassName": "missing"}), &world).unwrap_err().message,
        "pods \"p\" is forbidden: no PriorityClass with name missing was found"
    );
    assert_eq!(
        admit(json!({"priority": 5}), &world).unwrap_err().message,
        "pods \"p\" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name"
    );
    let with_default = world.with("scheduling.k8s.io", "priorityclasses", class("usual", 7, true));
    let usual = admit(json!({}), &with_default).unwrap();
    assert_eq!((&usual["spec"]["priorityClassName"], &usual["spec"]["priority"]), (&json!("usual"), &json!(7)));
    let second = Write::create("scheduling.k8s.io", "priorityclasses", "").admit(class("other", 1, true), &with_default).unwrap_err();
    assert_eq!(
        second.message,
        "priorityclasses.scheduling.k8s.io \"other\" is forbidden: PriorityClass usual is already marked as default. Only one default can exist"
    );
    // An update that leaves the fields out keeps them.
    let update = Write { operation: Operation::Update, old: Some(&high), ..Write::create("", "pods", "ns") };
    assert_eq!(update.admit(pod(json!({})), &with_default).unwrap()["spec"]["priority"], 100);
}

#[test]
fn new_nodes_are_tainted_once() {
    let create = Write::create("", "nodes", "");
    let node = create.admit(json!({"metadata": {"name": "n"}}), &MemoryLookups::default()).unwrap();
    assert_eq!(node["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
    assert_eq!(create.admit(node.clone(), &MemoryLookups::default()).unwrap(), node);
}

#[test]
fn a_pods_resources_follow_sidecars_and_overrides() {
    let container = |cpu: &str, extra: Value| {
        let mut c = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        for (key, value) in extra.as_object().into_iter().flatten() {
            c[key] = value.clone();
        }
        c
    };
    let cpu = |pod: &Value| resources::of_pod(pod, "requests")["cpu"].to_string();
    let sidecar = json!({"restartPolicy": "Always"});
    // The init container runs beside the sidecar that started before it: 100m + 500m; later 200m + 100m run.
    let spec =
        json!({"containers": [container("200m", json!({}))], "initContainers": [container("100m", sidecar.clone()), container("500m", json!({}))]});
    assert_eq!(cpu(&json!({"spec": spec})), "600m");
    let spec = json!({"containers": [container("200m", json!({}))], "initContainers": [container("500m", json!({})), container("400m", sidecar)]});
    assert_eq!(cpu(&json!({"spec": spec})), "600m");
    let mut stated = json!({"spec": spec});
    stated["spec"]["resources"] = json!({"requests": {"cpu": "3"}});
    assert_eq!(cpu(&stated), "3");
}

#[test]
fn new_storage_is_marked_as_in_use_once() {
    let world = in_namespace("ns");
    let admitted =
        Write::create("", "persistentvolumeclaims", "ns").admit(json!({"metadata": {"name": "c"}, "spec": {"storageClassName": ""}}), &world);
    assert_eq!(admitted.unwrap()["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let marked = json!({"metadata": {"name": "v", "finalizers": ["a/b", "kubernetes.io/pv-protection"]}});
    let admitted = Write::create("", "persistentvolumes", "").admit(marked.clone(), &world);
    assert_eq!(admitted.unwrap(), marked);
}

#[test]
fn an_ingress_without_a_class_gets_the_newest_default() {
    let class = |name: &str, made: &str, default: &str| {
        let annotations = json!({"ingressclass.kubernetes.io/is-default-class": default});
        json!({"metadata": {"name": name, "creationTimestamp": made, "annotations": annotations}})
    };
    let world = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]
        .into_iter()
        .zip(["old", "new"])
        .fold(in_namespace("ns"), |world, (made, name)| world.with("networking.k8s.io", "ingressclasses", class(name, made, "true")));
    let world = world.with("networking.k8s.io", "ingressclasses", class("other", "2026-01-03T00:00:00Z", "false"));
    let admitted = |object: Value| Write::create("networking.k8s.io", "ingresses", "ns").admit(object, &world).unwrap();
    assert_eq!(admitted(json!({"metadata": {"name": "i"}, "spec": {}}))["spec"]["ingressClassName"], "new");
    assert_eq!(admitted(json!({"metadata": {"name": "i"}, "spec": {"ingressClassName": "mine"}}))["spec"]["ingressClassName"], "mine");
    let old = json!({"metadata": {"name": "i", "annotations": {"kubernetes.io/ingress.class": "nginx"}}, "spec": {}});
    assert!(admitted(old)["spec"]["ingressClassName"].is_null());
}
