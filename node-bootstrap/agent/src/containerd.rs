//! The node's own containerd: its configuration and its life.
//!
//! It is not a child that dies with the agent: containers must run on while the agent restarts, so a containerd that answers is taken as it is, and only
//! one that does not is started.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use wheelhouse_kubelet::cri::Runtime;

use crate::layout::{Layout, LayoutError};
use crate::pause;

/// Where distributions put the network plugins.
const PLUGIN_FOLDERS: &[&str] = &["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];
/// How long a containerd may take to answer after its start.
const START: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);
/// Bit of CAP_SYS_RESOURCE in the kernel's masks.
const SYS_RESOURCE: u64 = 1 << 24;

#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    #[error("containerd is not installed; on Debian: apt-get install containerd runc containernetworking-plugins")]
    Missing,
    #[error("the network plugins are not installed; on Debian: apt-get install containernetworking-plugins")]
    NoPlugins,
    #[error("containerd cannot be started")]
    Start(#[source] std::io::Error),
    #[error("containerd does not answer at {socket}; its log is {log}")]
    Silent { socket: PathBuf, log: PathBuf },
    #[error("the pause image cannot be imported: {0}")]
    Import(String),
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// What the configuration depends on.
pub struct Facts {
    /// 2 for containerd 1.x, 3 for 2.x.
    pub config_version: u8,
    /// The machine may lower `oom_score_adj`.
    pub sys_resource: bool,
    pub plugins: PathBuf,
    pub sandbox_image: String,
}

impl Facts {
    /// Looks at this machine.
    pub async fn read() -> Result<Self, ContainerdError> {
        let version = Command::new("containerd").arg("--version").output().await.map_err(|_| ContainerdError::Missing)?;
        let text = String::from_utf8_lossy(&version.stdout).into_owned();
        let plugins = PLUGIN_FOLDERS.iter().map(Path::new).find(|folder| folder.join("bridge").exists()).ok_or(ContainerdError::NoPlugins)?;
        Ok(Self {
            config_version: config_version(&text),
            sys_resource: has_sys_resource(),
            plugins: plugins.to_owned(),
            sandbox_image: if pause::archive(pause::NAME).is_some() { pause::NAME.to_owned() } else { "registry.k8s.io/pause:3.10".to_owned() },
        })
    }
}

/// `containerd github.com/containerd/containerd 1.6.20~ds1 …`
fn config_version(text: &str) -> u8 {
    let number = text.split_whitespace().find_map(|word| word.trim_start_matches('v').split('.').next()?.parse::<u32>().ok());
    if number.is_some_and(|major| major >= 2) { 3 } else { 2 }
}

pub fn has_sys_resource() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & SYS_RESOURCE != 0)
}

/// The text of `containerd.toml`.
pub fn config(layout: &Layout, facts: &Facts) -> String {
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let (root, state, socket) = (quoted(&layout.containerd_root()), quoted(&layout.containerd_state()), quoted(&layout.containerd_socket()));
    let (plugins, cni) = (quoted(&facts.plugins), quoted(&layout.cni_config()));
    let (image, restrict) = (&facts.sandbox_image, !facts.sys_resource);
    let head = format!("version = {}\nroot = {root}\nstate = {state}\n\n[grpc]\n  address = {socket}\n\n", facts.config_version);
    if facts.config_version >= 3 {
        return format!(
            "{head}[plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = \"{image}\"\n\n[plugins.'io.containerd.cri.v1.runtime']\n  \
             restrict_oom_score_adj = {restrict}\n  [plugins.'io.containerd.cri.v1.runtime'.cni]\n    bin_dirs = [{plugins}]\n    conf_dir = {cni}\n"
        );
    }
    format!(
        "{head}[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"{image}\"\n  restrict_oom_score_adj = {restrict}\n  \
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\n    bin_dir = {plugins}\n    conf_dir = {cni}\n"
    )
}

/// Makes sure that the node's containerd answers, with the pause image in it.
pub async fn ensure(layout: &Layout, runtime: &Runtime) -> Result<(), ContainerdError> {
    let facts = Facts::read().await?;
    let text = config(layout, &facts);
    let path = layout.containerd_config();
    if std::fs::read_to_string(&path).ok().as_deref() != Some(&text) {
        layout.save(&path, &text)?;
    }
    if runtime.version().await.is_err() {
        start(layout).await?;
    }
    let started = tokio::time::Instant::now();
    while runtime.version().await.is_err() {
        if started.elapsed() > START {
            return Err(ContainerdError::Silent { socket: layout.containerd_socket(), log: layout.containerd_log() });
        }
        tokio::time::sleep(LOOK).await;
    }
    let present = runtime.image(&facts.sandbox_image).await.ok().flatten().is_some();
    match pause::archive(&facts.sandbox_image).filter(|_| !present && facts.sandbox_image == pause::NAME) {
        Some(archive) => import(&layout.containerd_socket(), archive).await,
        None => Ok(()),
    }
}

async fn start(layout: &Layout) -> Result<(), ContainerdError> {
    let folder = |path: &Path| std::fs::create_dir_all(path).map_err(ContainerdError::Start);
    folder(layout.run())?;
    folder(&layout.cni_config())?;
    let log = std::fs::OpenOptions::new().create(true).append(true).open(layout.containerd_log()).map_err(ContainerdError::Start)?;
    let errors = log.try_clone().map_err(ContainerdError::Start)?;
    tracing::info!(socket = %layout.containerd_socket().display(), "starting containerd");
    let child = Command::new("containerd")
        .arg("--config")
        .arg(layout.containerd_config())
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        // Signals to the agent's group are not for it.
        .process_group(0)
        .spawn();
    child.map(drop).map_err(ContainerdError::Start)
}

/// Brings an image archive into the runtime.
pub async fn import(socket: &Path, archive: Vec<u8>) -> Result<(), ContainerdError> {
    let failed = |error: std::io::Error| ContainerdError::Import(error.to_string());
    let mut child = Command::new("ctr")
        .arg("--address")
        .arg(socket)
        .args(["--namespace", "k8s.io", "images", "import", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&archive).await.map_err(failed)?;
    }
    let ended = child.wait_with_output().await.map_err(failed)?;
    if ended.status.success() { Ok(()) } else { Err(ContainerdError::Import(String::from_utf8_lossy(&ended.stderr).trim().to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Place;

    #[test]
    fn both_generations_get_their_own_form() {
        let layout = Layout::new(&Place { state_dir: "/s".into(), run_dir: "/r".into() });
        let facts = |config_version| Facts { config_version, sys_resource: false, plugins: "/usr/lib/cni".into(), sandbox_image: pause::NAME.into() };
        let old = config(&layout, &facts(2));
        assert!(old.starts_with("version = 2\nroot = \"/s/containerd\"\nstate = \"/r/containerd\"\n"), "{old}");
        assert!(old.contains("restrict_oom_score_adj = true") && old.contains("bin_dir = \"/usr/lib/cni\""), "{old}");
        let new = config(&layout, &facts(3));
        assert!(new.contains("bin_dirs = [\"/usr/lib/cni\"]") && new.contains("sandbox = \"wheelhouse.local/pause:1\""), "{new}");
        assert_eq!((config_version("containerd github.com/containerd/containerd 1.6.20~ds1"), config_version("containerd x v2.1.0 y")), (2, 3));
    }
}
