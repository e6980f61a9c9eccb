//! Measures the machine, says what it is short of, evicts, and removes images that nobody uses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use wheelhouse_base::Clock;
use wheelhouse_runtime::Stop;

use super::eviction::{self, Candidate, Measured, Resource, Seen};
use super::garbage::Known;
use super::machine;
use super::object::Pressure;
use crate::config::KubeletConfig;
use crate::cri::Runtime;
use crate::logs::rotate;
use crate::pods::{Command, Shared};
use crate::spec::meta;

/// Upstream's monitoring interval.
const LOOK: Duration = Duration::from_secs(10);
/// Images are looked at less often; upstream's five minutes.
const IMAGES_EVERY: u32 = 30;

pub struct Housekeeping {
    pub config: Arc<KubeletConfig>,
    pub runtime: Runtime,
    pub clock: Arc<dyn Clock>,
    pub pressure: Arc<Mutex<Pressure>>,
    pub shared: Arc<Shared>,
    pub commands: mpsc::Sender<Command>,
}

impl Housekeeping {
    pub async fn run(self, mut stop: Stop) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut seen, mut known, mut round) = (Seen::default(), Known::default(), 0_u32);
        while stop.or(look.tick()).await.is_some() {
            let measured = Measured { memory: machine::memory(), disk: machine::space(&self.config.root) };
            let short = eviction::short(&measured, self.config.disk_reserve);
            *self.pressure.lock() = seen.note(&short, self.clock.now());
            let pressed = short.contains(&Resource::Disk);
            if pressed || round.is_multiple_of(IMAGES_EVERY) {
                self.remove_images(&mut known, &measured, pressed).await;
            }
            self.rotate_logs().await;
            round = round.wrapping_add(1);
            if let Some(resource) = short.first() {
                self.evict(*resource).await;
            }
        }
    }

    async fn rotate_logs(&self) {
        for view in self.shared.pods().into_values() {
            let metadata = &view.pod.metadata;
            let folder = self.config.pod_logs(meta(&metadata.namespace), meta(&metadata.name), meta(&metadata.uid));
            for container in view.runtime.containers.iter().filter(|container| container.is_running()) {
                let log = folder.join(&container.name).join(format!("{}.log", container.attempt));
                let stamp = self.clock.now().as_micros().to_string();
                if rotate::set_aside(&log, &stamp).unwrap_or(false)
                    && let Err(error) = self.runtime.reopen_log(&container.id).await
                {
                    tracing::warn!(log = %log.display(), error = &error as &dyn std::error::Error, "the runtime goes on writing a log that was set aside");
                }
            }
        }
    }

    async fn remove_images(&self, known: &mut Known, measured: &Measured, pressed: bool) {
        let Ok(images) = self.runtime.images().await else { return };
        let Ok(containers) = self.runtime.containers(None).await else { return };
        let used: BTreeSet<String> = containers.into_iter().map(|container| container.image_ref).collect();
        let now = self.clock.now();
        known.note(&images, &used, now);
        for id in known.surplus(&images, &used, measured.disk, pressed, now) {
            match self.runtime.remove_image(&id).await {
                Ok(()) => tracing::info!(image = id, "an image that nobody uses is removed"),
                Err(error) => tracing::info!(image = id, error = &error as &dyn std::error::Error, "an image stays"),
            }
        }
    }

    async fn evict(&self, resource: Resource) {
        let usage = self.runtime.usage().await.unwrap_or_default();
        let views = self.shared.pods();
        let active = views.values().filter(|view| view.runtime.containers.iter().any(|container| container.is_running()));
        let candidates: Vec<Candidate> = active
            .map(|view| {
                let own = usage.iter().filter(|usage| Some(&usage.pod_uid) == view.pod.metadata.uid.as_ref());
                let (memory, disk) = own.fold((0, 0), |(memory, disk), usage| (memory + usage.memory_working_set, disk + usage.disk_used));
                Candidate { pod: Arc::clone(&view.pod), memory, disk }
            })
            .collect();
        let Some(chosen) = eviction::choose(resource, &candidates) else { return };
        let used = if resource == Resource::Memory { chosen.memory } else { chosen.disk };
        let message = eviction::message(resource, &chosen.pod, used);
        tracing::warn!(pod = crate::spec::full_name(&chosen.pod), message, "evicting");
        let uid = chosen.pod.metadata.uid.clone().unwrap_or_default();
        // A full queue means that evictions are under way.
        let _ = self.commands.try_send(Command::Evict { uid, reason: "Evicted", message, grace: Some(Duration::ZERO) });
    }
}
