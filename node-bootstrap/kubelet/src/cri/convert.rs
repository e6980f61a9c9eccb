//! The runtime's lists and statuses as [`PodRuntime`]s.

use std::collections::BTreeMap;

use wheelhouse_base::Timestamp;

use super::api::{self, ContainerState, PodSandboxState};
use super::{CriError, Runtime};
use crate::observed::{Container, Exit, PodRuntime, Sandbox, State};
use crate::spec::labels;

/// What a termination message may hold; upstream's limit.
const MESSAGE_MAX: usize = 4096;
/// Of the log instead of a message: bytes and lines.
const LOG_MAX: usize = 2048;
const LOG_LINES: usize = 80;

/// Who a pod in the runtime is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodIdentity {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

/// All pods of the runtime, as far as two lists tell: enough to notice changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relist {
    /// By pod uid: identity, and the ids and states of everything of it.
    pub pods: BTreeMap<String, (PodIdentity, BTreeMap<String, i32>)>,
}

fn identity(labels: &std::collections::HashMap<String, String>) -> Option<PodIdentity> {
    let text = |key: &str| labels.get(key).cloned();
    Some(PodIdentity { uid: text(labels::POD_UID)?, namespace: text(labels::POD_NAMESPACE)?, name: text(labels::POD_NAME)? })
}

impl Relist {
    pub async fn take(runtime: &Runtime) -> Result<Self, CriError> {
        let mut relist = Self::default();
        for sandbox in runtime.sandboxes(None).await? {
            relist.note(&sandbox.labels, sandbox.id, sandbox.state);
        }
        for container in runtime.containers(None).await? {
            relist.note(&container.labels, container.id, container.state);
        }
        Ok(relist)
    }

    fn note(&mut self, labels: &std::collections::HashMap<String, String>, id: String, state: i32) {
        let Some(identity) = identity(labels) else { return };
        self.pods.entry(identity.uid.clone()).or_insert_with(|| (identity, BTreeMap::new())).1.insert(id, state);
    }

    /// Uids of pods that changed since `before`.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a PodIdentity> {
        let now = self.pods.iter().filter(|(uid, pod)| before.pods.get(*uid) != Some(*pod)).map(|(_, pod)| &pod.0);
        let gone = before.pods.iter().filter(|(uid, _)| !self.pods.contains_key(*uid)).map(|(_, pod)| &pod.0);
        now.chain(gone)
    }
}

impl Runtime {
    /// Everything of one pod.
    pub async fn pod(&self, uid: &str) -> Result<PodRuntime, CriError> {
        let mut pod = PodRuntime::default();
        for sandbox in self.sandboxes(Some(uid)).await? {
            let ready = sandbox.state == PodSandboxState::SandboxReady as i32;
            let mut ips = Vec::new();
            if ready {
                match self.sandbox_status(&sandbox.id).await {
                    Ok(status) => {
                        let network = status.network.unwrap_or_default();
                        let all = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|ip| ip.ip));
                        ips.extend(all.filter_map(|ip| ip.parse::<std::net::IpAddr>().ok()));
                    }
                    Err(error) if error.is_not_found() => continue,
                    Err(error) => return Err(error),
                }
            }
            let attempt = sandbox.metadata.map_or(0, |metadata| metadata.attempt);
            pod.sandboxes.push(Sandbox { id: sandbox.id, attempt, ready, created_at: nanos(sandbox.created_at), ips });
        }
        for container in self.containers(Some(uid)).await? {
            match self.container_status(&container.id).await {
                Ok(status) => pod.containers.push(read(container.pod_sandbox_id, status)),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        pod.sort();
        Ok(pod)
    }
}

fn nanos(at: i64) -> Timestamp {
    Timestamp::from_micros(at / 1000)
}

fn read(sandbox_id: String, status: api::ContainerStatus) -> Container {
    let metadata = status.metadata.clone().unwrap_or_default();
    let state = match ContainerState::try_from(status.state) {
        Ok(ContainerState::ContainerCreated) => State::Created,
        Ok(ContainerState::ContainerRunning) => State::Running { started_at: nanos(status.started_at) },
        Ok(ContainerState::ContainerExited) => State::Exited(exit(&status)),
        _ => State::Unknown,
    };
    Container {
        id: status.id,
        sandbox_id,
        name: metadata.name,
        attempt: metadata.attempt,
        created_at: nanos(status.created_at),
        state,
        image: status
            .image
            .map(|image| if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image })
            .unwrap_or_default(),
        image_id: status.image_ref,
        hash: status.annotations.get(labels::CONTAINER_HASH).cloned().unwrap_or_default(),
    }
}

fn exit(status: &api::ContainerStatus) -> Exit {
    let mut message = status.message.clone();
    let file = status.annotations.get(labels::MESSAGE_FILE);
    let written = file.and_then(|file| tail(file, MESSAGE_MAX)).filter(|text| !text.is_empty());
    let from_log = status.annotations.get(labels::MESSAGE_POLICY).is_some_and(|policy| policy == "FallbackToLogsOnError");
    if let Some(written) = written {
        message = written;
    } else if from_log && status.exit_code != 0 {
        message = tail(&status.log_path, 4 * LOG_MAX).map(|log| last_lines(&log)).unwrap_or(message);
    }
    Exit {
        exit_code: status.exit_code,
        reason: status.reason.clone(),
        message,
        started_at: (status.started_at > 0).then(|| nanos(status.started_at)),
        finished_at: nanos(status.finished_at),
    }
}

/// The end of a file, which a container may have made as large as it likes.
fn tail(path: &str, max: usize) -> Option<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max as u64))).ok()?;
    let mut bytes = Vec::new();
    file.take(max as u64).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The messages of the last lines of a CRI log: `time stream tag message`.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
    let text = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n") + "\n";
    let start = text.len().saturating_sub(LOG_MAX);
    text[text.ceil_char_boundary(start)..].to_owned()
}
