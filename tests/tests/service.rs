//! From sign-up to kubectl, and with hosts dying underneath. One service for a whole story: starting one is the expensive part.

use std::time::{Duration, Instant};

use wheelhouse_tests::{Kubectl, Service, Tenant, until};

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_tenant_gets_a_cluster_and_works_with_it() {
    let service = Service::start();
    let tenant = service.tenant("first");
    tenant.run(&["cluster", "create", "demo", "--wait=3m"]).ok();
    let kubectl = tenant.kubectl("demo");

    stock_kubectl_works(&kubectl);
    workloads_follow_their_deployment(&kubectl);
    another_tenant_sees_nothing(&service, &tenant);
    revoked_credentials_are_refused(&tenant, &kubectl);
    let kubectl = tenant.kubectl("demo");

    tenant.run(&["cluster", "delete", "demo", "--yes", "--wait=2m"]).ok();
    assert_eq!(tenant.run(&["cluster", "get", "demo"]).code, 3);
    assert_ne!(kubectl.run(&["get", "ns", "--request-timeout=5s"]).code, 0);
}

#[test]
fn acknowledged_writes_survive_a_killed_leader_and_a_restart() {
    let mut service = Service::start();
    let tenant = service.tenant("first");
    tenant.run(&["cluster", "create", "demo", "--wait=3m"]).ok();
    let kubectl = tenant.kubectl("demo");
    writes_survive_the_leader(&service, &tenant, &kubectl);

    service.stop();
    service.up();
    let resumed =
        until("the restarted service answers", SOON, || Some(kubectl.run(&["get", "configmap", "w0", "-o", "name"])).filter(|ran| ran.code == 0));
    assert_eq!(resumed.ok().trim(), "configmap/w0");
}

fn stock_kubectl_works(kubectl: &Kubectl) {
    let names = kubectl.run(&["get", "ns", "-o", "name"]).ok();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        assert!(names.contains(&format!("namespace/{name}\n")), "{names}");
    }
    assert!(kubectl.run(&["api-resources"]).ok().contains("deployments"));
    assert!(kubectl.run(&["explain", "pod"]).ok().contains("KIND:       Pod"));
    assert!(kubectl.run(&["auth", "whoami"]).ok().contains("wheelhouse:cluster-admins"));
    assert!(kubectl.run(&["version"]).ok().contains("Server Version: v1.36."));
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: default}\ndata: {k: one}\n";
    assert!(kubectl.feed(&["apply", "-f", "-"], map).ok().contains("created"));
    assert!(kubectl.feed(&["apply", "-f", "-"], &map.replace("one", "two")).ok().contains("configured"));
    assert_eq!(kubectl.run(&["get", "configmap", "m", "-o", "jsonpath={.data.k}"]).ok(), "two");
    let published = until("kube-root-ca.crt is published", SOON, || {
        Some(kubectl.run(&["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data}"])).filter(|ran| ran.code == 0)
    });
    assert!(published.ok().contains("BEGIN CERTIFICATE"));
}

