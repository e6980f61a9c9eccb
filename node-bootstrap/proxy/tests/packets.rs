//! The proxy on a node with two pods and a neighbour, all of them network namespaces: what packets do.
//!
//! ```text
//!  outside 192.0.2.100 ── 192.0.2.1 node ── 10.244.1.2 pod a
//!                                        └─ 10.244.1.3 pod b
//! ```

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

#[path = "../../testing/api.rs"]
mod api;

use std::collections::BTreeSet;
use std::io::ErrorKind;

use api::Api;
use wheelhouse_net::testing::{Namespace, PATIENCE, SILENCE, ask, can_run, wait_for};
use wheelhouse_proxy::Config;
use wheelhouse_runtime::Metrics;
use wheelhouse_runtime::shutdown::{StopHandle, stop_pair};

struct World {
    node: Namespace,
    a: Namespace,
    b: Namespace,
    outside: Namespace,
    api: Api,
    metrics: Metrics,
    proxy: Option<(StopHandle, std::thread::JoinHandle<()>)>,
}

impl World {
    fn new() -> Self {
        let [node, a, b, outside] = ["node", "a", "b", "outside"].map(Namespace::new);
        node.sysctl("net.ipv4.ip_forward", "1");
        node.join("eth0", "192.0.2.1/24", &outside, "eth0", "192.0.2.100/24");
        for (pod, last) in [(&a, 2), (&b, 3)] {
            let host_side = format!("pod{last}");
            node.join(&host_side, "169.254.1.1/32", pod, "eth0", &format!("10.244.1.{last}/32"));
            node.ip(&format!("route add 10.244.1.{last} dev {host_side}"));
            pod.ip("route add 169.254.1.1 dev eth0");
            pod.ip("route add default via 169.254.1.1");
            pod.serve(if last == 2 { "a" } else { "b" }, &format!("10.244.1.{last}:8080"));
        }
        node.ip("route add default via 192.0.2.100");
        outside.ip("route add 10.96.0.0/16 via 192.0.2.1");
        let mut world = Self { node, a, b, outside, api: Api::start(), metrics: Metrics::default(), proxy: None };
        world.start_proxy();
        world
    }

    /// The proxy runs on one thread inside the node's namespace, as do the programs that it starts.
    fn start_proxy(&mut self) {
        let (handle, stop) = stop_pair();
        let (client, path, metrics) = (self.api.client.clone(), self.node.path(), self.metrics.clone());
        let config = Config {
            node_name: "n1".into(),
            cluster_cidrs: vec!["10.244.0.0/16".into()],
            own_addresses: BTreeSet::new(),
            health_listen: Some("127.0.0.1:10256".parse().unwrap()),
        };
        let thread = std::thread::spawn(move || {
            wheelhouse_net::testing::enter(&path);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(wheelhouse_proxy::run(client, config, &metrics, stop)).unwrap();
        });
        self.proxy = Some((handle, thread));
    }

    fn stop_proxy(&mut self) {
        let (handle, thread) = self.proxy.take().unwrap();
        handle.stop();
        thread.join().unwrap();
    }

    /// Every change was taken as a change: writing the whole tables would hide a wrong one, and forget clients.
    fn assert_no_patch_was_refused(&self) {
        assert!(!self.metrics.render().contains("refused_patches"), "{}", self.metrics.render());
    }

    fn put(&self, yaml: &str) {
        self.api.put(yaml);
    }

    fn service(&self, name: &str, spec: &str) {
        self.put(&format!("{{apiVersion: v1, kind: Service, metadata: {{namespace: default, name: {name}}}, spec: {{{spec}}}}}"));
    }

    /// Endpoints by the last number of their address and their node.
    fn endpoints(&self, name: &str, protocol: &str, endpoints: &[(u8, &str)]) {
        let list: Vec<String> =
            endpoints.iter().map(|(last, node)| format!("{{addresses: [10.244.1.{last}], nodeName: {node}, conditions: {{ready: true}}}}")).collect();
        self.put(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [{}], ports: [{{name: '', port: 8080, protocol: {protocol}}}],
              metadata: {{namespace: default, name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}}}",
            list.join(", ")
        ));
    }

    /// What twenty calls one after the other were answered.
    fn calls(from: &Namespace, address: &str) -> BTreeSet<String> {
        (0..20).map(|_| from.call(address, PATIENCE).unwrap_or_else(|error| format!("{:?}", error.kind()))).collect()
    }

    fn until(from: &Namespace, address: &str, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|s| (*s).to_owned()).collect();
        wait_for(|| Self::calls(from, address), |seen| *seen == expected);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.proxy.take() {
            handle.stop();
            let _ = thread.join();
        }
    }
}

