//! The plugin's calls on a node that is a network namespace, with pods that are namespaces too: what packets do, and what is left behind.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

use std::io::ErrorKind;

use serde_json::{Value, json};
use wheelhouse_cni::plugin::call;
use wheelhouse_net::testing::{Namespace, PATIENCE, SILENCE, can_run};

struct Node {
    namespace: Namespace,
    directory: tempfile::TempDir,
    pod_cidrs: Vec<String>,
}

impl Node {
    fn new(pod_cidrs: &[&str]) -> Self {
        Self {
            namespace: Namespace::new("node"),
            directory: tempfile::tempdir().unwrap(),
            pod_cidrs: pod_cidrs.iter().map(|c| (*c).to_owned()).collect(),
        }
    }

    /// One call, with `more` merged into the configuration.
    fn call(&self, command: &str, id: &str, pod: Option<&Namespace>, more: Value) -> Result<Option<Value>, Value> {
        let mut config =
            json!({"cniVersion": "1.1.0", "name": "test", "type": "wheelhouse-cni", "podCIDRs": self.pod_cidrs, "dataDir": self.directory.path()});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let netns = pod.map(Namespace::path);
        let variable = |name: &str| match name {
            "CNI_COMMAND" => Some(command.to_owned()),
            "CNI_CONTAINERID" => Some(id.to_owned()),
            "CNI_NETNS" => netns.clone(),
            "CNI_IFNAME" => Some("eth0".to_owned()),
            _ => None,
        };
        self.namespace.enter(|| call(variable, config.to_string().as_bytes()))
    }

    fn add(&self, id: &str, pod: &Namespace, more: Value) -> Value {
        self.call("ADD", id, Some(pod), more).unwrap().unwrap()
    }

    fn addresses(&self) -> usize {
        let entries = std::fs::read_dir(self.directory.path().join("test")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("address-")).count()
    }

    fn ports(&self) -> String {
        self.namespace.run("ip", &["-br", "link", "show", "master", "wheelhouse0"], "")
    }
}

#[test]
fn pods_reach_each_other_and_leave_nothing_behind() {
    if !can_run() {
        return;
    }
    let node = Node::new(&["10.244.7.0/24", "fd00:244:0:7::/64"]);
    let [a, b] = ["a", "b"].map(Namespace::new);
    let answer = node.add("a1", &a, json!({}));
    assert_eq!(answer["cniVersion"], "1.1.0");
    assert_eq!(answer["ips"][0], json!({"address": "10.244.7.2/32", "gateway": "10.244.7.1", "interface": 1}));
    assert_eq!(answer["ips"][1]["address"], "fd00:244:0:7::2/128");
    assert_eq!(answer["interfaces"][1]["sandbox"], a.path());
    assert!(answer["interfaces"][0]["mac"].as_str().unwrap().len() == 17 && answer["interfaces"][1]["mac"].as_str().unwrap().len() == 17);
    node.add("b1", &b, json!({}));
    b.serve("b", "10.244.7.3:80");
    b.serve("b6", "[fd00:244:0:7::3]:80");
    node.namespace.serve("node", "10.244.7.1:81");
    assert_eq!(a.call("10.244.7.3:80", PATIENCE).unwrap(), "b 10.244.7.2");
    assert_eq!(a.call("[fd00:244:0:7::3]:80", PATIENCE).unwrap(), "b6 fd00:244:0:7::2");
    assert_eq!(node.namespace.call("10.244.7.3:80", PATIENCE).unwrap(), "b 10.244.7.1");
    assert_eq!(a.call("10.244.7.1:81", PATIENCE).unwrap(), "node 10.244.7.2");
    // What goes to a neighbour passes the node's forwarding, where policies hold: the link alone does not lead there.
    node.namespace.run("nft", &["-f", "-"], "table ip t {\nchain f { type filter hook forward priority 0; policy drop; }\n}");
    assert_eq!(a.call("10.244.7.3:80", SILENCE).unwrap_err().kind(), ErrorKind::TimedOut);
    a.ip("route add 10.244.7.3 dev eth0 scope link");
    assert!(a.call("10.244.7.3:80", SILENCE).is_err());
    node.namespace.run("nft", &["delete", "table", "ip", "t"], "");
    a.ip("route del 10.244.7.3 dev eth0");

    assert_eq!(node.call("CHECK", "a1", Some(&a), json!({})), Ok(None));
    assert_eq!(node.call("CHECK", "b1", Some(&a), json!({})).unwrap_err()["code"], 100);
    // Repeated: the same address and one port.
    assert_eq!(node.add("a1", &a, json!({}))["ips"][0]["address"], "10.244.7.2/32");
    assert_eq!(a.call("10.244.7.3:80", PATIENCE).unwrap(), "b 10.244.7.2");
    assert_eq!(node.ports().lines().count(), 2);

    // DEL twice, for one that never was, without a namespace, and after the namespace went.
    assert_eq!(node.call("DEL", "a1", Some(&a), json!({})), Ok(None));
    assert_eq!(node.call("DEL", "a1", None, json!({})), Ok(None));
    assert_eq!(node.call("DEL", "never", None, json!({})), Ok(None));
    drop(b);
    assert_eq!(node.call("DEL", "b1", None, json!({})), Ok(None));
    assert_eq!((node.addresses(), node.ports().as_str()), (0, ""));
}

