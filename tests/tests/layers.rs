//! The layers of the workspace: a crate depends only on lower ones, and the pure ones reach no I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cargo_metadata::{DependencyKind, MetadataCommand, PackageId};

/// Decisions only: none of these may reach a runtime, a socket or a disk, even through a dependency of a dependency.
const PURE: &[&str] = &[
    "wheelhouse-base",
    "wheelhouse-schema",
    "wheelhouse-meta",
    "wheelhouse-cel",
    "wheelhouse-kinds",
    "wheelhouse-pki",
    "wheelhouse-access",
    "wheelhouse-mvcc",
];

const IMPURE: &[&str] = &["tokio", "hyper", "tonic", "rocksdb", "rustls", "openraft", "axum"];

/// Lower may not depend on higher. Crates of one layer may depend on each other where cargo allows it.
const LAYERS: &[(u8, &[&str])] = &[
    (0, &["wheelhouse-base", "wheelhouse-schema", "wheelhouse-meta", "wheelhouse-cel", "wheelhouse-history"]),
    (1, &["wheelhouse-kinds", "wheelhouse-pki", "wheelhouse-access", "wheelhouse-mvcc"]),
    (2, &["wheelhouse-runtime", "wheelhouse-client", "wheelhouse-store", "wheelhouse-rocks", "wheelhouse-net"]),
    (3, &["wheelhouse-replication", "wheelhouse-etcd", "wheelhouse-controllers"]),
    (
        4,
        &[
            "wheelhouse-apiserver",
            "wheelhouse-scheduler",
            "wheelhouse-endpoint",
            "wheelhouse-fleet",
            "wheelhouse-cli",
            "wheelhouse-tenant-api",
            "wheelhouse-kubelet",
            "wheelhouse-cni",
            "wheelhouse-dns",
            "wheelhouse-proxy",
        ],
    ),
    (5, &["wheelhouse-host", "wheelhouse-node"]),
    (6, &["wheelhouse-tests"]),
];

struct Graph {
    names: BTreeMap<PackageId, String>,
    /// Normal dependencies alone: tests may reach further.
    edges: BTreeMap<PackageId, Vec<PackageId>>,
}

fn graph() -> Graph {
    let metadata = MetadataCommand::new().manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).exec().expect("cargo metadata");
    let names = metadata.packages.iter().map(|p| (p.id.clone(), p.name.to_string())).collect();
    let mut edges = BTreeMap::new();
    for node in metadata.resolve.expect("a resolved graph").nodes {
        let normal = |dep: &&cargo_metadata::NodeDep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
        edges.insert(node.id, node.deps.iter().filter(normal).map(|dep| dep.pkg.clone()).collect());
    }
    Graph { names, edges }
}

impl Graph {
    fn id(&self, name: &str) -> &PackageId {
        let found = self.names.iter().find(|(_, known)| *known == name);
        found.map(|(id, _)| id).unwrap_or_else(|| panic!("{name} is not in the workspace; mend this test's tables"))
    }

    /// A path from `name` to one of `forbidden`, if there is one.
    fn path_to(&self, name: &str, forbidden: &[&str]) -> Option<Vec<String>> {
        let start = self.id(name);
        let mut queue = VecDeque::from([vec![start.clone()]]);
        let mut seen = BTreeSet::from([start.clone()]);
        while let Some(path) = queue.pop_front() {
            let last = path.last().expect("paths are not empty");
            if forbidden.contains(&self.names[last].as_str()) {
                return Some(path.iter().map(|id| self.names[id].clone()).collect());
            }
            for next in &self.edges[last] {
                if seen.insert(next.clone()) {
                    queue.push_back([path.as_slice(), std::slice::from_ref(next)].concat());
                }
            }
        }
        None
    }
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(_, names)| names.contains(&name)).map(|(layer, _)| *layer)
}

#[test]
fn pure_crates_reach_no_io() {
    let graph = graph();
    for name in PURE {
        if let Some(path) = graph.path_to(name, IMPURE) {
            panic!("{} must stay pure: {}", name, path.join(" -> "));
        }
    }
}

#[test]
fn crates_depend_downwards_only() {
    let graph = graph();
    let mut wrong = Vec::new();
    for (id, name) in graph.names.iter().filter(|(_, name)| name.starts_with("wheelhouse-")) {
        let Some(own) = layer(name) else { panic!("{name} has no layer; give it one in this test") };
        for dependency in &graph.edges[id] {
            let dependency = &graph.names[dependency];
            if let Some(other) = layer(dependency)
                && other > own
            {
                wrong.push(format!("{name} (layer {own}) depends on {dependency} (layer {other})"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