#[test]
fn cluster_ips() {
    if !can_run() {
        return;
    }
    let mut world = World::new();
    world.service("web", "clusterIP: 10.96.0.50, ports: [{port: 80, targetPort: 8080}]");
    world.endpoints("web", "TCP", &[(2, "n1"), (3, "n1")]);
    // Both endpoints get their share, the caller's address stays, and a pod that reaches itself sees the node instead.
    World::until(&world.a, "10.96.0.50:80", &["a 169.254.1.1", "b 10.244.1.2"]);
    World::until(&world.b, "10.96.0.50:80", &["a 10.244.1.3", "b 169.254.1.1"]);
    // The node itself, and who comes from outside with a route.
    World::until(&world.node, "10.96.0.50:80", &["a 169.254.1.1", "b 169.254.1.1"]);
    World::until(&world.outside, "10.96.0.50:80", &["a 169.254.1.1", "b 169.254.1.1"]);
    // A port that the service does not have is refused at once, not dropped.
    assert_eq!(world.a.call("10.96.0.50:81", PATIENCE).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(world.node.call("10.96.0.50:81", PATIENCE).unwrap_err().kind(), ErrorKind::ConnectionRefused);

    world.endpoints("web", "TCP", &[(3, "n1")]);
    World::until(&world.a, "10.96.0.50:80", &["b 10.244.1.2"]);
    world.endpoints("web", "TCP", &[]);
    World::until(&world.a, "10.96.0.50:80", &["ConnectionRefused"]);

    world.assert_no_patch_was_refused();

    // What changes while no proxy runs, and what somebody else removed, is made good.
    world.stop_proxy();
    world.service("late", "clusterIP: 10.96.0.51, ports: [{port: 80}]");
    world.endpoints("late", "TCP", &[(2, "n1")]);
    world.api.delete("/api/v1/services", "default", "web");
    world.start_proxy();
    World::until(&world.b, "10.96.0.51:80", &["a 10.244.1.3"]);
    assert!(!world.node.run("nft", &["list", "table", "ip", "wheelhouse-proxy"], "").contains("10.96.0.50"));
    world.node.run("nft", &["flush", "ruleset"], "");
    world.endpoints("late", "TCP", &[(3, "n1")]);
    World::until(&world.a, "10.96.0.51:80", &["b 10.244.1.2"]);
}

#[test]
fn from_outside() {
    if !can_run() {
        return;
    }
    let world = World::new();
    world.outside.ip("route add 198.51.100.0/24 via 192.0.2.1");
    world.service("np", "type: NodePort, clusterIP: 10.96.0.71, externalIPs: [198.51.100.7], ports: [{port: 80, targetPort: 8080, nodePort: 30080}]");
    world.endpoints("np", "TCP", &[(2, "n1"), (3, "n2")]);
    World::until(&world.outside, "192.0.2.1:30080", &["a 169.254.1.1", "b 169.254.1.1"]);
    World::until(&world.outside, "198.51.100.7:80", &["a 169.254.1.1", "b 169.254.1.1"]);
    World::until(&world.a, "192.0.2.1:30080", &["a 169.254.1.1", "b 169.254.1.1"]);
    World::until(&world.node, "192.0.2.1:30080", &["a 169.254.1.1", "b 169.254.1.1"]);

    // With the policy Local only the endpoint of this node is used, and the caller's address stays.
    world.service("np", "type: NodePort, clusterIP: 10.96.0.71, externalTrafficPolicy: Local, externalIPs: [198.51.100.7], ports: [{port: 80, targetPort: 8080, nodePort: 30080}]");
    World::until(&world.outside, "192.0.2.1:30080", &["a 192.0.2.100"]);
    World::until(&world.outside, "198.51.100.7:80", &["a 192.0.2.100"]);
    World::until(&world.a, "198.51.100.7:80", &["a 169.254.1.1", "b 10.244.1.2"]);
    // With none here, the outside hears nothing, which tells a load balancer to go elsewhere; pods still reach it.
    world.endpoints("np", "TCP", &[(3, "n2")]);
    World::until(&world.a, "198.51.100.7:80", &["b 10.244.1.2"]);
    assert_eq!(world.outside.call("192.0.2.1:30080", SILENCE).unwrap_err().kind(), ErrorKind::TimedOut);
    world.endpoints("np", "TCP", &[]);
    World::until(&world.outside, "192.0.2.1:30080", &["ConnectionRefused"]);

    let lb = "type: LoadBalancer, clusterIP: 10.96.0.72, externalTrafficPolicy: Local, healthCheckNodePort: 31999, loadBalancerSourceRanges: [203.0.113.0/24], ports: [{port: 80, targetPort: 8080, nodePort: 30081}]";
    world.put(&format!("{{apiVersion: v1, kind: Service, metadata: {{namespace: default, name: lb}}, spec: {{{lb}}}, status: {{loadBalancer: {{ingress: [{{ip: 198.51.100.8}}]}}}}}}"));
    world.endpoints("lb", "TCP", &[(2, "n1")]);
    let health = |port: u16| {
        world.node.enter(|| {
            let mut stream = std::net::TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), PATIENCE)?;
            std::io::Write::write_all(&mut stream, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")?;
            let mut answer = String::new();
            std::io::Read::read_to_string(&mut stream, &mut answer)?;
            Ok::<_, std::io::Error>(answer)
        })
    };
    let _ = wait_for(|| health(31999), |answer| answer.as_ref().is_ok_and(|text| text.contains("200 OK") && text.contains("\"localEndpoints\":1")));
    assert!(health(10256).unwrap().contains("200 OK"));
    // Outside of the allowed ranges.
    assert_eq!(world.outside.call("198.51.100.8:80", SILENCE).unwrap_err().kind(), ErrorKind::TimedOut);
    world.outside.ip("addr add 203.0.113.5/32 dev lo");
    world.node.ip("route add 203.0.113.5 via 192.0.2.100");
    world.outside.ip("route replace 198.51.100.8 via 192.0.2.1 src 203.0.113.5");
    World::until(&world.outside, "198.51.100.8:80", &["a 203.0.113.5"]);
    world.endpoints("lb", "TCP", &[(3, "n2")]);
    let _ = wait_for(|| health(31999), |answer| answer.as_ref().is_ok_and(|text| text.contains("503")));
    world.assert_no_patch_was_refused();
}

