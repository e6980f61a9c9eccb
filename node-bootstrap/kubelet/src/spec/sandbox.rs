//! A pod's sandbox: names, DNS, host ports, namespaces, sysctls.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;

use super::{NodeFacts, Resolver, labels, meta, resources, security};
use crate::cri::api::{DnsConfig, LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol};

/// The kernel's limit of a host name.
const HOSTNAME_MAX: usize = 63;

pub fn config(pod: &Pod, node: &NodeFacts, attempt: u32, log_directory: &str) -> PodSandboxConfig {
    let spec = pod.spec.clone().unwrap_or_default();
    let (name, namespace, uid) = (meta(&pod.metadata.name), meta(&pod.metadata.namespace), meta(&pod.metadata.uid));
    let mut all_labels: HashMap<String, String> = pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    for (key, value) in [(labels::POD_NAME, name), (labels::POD_NAMESPACE, namespace), (labels::POD_UID, uid)] {
        all_labels.insert(key.to_owned(), value.to_owned());
    }
    let host_network = spec.host_network == Some(true);
    let sysctls = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata { name: name.into(), uid: uid.into(), namespace: namespace.into(), attempt }),
        // With the host's network the host's name is used.
        hostname: if host_network { String::new() } else { hostname(pod) },
        log_directory: log_directory.to_owned(),
        dns_config: Some(dns(pod, node)),
        port_mappings: if host_network { Vec::new() } else { port_mappings(pod) },
        labels: all_labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: resources::pod_cgroup(pod, node),
            security_context: Some(security::of_sandbox(pod)),
            sysctls: sysctls.map(|sysctl| (sysctl.name.clone(), sysctl.value.clone())).collect(),
            ..LinuxPodSandboxConfig::default()
        }),
        windows: None,
    }
}

pub fn hostname(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let chosen = spec.and_then(|s| s.hostname_override.clone().or_else(|| s.hostname.clone())).filter(|name| !name.is_empty());
    let mut name = chosen.unwrap_or_else(|| meta(&pod.metadata.name).to_owned());
    name.truncate(HOSTNAME_MAX);
    name.trim_end_matches(['-', '.']).to_owned()
}

/// `host.subdomain.namespace.svc.domain`, for pods that a headless service names.
pub fn domain(pod: &Pod, node: &NodeFacts) -> Option<String> {
    let subdomain = pod.spec.as_ref()?.subdomain.as_deref().filter(|name| !name.is_empty())?;
    Some(format!("{subdomain}.{}.svc.{}", meta(&pod.metadata.namespace), node.cluster_domain))
}

fn dns(pod: &Pod, node: &NodeFacts) -> DnsConfig {
    let spec = pod.spec.clone().unwrap_or_default();
    let own = &node.resolver;
    let cluster = || {
        let base = &node.cluster_domain;
        let namespace = meta(&pod.metadata.namespace);
        let mut searches = vec![format!("{namespace}.svc.{base}"), format!("svc.{base}"), base.clone()];
        searches.extend(own.searches.iter().cloned());
        Resolver { servers: node.cluster_dns.iter().map(ToString::to_string).collect(), searches, options: vec!["ndots:5".to_owned()] }
    };
    let mut resolver = match spec.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "None" => Resolver::default(),
        "ClusterFirstWithHostNet" if !node.cluster_dns.is_empty() => cluster(),
        "ClusterFirst" if !node.cluster_dns.is_empty() && spec.host_network != Some(true) => cluster(),
        _ => own.clone(),
    };
    if let Some(config) = spec.dns_config {
        let add = |list: &mut Vec<String>, more: Option<Vec<String>>| {
            for item in more.into_iter().flatten() {
                if !list.contains(&item) {
                    list.push(item);
                }
            }
        };
        add(&mut resolver.servers, config.nameservers);
        add(&mut resolver.searches, config.searches);
        for option in config.options.into_iter().flatten() {
            let name = option.name.unwrap_or_default();
            resolver.options.retain(|known| known.split(':').next() != Some(name.as_str()));
            resolver.options.push(option.value.filter(|value| !value.is_empty()).map_or(name.clone(), |value| format!("{name}:{value}")));
        }
    }
    DnsConfig { servers: resolver.servers, searches: resolver.searches, options: resolver.options }
}

fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    let spec = pod.spec.as_ref();
    let sidecars = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).filter(|c| crate::lifecycle::is_sidecar(c));
    let containers = spec.iter().flat_map(|spec| &spec.containers).chain(sidecars);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let host_port = port.host_port.filter(|port| *port > 0)?;
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
            };
            let host_ip = port.host_ip.clone().unwrap_or_default();
            Some(PortMapping { protocol: protocol as i32, container_port: port.container_port, host_port, host_ip })
        })
        .collect()
}

/// The `/etc/hosts` of a pod with its own network.
pub fn hosts_file(pod: &Pod, node: &NodeFacts, ips: &[String]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    let host = hostname(pod);
    for ip in ips {
        match domain(pod, node) {
            Some(domain) => text.push_str(&format!("{ip}\t{host}.{domain}\t{host}\n")),
            None => text.push_str(&format!("{ip}\t{host}\n")),
        }
    }
    text + &aliases(pod)
}

/// `hostAliases` as lines, for both kinds of network.
pub fn aliases(pod: &Pod) -> String {
    let aliases: Vec<_> = pod.spec.iter().flat_map(|spec| spec.host_aliases.iter().flatten()).collect();
    if aliases.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "ns", "uid": "u"}, "spec": spec}))
            .unwrap()
    }

    fn node() -> NodeFacts {
        NodeFacts {
            cluster_domain: "cluster.local".into(),
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            resolver: Resolver::parse("nameserver 1.1.1.1\nsearch corp\n"),
            cgroup_root: "/kubepods".into(),
            ..NodeFacts::default()
        }
    }

    #[test]
    fn names_are_resolved_in_the_cluster_first() {
        let config = config(&pod(json!({"containers": []})), &node(), 0, "/logs");
        let dns = config.dns_config.unwrap();
        assert_eq!(dns.servers, ["10.96.0.10"]);
        assert_eq!(dns.searches, ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp"]);
        assert_eq!(dns.options, ["ndots:5"]);
        let host = super::config(&pod(json!({"hostNetwork": true, "containers": []})), &node(), 0, "/logs");
        assert_eq!((host.dns_config.unwrap().servers, host.hostname), (vec!["1.1.1.1".to_owned()], String::new()));
        let own =
            json!({"dnsPolicy": "ClusterFirst", "dnsConfig": {"options": [{"name": "ndots", "value": "2"}], "searches": ["x"]}, "containers": []});
        let dns = super::dns(&pod(own), &node());
        assert_eq!((dns.options, dns.searches.last().unwrap().as_str()), (vec!["ndots:2".to_owned()], "x"));
    }

    #[test]
    fn hosts_name_the_pod_under_its_subdomain() {
        let text = hosts_file(
            &pod(json!({"subdomain": "web", "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}], "containers": []})),
            &node(),
            &["10.0.0.5".into()],
        );
        assert!(text.contains("10.0.0.5\tweb-0.web.ns.svc.cluster.local\tweb-0\n"), "{text}");
        assert!(text.ends_with("1.2.3.4\ta\tb\n"), "{text}");
    }
}
