//! The cgroups of pods, on either hierarchy. Containers' own are the runtime's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use crate::spec::NodeFacts;
use crate::spec::resources::{pod_cgroup, pod_limits, weight};

/// Where the kernel's hierarchies are mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// Those in which a pod gets a group of the old hierarchy.
const V1_CONTROLLERS: &[&str] = &["cpu", "cpuacct", "memory", "pids"];

/// Whether the machine uses the unified hierarchy for resources.
pub fn is_v2() -> bool {
    Path::new(MOUNT).join("cgroup.controllers").exists()
}

/// Makes the pod's cgroup with its limits.
pub fn create(pod: &Pod, node: &NodeFacts) -> io::Result<()> {
    let path = pod_cgroup(pod, node);
    let limits = pod_limits(pod);
    if node.cgroup_v2 {
        let folder = Path::new(MOUNT).join(path.trim_start_matches('/'));
        delegate(&path)?;
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("cpu.weight"), weight(limits.shares).to_string())?;
        if let Some(quota) = limits.quota {
            fs::write(folder.join("cpu.max"), format!("{quota} 100000"))?;
        }
        if let Some(memory) = limits.memory {
            fs::write(folder.join("memory.max"), memory.to_string())?;
        }
        return Ok(());
    }
    for folder in v1_folders(&path) {
        fs::create_dir_all(folder)?;
    }
    let within = |controller: &str| Path::new(MOUNT).join(controller).join(path.trim_start_matches('/'));
    fs::write(within("cpu").join("cpu.shares"), limits.shares.to_string())?;
    if let Some(quota) = limits.quota {
        fs::write(within("cpu").join("cpu.cfs_quota_us"), quota.to_string())?;
    }
    if let Some(memory) = limits.memory {
        fs::write(within("memory").join("memory.limit_in_bytes"), memory.to_string())?;
    }
    Ok(())
}

/// Every group on the way down must pass its controllers on.
fn delegate(path: &str) -> io::Result<()> {
    let mut folder = PathBuf::from(MOUNT);
    for part in path.trim_matches('/').split('/') {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("cgroup.subtree_control"), "+cpu +memory +pids")?;
        folder.push(part);
    }
    Ok(())
}

fn v1_folders(path: &str) -> impl Iterator<Item = PathBuf> + '_ {
    let mounted = V1_CONTROLLERS.iter().map(|controller| Path::new(MOUNT).join(controller)).filter(|folder| folder.is_dir());
    mounted.map(move |folder| folder.join(path.trim_start_matches('/')))
}

/// Removes the pod's cgroup with whatever empty groups are left below it. A group that still holds processes stays, and is an error.
pub fn remove(pod: &Pod, node: &NodeFacts) -> io::Result<()> {
    remove_path(&pod_cgroup(pod, node), node.cgroup_v2)
}

pub fn remove_path(path: &str, v2: bool) -> io::Result<()> {
    let mounted: Vec<PathBuf> = if v2 {
        vec![Path::new(MOUNT).to_owned()]
    } else {
        // The runtime puts containers into every hierarchy there is.
        fs::read_dir(MOUNT)?.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let mut result = Ok(());
    for folder in mounted {
        if let Err(error) = remove_tree(&folder.join(path.trim_start_matches('/'))) {
            result = Err(error);
        }
    }
    result
}

fn remove_tree(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
