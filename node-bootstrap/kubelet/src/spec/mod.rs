//! From a pod's spec to what the container runtime is asked for. All pure.

pub mod container;
pub mod env;
pub mod fields;
pub mod labels;
pub mod resources;
pub mod sandbox;
pub mod security;

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};

/// Objects that a pod refers to, as they were read for it. Absent is known to be absent.
#[derive(Clone, Debug, Default)]
pub struct References {
    pub config_maps: BTreeMap<String, ConfigMap>,
    pub secrets: BTreeMap<String, Secret>,
}

/// What the node gives to every pod.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    pub name: String,
    pub ips: Vec<IpAddr>,
    /// `cluster.local`
    pub cluster_domain: String,
    /// Empty: pods use the node's own resolver.
    pub cluster_dns: Vec<IpAddr>,
    /// The node's resolv.conf.
    pub resolver: Resolver,
    /// Milli-CPUs and bytes that pods may use: what a limit is that nobody set.
    pub allocatable_cpu_milli: i64,
    pub allocatable_memory: i64,
    /// Cgroup below which all pods lie, e.g. `/kubepods`.
    pub cgroup_root: String,
    /// Whether the machine has the unified hierarchy.
    pub cgroup_v2: bool,
}

/// The content of a resolv.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

impl Resolver {
    pub fn parse(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => resolver.servers.extend(words.next().map(str::to_owned)),
                // The last line of its kind counts.
                Some("search" | "domain") => resolver.searches = words.map(str::to_owned).collect(),
                Some("options") => resolver.options.extend(words.map(str::to_owned)),
                _ => {}
            }
        }
        resolver
    }
}

/// A pod cannot be turned into what the runtime takes; the text is what upstream shows in `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

pub(crate) fn meta(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

/// `name_namespace(uid)`, as logs and messages name a pod.
pub fn full_name(pod: &Pod) -> String {
    format!("{}_{}({})", meta(&pod.metadata.name), meta(&pod.metadata.namespace), meta(&pod.metadata.uid))
}
