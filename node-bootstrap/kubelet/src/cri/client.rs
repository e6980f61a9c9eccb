//! Calls of the runtime, with the deadlines that a hung one must not exceed.

use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request};

use super::api::image_service_client::ImageServiceClient;
use super::api::runtime_service_client::RuntimeServiceClient;
use super::api::{self, AuthConfig, ContainerConfig, PodSandboxConfig};

/// Upstream's `--runtime-request-timeout`.
const CALL: Duration = Duration::from_secs(120);
/// Lists and statuses: a runtime that needs longer is as good as gone.
const LOOK: Duration = Duration::from_secs(10);
/// A sandbox waits for the network plugin.
const SANDBOX: Duration = Duration::from_secs(240);
/// A pull may be large and the line slow; one that makes no progress ends in the runtime itself.
const PULL: Duration = Duration::from_secs(30 * 60);
/// An exec's output beyond this is of no use to a probe or hook; upstream's limit of messages.
const MAX_MESSAGE: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The message alone is what users see.
    #[error("{}", .0.message())]
    Refused(Box<tonic::Status>),
    #[error("the container runtime answered {0} without what was asked for")]
    Empty(&'static str),
}

impl CriError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, CriError::Refused(status) if status.code() == Code::NotFound)
    }

    pub fn is_unimplemented(&self) -> bool {
        matches!(self, CriError::Refused(status) if status.code() == Code::Unimplemented)
    }
}

impl From<tonic::Status> for CriError {
    fn from(status: tonic::Status) -> Self {
        CriError::Refused(Box::new(status))
    }
}

/// An image that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub tags: Vec<String>,
    pub digests: Vec<String>,
    pub size: u64,
    pub user: crate::spec::security::ImageUser,
    pub pinned: bool,
}

/// What a container uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    pub container_id: String,
    pub name: String,
    pub pod_uid: String,
    /// Nanoseconds since its start, all CPUs together.
    pub cpu_nanos: u64,
    pub memory_working_set: u64,
    pub memory_usage: u64,
    pub memory_rss: u64,
    pub disk_used: u64,
    pub inodes_used: u64,
    /// Nanoseconds since the epoch.
    pub at: i64,
}

