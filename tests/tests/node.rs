//! A machine joins a hosted cluster and runs real containers, seen through kubectl. Needs root, containerd, runc, the network plugins and a static
//! busybox (`tools/setup` installs them); without root it is skipped and says so.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wheelhouse_node::image::{self, Content, File};
use wheelhouse_tests::{Kubectl, Service, until};

/// Everything asked for here takes seconds on an idle machine.
const SOON: Duration = Duration::from_secs(60);
/// DESIGN.md's figures are for an idle machine with nothing beside; this is what they are checked against on a busy one.
const READY: Duration = Duration::from_secs(30);
const IMAGE: &str = "wheelhouse.local/busybox:1";

/// A node on this machine, with a containerd, directories and a bridge of its own.
struct Node {
    folder: tempfile::TempDir,
    child: Child,
}

impl Node {
    /// Runs the command that `node-token create` prints, with places of its own.
    fn join(command: &str) -> Self {
        // Short, since a socket's path may have 107 bytes.
        let folder = tempfile::Builder::new().prefix("whn").tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let log = std::fs::File::create(folder.path().join("node.log")).expect("a log file");
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let child = Command::new(wheelhouse_tests::binary("wheelhouse-node"))
            .args(words)
            .args(["--node-name", "vm-1", "--labels", "example.com/rack=a", "--port", "20250", "--bridge", "whtest0", "--cgroup-root", "/whtest"])
            // The machine that tests run on may be fuller than a node should be.
            .args(["--disk-reserve", "1"])
            .args(["--state-dir", &at("state"), "--run-dir", &at("run"), "--log-dir", &at("logs"), "--manifests", &at("manifests")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .spawn()
            .expect("wheelhouse-node starts");
        Self { folder, child }
    }

    fn place(&self) -> [String; 4] {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        ["--state-dir".into(), at("state"), "--run-dir".into(), at("run")]
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("run/containerd.sock")
    }

    fn import(&self, archive: &[u8]) {
        let file = self.folder.path().join("image.tar");
        std::fs::write(&file, archive).expect("the image is written");
        let ran = Command::new("ctr").arg("--address").arg(self.socket()).args(["--namespace", "k8s.io", "images", "import"]).arg(&file).output();
        let ran = ran.expect("ctr runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }

    fn leave(&self) -> String {
        let ran = Command::new(wheelhouse_tests::binary("wheelhouse-node")).arg("leave").args(self.place()).args(["--timeout", "60"]).output();
        let ran = ran.expect("wheelhouse-node runs");
        let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{text}");
        text
    }

    /// Kills the agent with SIGKILL and starts it again; containers do not notice.
    fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = std::fs::OpenOptions::new().append(true).open(self.folder.path().join("node.log")).expect("the log");
        let errors = log.try_clone().expect("a log file");
        let mut command = Command::new(wheelhouse_tests::binary("wheelhouse-node"));
        self.child = command.arg("run").args(self.place()).stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("wheelhouse-node starts");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["node.log", "state/containerd.log"] {
                let text = std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
                let start = text.len().saturating_sub(6000);
                eprintln!("--- {name}\n{}", &text[text.ceil_char_boundary(start)..]);
            }
            let _ = Command::new(wheelhouse_tests::binary("wheelhouse-node")).arg("leave").args(self.place()).args(["--force"]).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Debian's static busybox as an image.
fn busybox() -> Vec<u8> {
    let program = ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|path| std::fs::read(path).ok()).expect("tools/setup installs busybox-static");
    let mut files = vec![File { path: "bin/busybox".into(), mode: 0o755, content: Content::Bytes(program) }];
    for name in ["sh", "sleep", "cat", "echo", "id", "env", "ls", "touch", "test", "false", "kill", "stat"] {
        files.push(File { path: format!("bin/{name}"), mode: 0o777, content: Content::Link("busybox".into()) });
    }
    image::archive(IMAGE, &files, &json!({"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"]}))
}

fn get(kubectl: &Kubectl, what: &[&str]) -> Value {
    let ran = kubectl.run(&[&["get", "-o", "json"], what].concat());
    if ran.code == 0 { ran.json() } else { Value::Null }
}

fn ready(object: &Value) -> bool {
    object["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|ran| ran.stdout.starts_with(b"0\n"))
}

#[test]
fn a_machine_joins_and_runs_containers() {
    if !is_root() {
        eprintln!("skipped: running containers needs root");
        return;
    }
    let service = Service::start();
    let tenant = service.tenant("nodes");
    tenant.run(&["cluster", "create", "demo", "--wait=120s"]).ok();
    let kubectl = tenant.kubectl("demo");
    let token = tenant.run(&["node-token", "create", "demo", "-o", "json"]).json();
    let command = token["joinCommand"].as_str().expect("a join command").to_owned();

    refuses_what_is_wrong(&command);
    let started = Instant::now();
    let mut node = Node::join(&command);
    let joined = until("the node is ready", SOON, || Some(get(&kubectl, &["node", "vm-1"])).filter(ready));
    let took = started.elapsed();
    eprintln!("token to Ready: {took:?}");
    assert!(took < READY, "{took:?}");
    assert_eq!(joined["metadata"]["labels"]["example.com/rack"], "a");
    assert!(joined["spec"]["podCIDR"].as_str().is_some_and(|range| range.starts_with("10.244.")), "{}", joined["spec"]);
    node.import(&busybox());

    deployments_run(&kubectl);
    configuration_reaches_containers(&kubectl);
    crashes_are_backed_off_from(&kubectl);
    init_containers_and_probes(&kubectl);
    static_pods_are_seen(&kubectl, &node);
    an_agent_that_dies_disturbs_nobody(&kubectl, &mut node);
    deletion_keeps_its_grace(&kubectl);
    a_node_is_confined(&kubectl, &node);

    let left = node.leave();
    assert!(left.contains("node vm-1 leaves"), "{left}");
    until("the node is gone", SOON, || get(&kubectl, &["node", "vm-1"]).is_null().then_some(()));
    assert!(!node.folder.path().join("state").exists(), "nothing is left of it");
}

/// Each mistake is told apart, and nothing is left behind by it.
fn refuses_what_is_wrong(command: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let place = [
        "--state-dir".to_owned(),
        at("state"),
        "--run-dir".to_owned(),
        at("run"),
        "--node-name".into(),
        "vm-x".into(),
        "--port".into(),
        "20251".into(),
    ];
    let run = |command: &str| {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let ran = Command::new(wheelhouse_tests::binary("wheelhouse-node")).args(words).args(&place).output().expect("wheelhouse-node runs");
        assert!(!ran.status.success());
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    let after = |flag: &str| command.split_whitespace().skip_while(|word| *word != flag).nth(1).expect("the command has the flag");
    let hash = after("--ca-cert-hash");
    let wrong = run(&command.replace(hash, &format!("sha256:{}", "0".repeat(64))));
    assert!(wrong.contains("does not show the authority"), "{wrong}");
    let wrong = run(&command.replace(after("--token"), "abcdef.0123456789abcdef"));
    assert!(wrong.contains("the token is not valid"), "{wrong}");
    let wrong = run(&command.replace(after("join"), "https://127.0.0.1:1"));
    assert!(wrong.contains("cannot be reached"), "{wrong}");
    assert!(!folder.path().join("state/client.pem").exists());
}

fn deployments_run(kubectl: &Kubectl) {
    kubectl.run(&["create", "deployment", "web", &format!("--image={IMAGE}"), "--replicas=3", "--", "/bin/sleep", "100000"]).ok();
    let deployment = until("the deployment is available", SOON, || {
        Some(get(kubectl, &["deployment", "web"])).filter(|deployment| deployment["status"]["availableReplicas"] == 3)
    });
    assert_eq!(deployment["status"]["readyReplicas"], 3);
    let pods = get(kubectl, &["pods", "-l", "app=web"]);
    for pod in pods["items"].as_array().expect("pods") {
        assert_eq!(pod["status"]["phase"], "Running");
        assert!(pod["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.244.")), "{}", pod["status"]);
        assert!(pod["status"]["containerStatuses"][0]["containerID"].as_str().is_some_and(|id| id.starts_with("containerd://")));
    }
    let started = Instant::now();
    kubectl.run(&["run", "one", &format!("--image={IMAGE}"), "--restart=Never", "--", "/bin/sleep", "100000"]).ok();
    until("the pod runs", SOON, || (get(kubectl, &["pod", "one"])["status"]["phase"] == "Running").then_some(()));
    eprintln!("pod create to Running, kubectl included: {:?}", started.elapsed());
}

/// Environment, files, tokens and identity, told by the container itself through its termination message.
fn configuration_reaches_containers(kubectl: &Kubectl) {
    kubectl.run(&["create", "configmap", "settings", "--from-literal=colour=green"]).ok();
    kubectl.run(&["create", "secret", "generic", "hidden", "--from-literal=word=sesame"]).ok();
    let script = "{ echo $COLOUR $WORD $NODE $LIMIT; cat /config/colour /projected/word; echo; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; \
                  echo; id -u; cat /etc/hostname; echo $KUBERNETES_SERVICE_PORT; test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; \
                  touch /scratch/x && echo scratch; } > /dev/termination-log";
    let from = |source: Value| json!({"valueFrom": source});
    let env = |name: &str, source: Value| {
        let mut env = from(source);
        env["name"] = name.into();
        env
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "teller"}, "spec": {
        "restartPolicy": "Never", "securityContext": {"runAsUser": 1234, "fsGroup": 4321},
        "containers": [{"name": "c", "image": IMAGE, "command": ["/bin/sh", "-c", script], "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}},
            "env": [env("COLOUR", json!({"configMapKeyRef": {"name": "settings", "key": "colour"}})), env("WORD", json!({"secretKeyRef": {"name": "hidden", "key": "word"}})),
                    env("NODE", json!({"fieldRef": {"fieldPath": "spec.nodeName"}})), env("LIMIT", json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}))],
            "volumeMounts": [{"name": "config", "mountPath": "/config"}, {"name": "all", "mountPath": "/projected"}, {"name": "scratch", "mountPath": "/scratch"}]}],
        "volumes": [{"name": "config", "configMap": {"name": "settings"}}, {"name": "all", "projected": {"sources": [{"secret": {"name": "hidden"}}]}},
                    {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]}});
    kubectl.feed(&["create", "-f", "-"], &pod.to_string()).ok();
    let ended = until("the pod ends", SOON, || {
        Some(get(kubectl, &["pod", "teller"])).filter(|pod| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")))
    });
    let message = ended["status"]["containerStatuses"][0]["state"]["terminated"]["message"].as_str().unwrap_or_default();
    assert_eq!(message, "green sesame vm-1 64\ngreensesame\ndefault\n1234\nteller\n443\ntoken\nscratch\n", "{}", ended["status"]);
}

fn crashes_are_backed_off_from(kubectl: &Kubectl) {
    kubectl.run(&["run", "crash", &format!("--image={IMAGE}"), "--", "/bin/false"]).ok();
    let pod = until("the pod is backed off from", SOON, || {
        Some(get(kubectl, &["pod", "crash"])).filter(|pod| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff")
    });
    let status = &pod["status"]["containerStatuses"][0];
    assert!(status["restartCount"].as_i64().is_some_and(|count| count >= 1), "{status}");
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 1);
    kubectl.run(&["run", "absent", "--image=wheelhouse.local/absent:1"]).ok();
    until("the missing image is told", SOON, || {
        let reason = get(kubectl, &["pod", "absent"])["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
        matches!(reason.as_str(), Some("ErrImagePull" | "ImagePullBackOff")).then_some(())
    });
    kubectl.run(&["delete", "pod", "crash", "absent", "--wait=true", "--timeout=60s"]).ok();
}

fn init_containers_and_probes(kubectl: &Kubectl) {
    let shell = |script: &str| json!(["/bin/sh", "-c", script]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "steps"}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "v", "emptyDir": {}}],
        "initContainers": [
            {"name": "first", "image": IMAGE, "command": shell("echo one > /v/order"), "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            {"name": "side", "image": IMAGE, "command": shell("sleep 100000"), "restartPolicy": "Always"},
            {"name": "second", "image": IMAGE, "command": shell("cat /v/order && echo two >> /v/order"), "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "containers": [{"name": "main", "image": IMAGE, "command": shell("sleep 2; touch /v/ready; sleep 100000"), "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "readinessProbe": {"exec": {"command": ["/bin/cat", "/v/ready"]}, "periodSeconds": 1},
            "livenessProbe": {"exec": {"command": ["/bin/cat", "/v/order"]}, "periodSeconds": 1}}]}});
    kubectl.feed(&["create", "-f", "-"], &pod.to_string()).ok();
    until("the pod runs", SOON, || (get(kubectl, &["pod", "steps"])["status"]["phase"] == "Running").then_some(()));
    let steps = until("the pod is ready", SOON, || Some(get(kubectl, &["pod", "steps"])).filter(ready));
    let inits = steps["status"]["initContainerStatuses"].as_array().expect("init containers");
    assert!(inits[0]["state"]["terminated"]["exitCode"] == 0 && inits[1]["started"] == true && inits[2]["ready"] == true, "{inits:?}");
    assert_eq!(steps["status"]["containerStatuses"][0]["restartCount"], 0);
    kubectl.run(&["delete", "pod", "steps", "--wait=true", "--timeout=60s"]).ok();
}