fn workloads_follow_their_deployment(kubectl: &Kubectl) {
    kubectl.run(&["create", "namespace", "w"]).ok();
    kubectl.run(&["-n", "w", "create", "deployment", "web", "--image=nginx", "--replicas=3"]).ok();
    let pods = || kubectl.run(&["-n", "w", "get", "pods", "-o", "jsonpath={range .items[*]}{.spec.nodeName}/{.status.phase} {end}"]).out;
    until("three pods wait for a node", SOON, || (pods().split_whitespace().count() == 3).then_some(()));
    until("the scheduler says why", SOON, || {
        let events = kubectl.run(&["-n", "w", "get", "events", "-o", "jsonpath={.items[*].reason}"]).out;
        events.contains("FailedScheduling").then_some(())
    });
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}"#;
    kubectl.feed(&["create", "-f", "-"], node).ok();
    let status = r#"{"status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},"capacity":{"cpu":"4","memory":"8Gi","pods":"110"},"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":"2038-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    kubectl.run(&["patch", "node", "n1", "--subresource=status", "--type=merge", "-p", status]).ok();
    // A node is created with the not-ready taint; its own controller would take it away.
    kubectl.run(&["patch", "node", "n1", "--type=json", "-p", r#"[{"op":"add","path":"/spec/taints","value":[]}]"#]).ok();
    until("all pods are bound", SOON, || (pods().matches("n1/").count() == 3).then_some(()));
    kubectl.run(&["-n", "w", "scale", "deployment", "web", "--replicas=5"]).ok();
    until("it scales up", SOON, || (pods().split_whitespace().count() == 5).then_some(()));
    kubectl.run(&["-n", "w", "set", "image", "deployment/web", "nginx=nginx:2"]).ok();
    until("a second revision", SOON, || (kubectl.run(&["-n", "w", "get", "rs", "-o", "name"]).out.lines().count() == 2).then_some(()));
    kubectl.run(&["-n", "w", "rollout", "undo", "deployment/web"]).ok();
    let image = || kubectl.run(&["-n", "w", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"]).out;
    assert_eq!(image(), "nginx");
    // No kubelet ends the bound pods, so that part is played here: without their node new ones stay unbound and go at once.
    kubectl.run(&["delete", "node", "n1"]).ok();
    kubectl.run(&["-n", "w", "delete", "pods", "--all", "--force", "--grace-period=0"]).ok();
    kubectl.run(&["delete", "namespace", "w", "--timeout=60s"]).ok();
    assert_ne!(kubectl.run(&["get", "namespace", "w"]).code, 0);
}

fn another_tenant_sees_nothing(service: &Service, first: &Tenant) {
    let second = service.tenant("second");
    assert!(!second.run(&["cluster", "list", "-o", "json"]).ok().contains("demo"));
    for args in [
        &["cluster", "get", "demo"][..],
        &["cluster", "delete", "demo", "--yes"],
        &["cluster", "kubeconfig", "demo"],
        &["cluster", "scale", "demo", "--replicas", "5"],
        &["node-token", "list", "demo"],
    ] {
        assert_eq!(second.run(args).code, 3, "{args:?}: what is another's does not exist");
    }
    assert!(first.run(&["cluster", "list", "-o", "json"]).ok().contains("demo"));
}

fn revoked_credentials_are_refused(tenant: &Tenant, kubectl: &Kubectl) {
    let list = tenant.run(&["cluster", "kubeconfig", "demo", "--list", "-o", "json"]).json();
    let id = list["items"][0]["id"].as_str().expect("the kubeconfig is listed").to_owned();
    tenant.run(&["cluster", "kubeconfig", "demo", "--revoke", &id]).ok();
    let refused = until("the credential is refused", SOON, || Some(kubectl.run(&["get", "ns"])).filter(|ran| ran.code != 0));
    assert!(refused.err.contains("Unauthorized") || refused.err.contains("logged in"), "{}", refused.err);
    let token = tenant.run(&["node-token", "create", "demo", "-o", "json"]).json();
    assert!(token["joinCommand"].as_str().is_some_and(|line| line.contains("--ca-cert-hash sha256:")), "{token}");
}

/// Writes in a loop while the leader's host is killed: whatever was acknowledged is there afterwards.
fn writes_survive_the_leader(service: &Service, tenant: &Tenant, kubectl: &Kubectl) {
    let id = tenant.run(&["cluster", "get", "demo", "-o", "json"]).json()["id"].as_str().expect("an id").to_owned();
    let leader = until("a leader is known", SOON, || {
        let path = format!("jsonpath={{.items[?(@.status.clusterID==\"{id}\")].status.leader}}");
        let leader = service.operator().run(&["get", "clusters", "-A", "-o", &path]).out;
        (!leader.trim().is_empty()).then(|| leader.trim().to_owned())
    });
    let (mut acknowledged, mut longest) = (Vec::new(), Duration::ZERO);
    let mut last = Instant::now();
    for i in 0..40 {
        if i == 5 {
            service.kill_host(&leader);
        }
        let name = format!("w{i}");
        if kubectl.run(&["create", "configmap", &name, "--request-timeout=10s"]).code == 0 {
            acknowledged.push(name);
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    eprintln!("longest gap between acknowledged writes over a kill of {leader}: {longest:?}");
    assert!(acknowledged.len() >= 30, "only {} of 40 writes were taken", acknowledged.len());
    let names = until("reads work", SOON, || Some(kubectl.run(&["get", "configmaps", "-o", "name"])).filter(|ran| ran.code == 0)).out;
    for name in &acknowledged {
        assert!(names.contains(&format!("configmap/{name}\n")), "{name} was acknowledged and is lost");
    }
}