/// The runtime. Cloning is cheap; calls run side by side.
#[derive(Clone)]
pub struct Runtime {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

fn within<T>(message: T, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

impl Runtime {
    /// Connects when first used, and again when the runtime was restarted.
    pub fn new(socket: &Path) -> Self {
        let path = socket.to_owned();
        // The address only fills the authority; the connector knows the socket.
        let endpoint = Endpoint::from_static("http://localhost").connect_timeout(LOOK);
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }));
        Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE),
            images: ImageServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE),
        }
    }

    /// `containerd://1.6.20`
    pub async fn version(&self) -> Result<String, CriError> {
        let request = within(api::VersionRequest { version: "v1".into() }, LOOK);
        let answer = self.runtime.clone().version(request).await?.into_inner();
        Ok(format!("{}://{}", answer.runtime_name, answer.runtime_version.trim_start_matches('v')))
    }

    /// Conditions that do not hold, as texts; empty when the runtime and its network are ready.
    pub async fn unready(&self) -> Result<Vec<String>, CriError> {
        let answer = self.runtime.clone().status(within(api::StatusRequest { verbose: false }, LOOK)).await?.into_inner();
        let conditions = answer.status.map(|status| status.conditions).unwrap_or_default();
        let bad = conditions.into_iter().filter(|condition| !condition.status);
        Ok(bad.map(|c| format!("container runtime network not ready: {}=false reason:{} message:{}", c.r#type, c.reason, c.message)).collect())
    }

    pub async fn sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<api::PodSandbox>, CriError> {
        let filter = pod_uid.map(|uid| api::PodSandboxFilter { label_selector: by_uid(uid), ..api::PodSandboxFilter::default() });
        let answer = self.runtime.clone().list_pod_sandbox(within(api::ListPodSandboxRequest { filter }, LOOK)).await?;
        Ok(answer.into_inner().items)
    }

    pub async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<api::Container>, CriError> {
        let filter = pod_uid.map(|uid| api::ContainerFilter { label_selector: by_uid(uid), ..api::ContainerFilter::default() });
        let answer = self.runtime.clone().list_containers(within(api::ListContainersRequest { filter }, LOOK)).await?;
        Ok(answer.into_inner().containers)
    }

    pub async fn sandbox_status(&self, id: &str) -> Result<api::PodSandboxStatus, CriError> {
        let request = within(api::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false }, LOOK);
        let answer = self.runtime.clone().pod_sandbox_status(request).await?.into_inner();
        answer.status.ok_or(CriError::Empty("PodSandboxStatus"))
    }

    pub async fn container_status(&self, id: &str) -> Result<api::ContainerStatus, CriError> {
        let request = within(api::ContainerStatusRequest { container_id: id.to_owned(), verbose: false }, LOOK);
        let answer = self.runtime.clone().container_status(request).await?.into_inner();
        answer.status.ok_or(CriError::Empty("ContainerStatus"))
    }

    pub async fn run_sandbox(&self, config: PodSandboxConfig) -> Result<String, CriError> {
        let request = within(api::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() }, SANDBOX);
        Ok(self.runtime.clone().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
    }

    pub async fn stop_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = within(api::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() }, CALL);
        gone_is_fine(self.runtime.clone().stop_pod_sandbox(request).await.map(drop))
    }

    pub async fn remove_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = within(api::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() }, CALL);
        gone_is_fine(self.runtime.clone().remove_pod_sandbox(request).await.map(drop))
    }

    pub async fn create_container(&self, sandbox: &str, config: ContainerConfig, sandbox_config: PodSandboxConfig) -> Result<String, CriError> {
        let request = api::CreateContainerRequest { pod_sandbox_id: sandbox.to_owned(), config: Some(config), sandbox_config: Some(sandbox_config) };
        Ok(self.runtime.clone().create_container(within(request, CALL)).await?.into_inner().container_id)
    }

    pub async fn start_container(&self, id: &str) -> Result<(), CriError> {
        let request = within(api::StartContainerRequest { container_id: id.to_owned() }, CALL);
        self.runtime.clone().start_container(request).await?;
        Ok(())
    }

    /// SIGTERM, and SIGKILL after `grace`; answers when the container is down.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CriError> {
        // CRI counts whole seconds. What is left of a grace period a moment after it began is rounded up: nobody is killed early.
        let timeout = i64::try_from(grace.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let request = within(api::StopContainerRequest { container_id: id.to_owned(), timeout }, grace + CALL);
        gone_is_fine(self.runtime.clone().stop_container(request).await.map(drop))
    }

    pub async fn remove_container(&self, id: &str) -> Result<(), CriError> {
        let request = within(api::RemoveContainerRequest { container_id: id.to_owned() }, CALL);
        gone_is_fine(self.runtime.clone().remove_container(request).await.map(drop))
    }

    /// Runs a command in a container: exit code and all output.
    pub async fn exec_sync(&self, id: &str, command: &[String], limit: Duration) -> Result<(i32, String), CriError> {
        let seconds = i64::try_from(limit.as_secs().max(1)).unwrap_or(i64::MAX);
        let request = api::ExecSyncRequest { container_id: id.to_owned(), cmd: command.to_vec(), timeout: seconds };
        let answer = self.runtime.clone().exec_sync(within(request, limit + LOOK)).await?.into_inner();
        let output = [answer.stdout, answer.stderr].concat();
        Ok((answer.exit_code, String::from_utf8_lossy(&output).into_owned()))
    }

    /// Where the runtime serves a stream for this command.
    pub async fn exec(&self, request: api::ExecRequest) -> Result<String, CriError> {
        Ok(self.runtime.clone().exec(within(request, CALL)).await?.into_inner().url)
    }

    pub async fn attach(&self, request: api::AttachRequest) -> Result<String, CriError> {
        Ok(self.runtime.clone().attach(within(request, CALL)).await?.into_inner().url)
    }

    pub async fn port_forward(&self, sandbox: &str, ports: Vec<i32>) -> Result<String, CriError> {
        let request = api::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port: ports };
        Ok(self.runtime.clone().port_forward(within(request, CALL)).await?.into_inner().url)
    }

    pub async fn reopen_log(&self, id: &str) -> Result<(), CriError> {
        self.runtime.clone().reopen_container_log(within(api::ReopenContainerLogRequest { container_id: id.to_owned() }, LOOK)).await?;
        Ok(())
    }

    pub async fn usage(&self) -> Result<Vec<Usage>, CriError> {
        let answer = self.runtime.clone().list_container_stats(within(api::ListContainerStatsRequest { filter: None }, LOOK)).await?;
        Ok(answer.into_inner().stats.into_iter().filter_map(usage).collect())
    }

    /// The image that a name, digest or id stands for, if it is here.
    pub async fn image(&self, name: &str) -> Result<Option<Image>, CriError> {
        let request = within(api::ImageStatusRequest { image: Some(image_spec(name)), verbose: false }, LOOK);
        let answer = self.images.clone().image_status(request).await?.into_inner();
        Ok(answer.image.map(image))
    }

    /// Answers the image's reference.
    pub async fn pull(&self, name: &str, auth: Option<AuthConfig>, sandbox: PodSandboxConfig) -> Result<String, CriError> {
        let request = api::PullImageRequest { image: Some(image_spec(name)), auth, sandbox_config: Some(sandbox) };
        Ok(self.images.clone().pull_image(within(request, PULL)).await?.into_inner().image_ref)
    }

    pub async fn images(&self) -> Result<Vec<Image>, CriError> {
        let answer = self.images.clone().list_images(within(api::ListImagesRequest { filter: None }, LOOK)).await?;
        Ok(answer.into_inner().images.into_iter().map(image).collect())
    }

    pub async fn remove_image(&self, id: &str) -> Result<(), CriError> {
        gone_is_fine(self.images.clone().remove_image(within(api::RemoveImageRequest { image: Some(image_spec(id)) }, CALL)).await.map(drop))
    }

    /// Where images lie.
    pub async fn image_folder(&self) -> Result<Option<String>, CriError> {
        let answer = self.images.clone().image_fs_info(within(api::ImageFsInfoRequest {}, LOOK)).await?.into_inner();
        Ok(answer.image_filesystems.into_iter().find_map(|usage| usage.fs_id).map(|id| id.mountpoint))
    }
}

