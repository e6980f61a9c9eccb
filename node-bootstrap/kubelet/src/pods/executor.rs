//! Carries a pod's actions out. It makes no choices beyond what each action says.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::{Container, PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::Value;
use tokio::sync::Semaphore;
use wheelhouse_base::Clock;
use wheelhouse_client::Client;
use wheelhouse_client::events::EventRecorder;
use wheelhouse_kinds::plan::{EventNote, EventType};
use wheelhouse_kinds::view::Key;

use super::cgroup;
use super::images::{self, Wanted};
use super::references::ReferenceReader;
use super::services::Services;
use crate::config::KubeletConfig;
use crate::cri::{Image, Runtime};
use crate::lifecycle::{Action, Outcome, Why, find};
use crate::observed::PodRuntime;
use crate::probes::{Prober, Target};
use crate::spec::env::{self, Environment};
use crate::spec::{NodeFacts, References, container, meta, sandbox};
use crate::volumes::payload::{Inputs, TokenWish};
use crate::volumes::{Volumes, tear_down};

/// A container gets this long after SIGTERM even if its hook used the grace period up; upstream's minimum.
const LEAST_GRACE: Duration = Duration::from_secs(2);
/// Before a stop that failed is reported, so that a runtime that is away is not asked in a spin.
const STOP_RETRY: Duration = Duration::from_secs(1);
/// Pulls at once: the line is shared.
const PULLS: usize = 3;
/// Starts at once: each costs processes and disk, and more at once make none faster.
const STARTS: usize = 8;

pub struct Executor {
    pub config: Arc<KubeletConfig>,
    pub client: Client,
    pub runtime: Runtime,
    pub prober: Prober,
    pub recorder: Arc<EventRecorder>,
    pub clock: Arc<dyn Clock>,
    /// Changes with the node's addresses and allocatable resources.
    pub facts: Arc<ArcSwap<NodeFacts>>,
    pub services: Arc<Services>,
    pub(super) references: ReferenceReader,
    pulls: Semaphore,
    starts: Semaphore,
}

/// A step of an action failed: the reason that the status shows, and why.
struct Refusal {
    reason: &'static str,
    message: String,
}

fn refusal(reason: &'static str) -> impl Fn(String) -> Refusal {
    move |message| Refusal { reason, message }
}

fn text(error: impl std::error::Error) -> String {
    let mut out = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !out.contains(&more) {
            out = format!("{out}: {more}");
        }
        source = inner.source();
    }
    out
}

/// What an executor is made of.
pub struct Parts {
    pub config: Arc<KubeletConfig>,
    pub client: Client,
    pub runtime: Runtime,
    pub prober: Prober,
    pub recorder: Arc<EventRecorder>,
    pub clock: Arc<dyn Clock>,
    pub facts: Arc<ArcSwap<NodeFacts>>,
    pub services: Arc<Services>,
}

impl Executor {
    pub fn new(parts: Parts) -> Self {
        let Parts { config, client, runtime, prober, recorder, clock, facts, services } = parts;
        let references = ReferenceReader::new(client.clone());
        let (pulls, starts) = (Semaphore::new(PULLS), Semaphore::new(STARTS));
        Self { config, client, runtime, prober, recorder, clock, facts, services, references, pulls, starts }
    }

    /// Does it, whatever it takes, and says what became of it.
    pub async fn carry_out(&self, pod: &Pod, runtime: &PodRuntime, action: &Action) -> Outcome {
        let done = match action {
            Action::Prepare => self.prepare(pod).await,
            Action::CreateSandbox { attempt } => self.create_sandbox(pod, *attempt).await,
            Action::StartContainer { name, attempt, sandbox_id } => self.start(pod, runtime, name, *attempt, sandbox_id).await,
            Action::StopContainer { id, name, grace, why } => self.stop(pod, runtime, (id, name), *grace, why).await,
            Action::RemoveContainer { id } => self.runtime.remove_container(id).await.map_err(|error| refusal("")(text(error))),
            Action::StopSandbox { id } => self.runtime.stop_sandbox(id).await.map_err(|error| refusal("FailedKillPod")(text(error))),
            Action::RemoveSandbox { id } => self.runtime.remove_sandbox(id).await.map_err(|error| refusal("")(text(error))),
            Action::CleanUp => self.clean_up(pod).await,
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(Refusal { reason, message }) => {
                tracing::debug!(pod = crate::spec::full_name(pod), ?action, reason, message, "an action failed");
                if matches!(
                    action,
                    Action::StopContainer { .. } | Action::StopSandbox { .. } | Action::RemoveContainer { .. } | Action::RemoveSandbox { .. }
                ) {
                    tokio::time::sleep(STOP_RETRY).await;
                }
                Outcome::Failed { reason: reason.to_owned(), message }
            }
        }
    }