fn static_pods_are_seen(kubectl: &Kubectl, node: &Node) {
    let folder = node.folder.path().join("manifests");
    std::fs::create_dir_all(&folder).expect("a folder");
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fixed", "namespace": "kube-system"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": IMAGE, "command": ["/bin/sleep", "100000"]}]}});
    std::fs::write(folder.join("fixed.json"), manifest.to_string()).expect("the manifest is written");
    let name = ["pod", "-n", "kube-system", "fixed-vm-1"];
    until("the static pod runs", SOON, || (get(kubectl, &name)["status"]["phase"] == "Running").then_some(()));
    std::fs::remove_file(folder.join("fixed.json")).expect("the manifest is removed");
    until("the static pod is gone", SOON, || get(kubectl, &name).is_null().then_some(()));
}

fn an_agent_that_dies_disturbs_nobody(kubectl: &Kubectl, node: &mut Node) {
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default().to_owned();
    let before = id(&get(kubectl, &["pod", "one"]));
    node.restart();
    kubectl.run(&["run", "two", &format!("--image={IMAGE}"), "--restart=Never", "--", "/bin/sleep", "100000"]).ok();
    until("the next pod runs", SOON, || (get(kubectl, &["pod", "two"])["status"]["phase"] == "Running").then_some(()));
    let after = get(kubectl, &["pod", "one"]);
    assert_eq!((id(&after), &after["status"]["containerStatuses"][0]["restartCount"]), (before, &json!(0)));
}