#[test]
fn a_failed_add_takes_nothing_and_garbage_is_collected() {
    if !can_run() {
        return;
    }
    let node = Node::new(&["10.244.7.0/24"]);
    let gone = { Namespace::new("gone").path() };
    let config =
        json!({"cniVersion": "1.0.0", "name": "test", "type": "wheelhouse-cni", "podCIDRs": ["10.244.7.0/24"], "dataDir": node.directory.path()});
    let environment = |name: &str| {
        [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "x"), ("CNI_NETNS", &gone), ("CNI_IFNAME", "eth0")]
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| (*v).to_owned())
    };
    let error = node.namespace.enter(|| call(environment, config.to_string().as_bytes())).unwrap_err();
    assert_eq!((error["cniVersion"].as_str(), node.addresses()), (Some("1.0.0"), 0), "{error}");

    let pods: Vec<Namespace> = (0..3).map(|_| Namespace::new("pod")).collect();
    for (number, pod) in pods.iter().enumerate() {
        node.add(&format!("p{number}"), pod, json!({"runtimeConfig": {"portMappings": [{"hostPort": 9000 + number, "containerPort": 80}]}}));
    }
    assert_eq!(node.call("GC", "", None, json!({})).unwrap_err()["code"], 7);
    assert_eq!(node.call("GC", "", None, json!({"cni.dev/valid-attachments": [{"containerID": "p1", "ifname": "eth0"}]})), Ok(None));
    assert_eq!((node.addresses(), node.ports().lines().count()), (1, 1));
    let table = node.namespace.run("nft", &["list", "table", "ip", "wheelhouse-hostports"], "");
    assert!(table.contains("tcp . 9001 : 10.244.7.4 . 80") && !table.contains("9000") && !table.contains("9002"), "{table}");
    assert_eq!(node.call("STATUS", "", None, json!({})), Ok(None));
    assert_eq!(node.call("STATUS", "", None, json!({"podCIDRs": []})).unwrap_err()["code"], 7);
    let full = Node::new(&["10.244.7.0/30"]);
    full.add("one", &pods[0], json!({}));
    assert_eq!(full.call("ADD", "two", Some(&pods[1]), json!({})).unwrap_err()["code"], 11);
}

#[test]
fn host_ports_and_bandwidth() {
    if !can_run() {
        return;
    }
    let node = Node::new(&["10.244.7.0/24"]);
    let [pod, outside] = ["pod", "outside"].map(Namespace::new);
    node.namespace.join("eth0", "192.0.2.1/24", &outside, "eth0", "192.0.2.100/24");
    node.namespace.ip("addr add 192.0.2.2/24 dev eth0");
    let mappings =
        json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 8081, "containerPort": 80, "hostIP": "192.0.2.2"}]);
    // Kernels without the police action cannot limit what pods send, so only the other direction is asked for here.
    let bandwidth = json!({"ingressRate": 8_000_000, "ingressBurst": 800_000});
    node.add("p", &pod, json!({"runtimeConfig": {"portMappings": mappings, "bandwidth": bandwidth}}));
    pod.serve("pod", "10.244.7.2:80");
    assert_eq!(outside.call("192.0.2.1:8080", PATIENCE).unwrap(), "pod 192.0.2.100");
    assert_eq!(node.namespace.call("192.0.2.1:8080", PATIENCE).unwrap(), "pod 192.0.2.1");
    assert_eq!(pod.call("192.0.2.1:8080", PATIENCE).unwrap(), "pod 10.244.7.1");
    assert_eq!(outside.call("192.0.2.2:8081", PATIENCE).unwrap(), "pod 192.0.2.100");
    assert_eq!(outside.call("192.0.2.1:8081", PATIENCE).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let shapers = node.namespace.run("tc", &["qdisc", "show"], "");
    assert!(shapers.contains("tbf") && shapers.contains("rate 8Mbit"), "{shapers}");
    node.call("DEL", "p", Some(&pod), json!({})).unwrap();
    assert_eq!(outside.call("192.0.2.1:8080", PATIENCE).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