    fn folder(&self, pod: &Pod) -> PathBuf {
        self.config.pod_folder(meta(&pod.metadata.uid))
    }

    fn logs(&self, pod: &Pod) -> PathBuf {
        let m = &pod.metadata;
        self.config.pod_logs(meta(&m.namespace), meta(&m.name), meta(&m.uid))
    }

    async fn event(&self, pod: &Pod, kind_of_event: EventType, reason: &str, message: String) {
        let m = &pod.metadata;
        let note = EventNote {
            api_version: "v1".into(),
            kind: "Pod".into(),
            key: Key::new(meta(&m.namespace), meta(&m.name)),
            uid: meta(&m.uid).to_owned(),
            kind_of_event,
            reason: reason.to_owned(),
            message,
        };
        if let Err(error) = self.recorder.record(&note).await {
            tracing::debug!(error = &error as &dyn std::error::Error, reason, "an event was not recorded");
        }
    }

    async fn prepare(&self, pod: &Pod) -> Result<(), Refusal> {
        let failed = refusal("FailedMount");
        std::fs::create_dir_all(self.folder(pod).join("containers")).map_err(|error| failed(error.to_string()))?;
        std::fs::create_dir_all(self.logs(pod)).map_err(|error| failed(error.to_string()))?;
        let facts = self.facts.load_full();
        cgroup::create(pod, &facts)
            .map_err(|error| Refusal { reason: "FailedCreatePodContainer", message: format!("unable to ensure pod container exists: {error}") })?;
        let result = match self.pod_references(pod).await {
            Ok((references, tokens)) => self.volumes(pod, &[], &references, &tokens).await.map(drop),
            Err(message) => Err(message),
        };
        if let Err(message) = result {
            self.event(pod, EventType::Warning, "FailedMount", message.clone()).await;
            return Err(failed(message));
        }
        Ok(())
    }

    async fn pod_references(&self, pod: &Pod) -> Result<(References, BTreeMap<TokenWish, String>), String> {
        let references = self.references.read(pod).await.map_err(text)?;
        let tokens = self.references.tokens(pod, self.clock.now()).await.map_err(|error| format!("failed to fetch token: {}", text(error)))?;
        Ok((references, tokens))
    }

    /// Makes the volumes and answers where they lie.
    async fn volumes(
        &self,
        pod: &Pod,
        ips: &[String],
        references: &References,
        tokens: &BTreeMap<TokenWish, String>,
    ) -> Result<BTreeMap<String, PathBuf>, String> {
        let facts = self.facts.load_full();
        let claimed = self.claimed(pod).await?;
        let inputs = Inputs { pod, node: &facts, ips, references, tokens };
        let volumes = Volumes { folder: self.folder(pod), inputs, claimed: &claimed, now: self.clock.now() };
        volumes.prepare().await.map_err(|error| error.to_string())
    }

    /// Writes changed ConfigMaps, Secrets, labels and tokens into the files of a running pod.
    pub async fn refresh(&self, pod: &Pod, ips: &[IpAddr]) -> Result<(), String> {
        let has_files = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(crate::volumes::payload::is_payload);
        if !has_files {
            return Ok(());
        }
        let (references, tokens) = self.pod_references(pod).await?;
        let facts = self.facts.load_full();
        let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
        let inputs = Inputs { pod, node: &facts, ips: &ips, references: &references, tokens: &tokens };
        let volumes = Volumes { folder: self.folder(pod), inputs, claimed: &BTreeMap::new(), now: self.clock.now() };
        volumes.refresh().map_err(|error| error.to_string())
    }

