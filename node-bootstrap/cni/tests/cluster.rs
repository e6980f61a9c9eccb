//! Three nodes, each with the daemon and the plugin, and pods on them: routes, tunnel, masquerade and policies, by real packets.
//!
//! ```text
//!  a 192.0.2.1 ─┐
//!  b 192.0.2.2 ─┴─ router ─── c 198.51.100.3        a and b share a link; c is reached through the tunnel
//! ```

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

#[path = "../../testing/api.rs"]
mod api;

use std::io::ErrorKind;

use api::Api;
use serde_json::Value;
use wheelhouse_cni::daemon::{self, Config, Routing};
use wheelhouse_cni::plugin::call;
use wheelhouse_net::testing::{Namespace, PATIENCE, SILENCE, ask, can_run, enter, wait_for};
use wheelhouse_runtime::shutdown::{StopHandle, stop_pair};

struct Node {
    name: &'static str,
    namespace: Namespace,
    directory: tempfile::TempDir,
    daemon: Option<(StopHandle, std::thread::JoinHandle<()>)>,
}

impl Node {
    fn new(name: &'static str) -> Self {
        Self { name, namespace: Namespace::new(name), directory: tempfile::tempdir().unwrap(), daemon: None }
    }

    fn start(&mut self, api: &Api) {
        let (handle, stop) = stop_pair();
        let (client, path) = (api.client.clone(), self.namespace.path());
        let config = Config {
            node_name: self.name.into(),
            cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
            routing: Routing::Auto,
            mtu: 1450,
            cni_directory: self.directory.path().join("net.d"),
            data_directory: self.directory.path().join("data"),
            dns: vec!["10.96.0.10".parse().unwrap()],
        };
        let thread = std::thread::spawn(move || {
            enter(&path);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(daemon::run(client, config, stop));
        });
        self.daemon = Some((handle, thread));
    }

    /// Attaches a pod as containerd would, with the configuration that the daemon wrote, and answers its address.
    fn attach(&self, pod: &Namespace) -> String {
        let path = self.directory.path().join("net.d/05-wheelhouse.conflist");
        let text = wait_for(|| std::fs::read_to_string(&path).ok(), Option::is_some).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        let mut config = list["plugins"][0].clone();
        config["cniVersion"] = list["cniVersion"].clone();
        config["name"] = list["name"].clone();
        let (id, netns) = (format!("{}-{}", self.name, pod.path().len()), pod.path());
        let id = format!("{id}-{}", netns.rsplit('/').next().unwrap());
        let variable = |name: &str| match name {
            "CNI_COMMAND" => Some("ADD".to_owned()),
            "CNI_CONTAINERID" => Some(id.clone()),
            "CNI_NETNS" => Some(netns.clone()),
            "CNI_IFNAME" => Some("eth0".to_owned()),
            _ => None,
        };
        let result = self.namespace.enter(|| call(variable, config.to_string().as_bytes())).unwrap().unwrap();
        result["ips"][0]["address"].as_str().unwrap().trim_end_matches("/32").to_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.daemon.take() {
            handle.stop();
            let _ = thread.join();
        }
    }
}

struct Cluster {
    a: Node,
    b: Node,
    c: Node,
    router: Namespace,
    api: Api,
}