fn by_uid(uid: &str) -> std::collections::HashMap<String, String> {
    [(crate::spec::labels::POD_UID.to_owned(), uid.to_owned())].into()
}

fn image_spec(name: &str) -> api::ImageSpec {
    api::ImageSpec { image: name.to_owned(), ..api::ImageSpec::default() }
}

fn gone_is_fine(answer: Result<(), tonic::Status>) -> Result<(), CriError> {
    match answer {
        Err(status) if status.code() != Code::NotFound => Err(status.into()),
        _ => Ok(()),
    }
}

fn image(image: api::Image) -> Image {
    let user = crate::spec::security::ImageUser { uid: image.uid.map(|uid| uid.value), name: image.username };
    Image { id: image.id, tags: image.repo_tags, digests: image.repo_digests, size: image.size, user, pinned: image.pinned }
}

fn usage(stats: api::ContainerStats) -> Option<Usage> {
    let attributes = stats.attributes?;
    let (cpu, memory, disk) = (stats.cpu.unwrap_or_default(), stats.memory.unwrap_or_default(), stats.writable_layer.unwrap_or_default());
    let value = |value: Option<api::UInt64Value>| value.map_or(0, |value| value.value);
    Some(Usage {
        container_id: attributes.id,
        name: attributes.metadata.map(|metadata| metadata.name).unwrap_or_default(),
        pod_uid: attributes.labels.get(crate::spec::labels::POD_UID).cloned().unwrap_or_default(),
        cpu_nanos: value(cpu.usage_core_nano_seconds),
        memory_working_set: value(memory.working_set_bytes),
        memory_usage: value(memory.usage_bytes),
        memory_rss: value(memory.rss_bytes),
        disk_used: value(disk.used_bytes),
        inodes_used: value(disk.inodes_used),
        at: cpu.timestamp,
    })
}