    async fn claimed(&self, pod: &Pod) -> Result<BTreeMap<String, PersistentVolume>, String> {
        let mut claimed = BTreeMap::new();
        let namespace = meta(&pod.metadata.namespace);
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let own = || volume.ephemeral.as_ref().map(|_| format!("{}-{}", meta(&pod.metadata.name), volume.name));
            let Some(claim) = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone()).or_else(own) else { continue };
            let claims = self.client.api("", "v1", "persistentvolumeclaims", namespace);
            let Some(found) = claims.find::<PersistentVolumeClaim>(&claim).await.map_err(text)? else {
                return Err(format!("persistentvolumeclaim \"{claim}\" not found"));
            };
            let bound = found.spec.and_then(|spec| spec.volume_name).filter(|name| !name.is_empty());
            let Some(bound) = bound else { return Err(format!("PVC {namespace}/{claim} is not bound")) };
            let volumes = self.client.api("", "v1", "persistentvolumes", "");
            claimed.insert(volume.name.clone(), volumes.get::<PersistentVolume>(&bound).await.map_err(text)?);
        }
        Ok(claimed)
    }

    async fn create_sandbox(&self, pod: &Pod, attempt: u32) -> Result<(), Refusal> {
        let config = sandbox::config(pod, &self.facts.load(), attempt, &self.logs(pod).display().to_string());
        match self.runtime.run_sandbox(config).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {}", text(error));
                self.event(pod, EventType::Warning, "FailedCreatePodSandBox", message.clone()).await;
                Err(refusal("CreatePodSandboxError")(message))
            }
        }
    }

    async fn start(&self, pod: &Pod, runtime: &PodRuntime, name: &str, attempt: u32, sandbox_id: &str) -> Result<(), Refusal> {
        let Some((wanted, _)) = pod.spec.as_ref().and_then(|spec| find(spec, name)) else {
            return Err(refusal("CreateContainerConfigError")(format!("the pod has no container {name}")));
        };
        let _turn = self.starts.acquire().await;
        let image = match self.image(pod, &wanted, sandbox_id).await {
            Ok(image) => image,
            Err(Refusal { reason, message }) => {
                self.event(pod, EventType::Warning, "Failed", format!("Error: {reason}")).await;
                return Err(Refusal { reason, message });
            }
        };
        let made = self.create(pod, runtime, &wanted, attempt, sandbox_id, &image).await;
        let id = match made {
            Ok(id) => id,
            Err(Refusal { reason, message }) => {
                self.event(pod, EventType::Warning, "Failed", format!("Error: {message}")).await;
                return Err(Refusal { reason, message });
            }
        };
        if let Err(error) = self.runtime.start_container(&id).await {
            let message = text(error);
            self.event(pod, EventType::Warning, "Failed", format!("Error: {message}")).await;
            return Err(refusal("RunContainerError")(message));
        }
        self.event(pod, EventType::Normal, "Started", "Container started".to_owned()).await;
        if let Some(hook) = wanted.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref()) {
            let target = Target { container: wanted.clone(), container_id: id.clone(), pod_ip: pod_ip(runtime, &self.facts.load(), pod) };
            if let Err(why) = self.prober.hook(&target, hook, Duration::from_secs(3600)).await {
                self.event(pod, EventType::Warning, "FailedPostStartHook", format!("PostStartHook failed: {why}")).await;
                let _ = self.runtime.stop_container(&id, LEAST_GRACE).await;
                return Err(refusal("PostStartHookError")(why));
            }
        }
        Ok(())
    }

    /// The image, pulled if the policy says so.
    async fn image(&self, pod: &Pod, wanted: &Container, sandbox_id: &str) -> Result<Image, Refusal> {
        let name = wanted.image.clone().unwrap_or_default();
        if !images::is_valid(&name) {
            return Err(refusal("InvalidImageName")(format!("Failed to apply default image tag \"{name}\": couldn't parse image name")));
        }
        let failed = |error| refusal("ImageInspectError")(text(error));
        let present = self.runtime.image(&name).await.map_err(failed)?;
        match (images::wanted(images::policy(wanted), present.is_some()), present) {
            (Wanted::Use, Some(image)) => {
                let message = format!("Container image \"{name}\" already present on machine and can be accessed by the pod");
                self.event(pod, EventType::Normal, "Pulled", message).await;
                return Ok(image);
            }
            (Wanted::Never, _) => {
                return Err(refusal("ErrImageNeverPull")(format!("Container image \"{name}\" is not present with pull policy of Never")));
            }
            _ => {}
        }
        let _turn = self.pulls.acquire().await;
        self.event(pod, EventType::Normal, "Pulling", format!("Pulling image \"{name}\"")).await;
        let started = Instant::now();
        let mut secrets = Vec::new();
        for reference in pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten()) {
            secrets.extend(self.references.pull_secret(meta(&pod.metadata.namespace), &reference.name).await);
        }
        let logins = images::credentials(&name, &secrets);
        let config = sandbox::config(pod, &self.facts.load(), 0, &self.logs(pod).display().to_string());
        let _ = sandbox_id;
        let mut last = None;
        for login in logins.into_iter().map(Some).chain(std::iter::once(None)) {
            match self.runtime.pull(&name, login, config.clone()).await {
                Ok(_) => {
                    last = None;
                    break;
                }
                Err(error) => last = Some(error),
            }
        }
        if let Some(error) = last {
            let message = text(error);
            self.event(pod, EventType::Warning, "Failed", format!("Failed to pull image \"{name}\": {message}")).await;
            return Err(refusal("ErrImagePull")(message));
        }
        let image = self.runtime.image(&name).await.map_err(failed)?;
        let image = image.ok_or_else(|| refusal("ErrImagePull")(format!("image \"{name}\" is not there after its pull")))?;
        let took = started.elapsed();
        let message = format!("Successfully pulled image \"{name}\" in {}ms. Image size: {} bytes.", took.as_millis(), image.size);
        self.event(pod, EventType::Normal, "Pulled", message).await;
        Ok(image)
    }

    async fn create(
        &self,
        pod: &Pod,
        runtime: &PodRuntime,
        wanted: &Container,
        attempt: u32,
        sandbox_id: &str,
        image: &Image,
    ) -> Result<String, Refusal> {
        let failed = refusal("CreateContainerConfigError");
        let facts = self.facts.load_full();
        let services =
            self.services.variables(pod).ok_or_else(|| failed("services have not yet been read at least once, cannot construct envvars".into()))?;
        let (references, tokens) = self.pod_references(pod).await.map_err(&failed)?;
        let ips = pod_ips(runtime, &facts, pod);
        let inputs = env::Inputs { pod, node: &facts, ips: &ips, references: &references, services: &services };
        let environment: Environment = env::of(wanted, &inputs).map_err(|error| failed(error.0))?;
        let volumes = self.volumes(pod, &ips, &references, &tokens).await.map_err(&failed)?;
        let folder = self.folder(pod);
        let disk = |error: std::io::Error| refusal("CreateContainerError")(error.to_string());
        let hosts = self.hosts_file(pod, &facts, &ips).map_err(disk)?;
        let message_file = folder.join("containers").join(&wanted.name).join(attempt.to_string());
        std::fs::create_dir_all(message_file.parent().unwrap_or(&folder)).map_err(disk)?;
        std::fs::write(&message_file, "").map_err(disk)?;
        std::fs::set_permissions(&message_file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).map_err(disk)?;
        std::fs::create_dir_all(self.logs(pod).join(&wanted.name)).map_err(disk)?;
        let target = self.target_of(pod, runtime, &wanted.name);
        let parts = container::Parts {
            pod,
            container: wanted,
            attempt,
            node: &facts,
            environment: &environment,
            image: &image.id,
            image_user: &image.user,
            volumes: &volumes,
            hosts_file: Some(&hosts),
            message_file: &message_file,
            target_id: &target,
        };
        let config = container::config(&parts).map_err(|error| failed(error.0))?;
        for mount in &config.mounts {
            ensure_sub_path(&volumes, std::path::Path::new(&mount.host_path)).map_err(&failed)?;
        }
        let sandbox = sandbox::config(pod, &facts, attempt, &self.logs(pod).display().to_string());
        let id = self.runtime.create_container(sandbox_id, config, sandbox).await.map_err(|error| refusal("CreateContainerError")(text(error)))?;
        self.event(pod, EventType::Normal, "Created", "Container created".to_owned()).await;
        Ok(id)
    }

    /// For an ephemeral container that names one: the container whose processes it sees.
    fn target_of(&self, pod: &Pod, runtime: &PodRuntime, name: &str) -> String {
        let ephemeral = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten()).find(|container| container.name == name);
        let target = ephemeral.and_then(|container| container.target_container_name.as_deref());
        target.and_then(|name| runtime.latest(name)).map(|container| container.id.clone()).unwrap_or_default()
    }

    fn hosts_file(&self, pod: &Pod, facts: &NodeFacts, ips: &[String]) -> std::io::Result<PathBuf> {
        let path = self.folder(pod).join("etc-hosts");
        let text = if pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true) {
            std::fs::read_to_string("/etc/hosts").unwrap_or_default() + &sandbox::aliases(pod)
        } else {
            sandbox::hosts_file(pod, facts, ips)
        };
        std::fs::write(&path, text)?;
        Ok(path)
    }

    async fn stop(&self, pod: &Pod, runtime: &PodRuntime, (id, name): (&str, &str), grace: Duration, why: &Why) -> Result<(), Refusal> {
        let message = match why {
            Why::ProbeFailed(probe) => format!("Container {name} failed {} probe, will be restarted", probe.to_lowercase()),
            Why::SpecChanged => format!("Container {name} definition changed, will be restarted"),
            _ => format!("Stopping container {name}"),
        };
        self.event(pod, EventType::Normal, "Killing", message).await;
        let started = Instant::now();
        let wanted = pod.spec.as_ref().and_then(|spec| find(spec, name)).map(|(container, _)| container);
        let hook = wanted.as_ref().and_then(|container| container.lifecycle.as_ref()).and_then(|lifecycle| lifecycle.pre_stop.clone());
        let running = runtime.containers.iter().any(|container| container.id == id && container.is_running());
        if let (Some(hook), Some(wanted), true) = (hook, wanted, running && !grace.is_zero()) {
            let target = Target { container: wanted, container_id: id.to_owned(), pod_ip: pod_ip(runtime, &self.facts.load(), pod) };
            if let Err(why) = self.prober.hook(&target, &hook, grace).await {
                self.event(pod, EventType::Warning, "FailedPreStopHook", format!("PreStopHook failed: {why}")).await;
            }
        }
        let left = grace.saturating_sub(started.elapsed());
        let left = if grace < LEAST_GRACE { grace } else { left.max(LEAST_GRACE) };
        self.runtime.stop_container(id, left).await.map_err(|error| refusal("FailedKillPod")(text(error)))
    }

    async fn clean_up(&self, pod: &Pod) -> Result<(), Refusal> {
        let failed = |error: std::io::Error| refusal("FailedCleanUp")(error.to_string());
        tear_down(&self.folder(pod)).await.map_err(failed)?;
        self.references.forget(meta(&pod.metadata.uid));
        cgroup::remove(pod, &self.facts.load()).map_err(failed)
    }

    /// Leaves nothing of a pod on the node: for one whose object is gone.
    pub async fn erase(&self, pod: &Pod, runtime: &PodRuntime) {
        for sandbox in &runtime.sandboxes {
            // Takes its containers with it.
            if let Err(error) = self.runtime.remove_sandbox(&sandbox.id).await {
                tracing::info!(pod = crate::spec::full_name(pod), error = &error as &dyn std::error::Error, "a sandbox stays behind");
            }
        }
        for folder in [self.folder(pod), self.logs(pod)] {
            if let Err(error) = std::fs::remove_dir_all(&folder)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::info!(folder = %folder.display(), %error, "a pod's folder stays behind");
            }
        }
    }

    /// Notes a probe's failure for whoever looks at the pod.
    pub async fn unhealthy(&self, pod: &Pod, probe: &str, why: &str) {
        self.event(pod, EventType::Warning, "Unhealthy", format!("{probe} probe failed: {why}")).await;
    }

    pub async fn note(&self, pod: &Pod, kind: EventType, reason: &str, message: String) {
        self.event(pod, kind, reason, message).await;
    }

    /// Asks the API for a pod as it is now.
    pub async fn fetch(&self, pod: &Pod) -> Option<Value> {
        self.client.api("", "v1", "pods", meta(&pod.metadata.namespace)).find(meta(&pod.metadata.name)).await.ok().flatten()
    }
}