impl Cluster {
    fn new() -> Self {
        let router = Namespace::new("router");
        router.sysctl("net.ipv4.ip_forward", "1");
        router.ip("link add br0 type bridge");
        router.ip("addr add 192.0.2.254/24 dev br0");
        router.ip("link set br0 up");
        let [mut a, mut b, mut c] = ["a", "b", "c"].map(Node::new);
        for (node, port, address) in [(&a, "pa", "192.0.2.1/24"), (&b, "pb", "192.0.2.2/24")] {
            node.namespace.join("eth0", address, &router, port, "");
            router.ip(&format!("link set {port} master br0"));
            node.namespace.ip("route add default via 192.0.2.254");
        }
        c.namespace.join("eth0", "198.51.100.3/24", &router, "pc", "198.51.100.254/24");
        c.namespace.ip("route add default via 198.51.100.254");
        let api = Api::start();
        for (number, (name, address)) in [("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "198.51.100.3")].into_iter().enumerate() {
            api.put(&format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, spec: {{podCIDR: 10.244.{number}.0/24, podCIDRs: [10.244.{number}.0/24]}},
                  status: {{addresses: [{{type: InternalIP, address: {address}}}]}}}}"
            ));
        }
        for node in [&mut a, &mut b, &mut c] {
            node.start(&api);
        }
        Self { a, b, c, router, api }
    }

    /// Tells the API of a pod.
    fn pod(&self, namespace: &str, name: &str, labels: &str, node: &str, address: &str) {
        self.api.put(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{namespace: {namespace}, name: {name}, labels: {{{labels}}}}},
              spec: {{nodeName: {node}, containers: [{{name: c, ports: [{{name: web, containerPort: 80}}]}}]}}, status: {{podIP: {address}, podIPs: [{{ip: {address}}}]}}}}"
        ));
    }
}

#[test]
fn pods_of_all_nodes_reach_each_other() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::new();
    let pods = ["p0", "p1", "p2"].map(Namespace::new);
    let nodes = [&cluster.a, &cluster.b, &cluster.c];
    let addresses: Vec<String> = nodes.iter().zip(&pods).map(|(node, pod)| node.attach(pod)).collect();
    assert_eq!(addresses, ["10.244.0.2", "10.244.1.2", "10.244.2.2"]);
    for (pod, address) in pods.iter().zip(&addresses) {
        pod.serve("pod", &format!("{address}:80"));
    }
    // Every pair, with the caller's own address at the other end.
    for (from, own) in pods.iter().zip(&addresses) {
        for to in addresses.iter().filter(|to| *to != own) {
            let answer = wait_for(|| from.call(&format!("{to}:80"), SILENCE).ok(), Option::is_some);
            assert_eq!(answer.unwrap(), format!("pod {own}"));
        }
    }
    let routes = cluster.a.namespace.run("ip", &["route"], "");
    assert!(routes.contains("10.244.1.0/24 via 192.0.2.2") && routes.contains("10.244.2.0/24 via 10.244.2.0 dev wheelhouse-vx"), "{routes}");
    // Nodes reach pods of others; a large datagram passes the tunnel in one piece or several.
    assert!(cluster.a.namespace.call("10.244.2.2:80", PATIENCE).is_ok());
    assert!(cluster.c.namespace.call("10.244.0.2:80", PATIENCE).is_ok());
    // The outside sees the node.
    cluster.router.serve("outside", "192.0.2.254:80");
    assert_eq!(pods[0].call("192.0.2.254:80", PATIENCE).unwrap(), "outside 192.0.2.1");
    assert_eq!(pods[2].call("192.0.2.254:80", PATIENCE).unwrap(), "outside 198.51.100.3");

    // A node that goes takes its route along; what somebody removed comes back with the next change.
    cluster.a.namespace.ip("route del 10.244.2.0/24");
    cluster.api.delete("/api/v1/nodes", "", "b");
    wait_for(|| cluster.a.namespace.run("ip", &["route"], ""), |routes| !routes.contains("10.244.1.0/24") && routes.contains("10.244.2.0/24"));
}