fn deletion_keeps_its_grace(kubectl: &Kubectl) {
    // A shell waits for its trap, so it ends by itself after two seconds; one that ignores the signal is killed after three.
    for (name, script, least, most) in
        [("polite", "trap 'sleep 2; exit 0' TERM; while :; do sleep 1; done", 2, 20), ("stubborn", "trap '' TERM; while :; do sleep 1; done", 3, 20)]
    {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 3,
            "containers": [{"name": "c", "image": IMAGE, "command": ["/bin/sh", "-c", script]}]}});
        kubectl.feed(&["create", "-f", "-"], &pod.to_string()).ok();
        until("the pod runs", SOON, || (get(kubectl, &["pod", name])["status"]["phase"] == "Running").then_some(()));
        let started = Instant::now();
        kubectl.run(&["delete", "pod", name, "--wait=true", "--timeout=60s"]).ok();
        let took = started.elapsed();
        eprintln!("{name}: gone after {took:?}");
        assert!(took >= Duration::from_secs(least) && took < Duration::from_secs(most), "{name}: {took:?}");
    }
}

/// With the node's own credential: its own things, and nobody else's.
fn a_node_is_confined(kubectl: &Kubectl, node: &Node) {
    let state = node.folder.path().join("state");
    let pem = state.join("client.pem");
    let mut https = kubectl.https();
    https.ca = state.join("ca.crt");
    https.certificate = Some((pem.clone(), pem));
    let status = |method: &str, path: &str, body: &str| https.send(&wheelhouse_tests::Request::new(method, path, body)).status;
    assert_eq!(status("GET", "/api/v1/nodes/vm-1", ""), 200);
    // Its network parts need the other nodes' addresses; changing one is another matter.
    assert_eq!(status("GET", "/api/v1/nodes", ""), 200);
    assert_eq!(status("GET", "/api/v1/namespaces/default/configmaps", ""), 403);
    assert_eq!(status("GET", "/api/v1/namespaces/default/secrets", ""), 403);
    assert_eq!(status("GET", "/api/v1/namespaces/kube-system/secrets/x", ""), 403);
    assert_eq!(status("POST", "/api/v1/nodes", r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"vm-2"}}"#), 403);
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"nodeName":"vm-1","containers":[{"name":"c","image":"i"}]}}"#;
    assert_eq!(status("POST", "/api/v1/namespaces/default/pods", pod), 403);
    assert_eq!(
        status(
            "POST",
            "/api/v1/namespaces/default/serviceaccounts/default/token",
            r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}"#
        ),
        403
    );
}