/// A `subPath` that is not there is made, as a directory; what a container planted there must not lead out of the volume.
fn ensure_sub_path(volumes: &BTreeMap<String, PathBuf>, path: &std::path::Path) -> Result<(), String> {
    let Some(volume) = volumes.values().find(|volume| path.starts_with(volume) && path != volume.as_path()) else { return Ok(()) };
    if !path.exists() {
        std::fs::create_dir_all(path).map_err(|error| format!("failed to create subPath directory: {error}"))?;
    }
    let (real, root) = (path.canonicalize(), volume.canonicalize());
    match (real, root) {
        (Ok(real), Ok(root)) if real.starts_with(&root) => Ok(()),
        _ => Err(format!("subPath {} leads out of its volume", path.display())),
    }
}

/// The pod's addresses; the node's for one with the host's network.
pub(super) fn pod_ips(runtime: &PodRuntime, facts: &NodeFacts, pod: &Pod) -> Vec<String> {
    if pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true) {
        return facts.ips.iter().map(ToString::to_string).collect();
    }
    runtime.sandboxes.first().iter().flat_map(|sandbox| &sandbox.ips).map(ToString::to_string).collect()
}

pub(super) fn pod_ip(runtime: &PodRuntime, facts: &NodeFacts, pod: &Pod) -> Option<IpAddr> {
    pod_ips(runtime, facts, pod).first().and_then(|ip| ip.parse().ok())
}