#[test]
fn clients_stay_with_their_endpoint() {
    if !can_run() {
        return;
    }
    let world = World::new();
    world.service(
        "sticky",
        "type: NodePort, clusterIP: 10.96.0.60, sessionAffinity: ClientIP, ports: [{port: 80, targetPort: 8080, nodePort: 30090}]",
    );
    world.endpoints("sticky", "TCP", &[(2, "n1"), (3, "n1")]);
    let first = |calls: BTreeSet<String>| {
        assert_eq!(calls.len(), 1, "{calls:?}");
        calls.first().unwrap()[..1].to_owned()
    };
    let _ = wait_for(|| world.outside.call("10.96.0.60:80", SILENCE), Result::is_ok);
    let chosen = first(World::calls(&world.outside, "10.96.0.60:80"));
    // The node port shares the memory, as one service.
    assert_eq!(first(World::calls(&world.outside, "192.0.2.1:30090")), chosen);
    // Its endpoint leaves: the client is given the other one, and stays with that when the first is back.
    let (gone, left) = if chosen == "a" { (2, 3) } else { (3, 2) };
    world.endpoints("sticky", "TCP", &[(left, "n1")]);
    let other = if chosen == "a" { "b 169.254.1.1" } else { "a 169.254.1.1" };
    World::until(&world.outside, "10.96.0.60:80", &[other]);
    world.endpoints("sticky", "TCP", &[(gone, "n1"), (left, "n1")]);
    world.service("marker", "clusterIP: 10.96.0.61, ports: [{port: 80, targetPort: 8080}]");
    world.endpoints("marker", "TCP", &[(2, "n1")]);
    World::until(&world.b, "10.96.0.61:80", &["a 10.244.1.3"]);
    assert_eq!(World::calls(&world.outside, "10.96.0.60:80"), BTreeSet::from([other.to_owned()]));
    world.assert_no_patch_was_refused();
}

#[test]
fn datagrams_follow_the_endpoints() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let socket = world.a.datagrams("10.244.1.2:5000");
    // Asked before the service exists: conntrack remembers that it led nowhere.
    assert!(ask(&socket, "10.96.0.70:53").is_err());
    world.service("dns", "clusterIP: 10.96.0.70, ports: [{port: 53, targetPort: 8080, protocol: UDP}]");
    world.endpoints("dns", "UDP", &[(3, "n1")]);
    wait_for(|| ask(&socket, "10.96.0.70:53").ok(), |answer| answer.as_deref() == Some("b 10.244.1.2"));
    // The same flow moves on when its endpoint goes, though it never falls silent.
    world.endpoints("dns", "UDP", &[(2, "n1")]);
    wait_for(|| ask(&socket, "10.96.0.70:53").ok(), |answer| answer.as_deref() == Some("a 169.254.1.1"));
    world.assert_no_patch_was_refused();
}