#[test]
fn policies_hold() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::new();
    for namespace in ["default", "other"] {
        cluster.api.put(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}, labels: {{team: {namespace}}}}}}}"));
    }
    // `server` and `near` on a, `far` on b, `alien` of another namespace on b.
    let pods = ["server", "near", "far", "alien"].map(Namespace::new);
    let [server, near, far, alien] = &pods;
    let places = [
        (&cluster.a, "default", "app: server"),
        (&cluster.a, "default", "app: near"),
        (&cluster.b, "default", "app: far"),
        (&cluster.b, "other", "app: alien"),
    ];
    let addresses: Vec<String> = places.iter().zip(&pods).map(|((node, ..), pod)| node.attach(pod)).collect();
    for (number, ((node, namespace, labels), address)) in places.iter().zip(&addresses).enumerate() {
        cluster.pod(namespace, &format!("p{number}"), labels, node.name, address);
    }
    let target = &addresses[0];
    for port in [80, 81, 85] {
        server.serve("server", &format!("{target}:{port}"));
    }
    near.serve("near", &format!("{}:80", addresses[1]));
    let open = |from: &Namespace, port: u16| from.call(&format!("{target}:{port}"), SILENCE).is_ok();
    let seen = |port| [near, far, alien].map(|from| open(from, port));
    wait_for(|| seen(80), |seen| *seen == [true; 3]);

    let policy = |name: &str, spec: &str| {
        cluster.api.put(&format!(
            "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{namespace: default, name: {name}}}, spec: {{{spec}}}}}"
        ))
    };
    // Nobody but the node itself, whose probes always pass.
    policy("deny", "podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress]");
    wait_for(|| seen(80), |seen| *seen == [false; 3]);
    assert!(open(&cluster.a.namespace, 80));
    // By labels, on a named port and on a range.
    policy(
        "some",
        "podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: near}}}], ports: [{port: web}, {port: 84, endPort: 86}]}]",
    );
    wait_for(|| seen(80), |seen| *seen == [true, false, false]);
    assert_eq!((seen(81), seen(85)), ([false; 3], [true, false, false]));
    // By namespace.
    policy(
        "team",
        "podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {team: other}}}]}]",
    );
    wait_for(|| seen(81), |seen| *seen == [false, false, true]);
    // By block, with an exception: `near` has an address of a's network, `far` is the first of b's.
    policy(
        "team",
        &format!(
            "podSelector: {{matchLabels: {{app: server}}}}, policyTypes: [Ingress], ingress: [{{from: [{{ipBlock: {{cidr: 10.244.0.0/16, except: [{}/32]}}}}]}}]",
            addresses[2]
        ),
    );
    wait_for(|| seen(81), |seen| *seen == [true, false, true]);
    // A pod that changes its labels changes what it may.
    cluster.pod("default", "p2", "app: near", "b", &addresses[2]);
    wait_for(|| seen(80), |seen| *seen == [true, true, true]);

    // What the server sends: nothing but to `near`, and DNS.
    assert!(server.call(&format!("{}:80", addresses[1]), SILENCE).is_ok());
    cluster.a.namespace.serve("node", "10.244.0.1:8000");
    cluster.a.namespace.ip("addr add 10.96.0.10/32 dev lo");
    cluster.a.namespace.serve("dns", "10.96.0.10:53");
    assert!(server.call("10.244.0.1:8000", PATIENCE).is_ok());
    policy(
        "egress",
        "podSelector: {matchLabels: {app: server}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: near}}}], ports: [{port: web, protocol: TCP}]}]",
    );
    let _ = wait_for(|| server.call("10.244.0.1:8000", SILENCE).map_err(|error| error.kind()), |answer| *answer == Err(ErrorKind::TimedOut));
    assert!(server.call(&format!("{}:80", addresses[1]), PATIENCE).is_ok());
    assert!(server.call("10.96.0.10:53", PATIENCE).is_ok());
    assert!(ask(&server.datagrams(&format!("{target}:0")), "10.96.0.10:53").is_ok());
    // Answers to what came in still leave, and without policies all is open again.
    assert!(open(near, 80));
    for name in ["deny", "some", "team", "egress"] {
        cluster.api.delete("/apis/networking.k8s.io/v1/networkpolicies", "default", name);
    }
    wait_for(|| seen(81), |seen| *seen == [true; 3]);
    wait_for(|| server.call("10.244.0.1:8000", SILENCE).is_ok(), |open| *open);
}
