//! This host's own object in the system API, and its heartbeat.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use wheelhouse_base::{Clock, SystemClock};
use wheelhouse_client::{Client, ClientError, PatchKind};
use wheelhouse_kinds::fleet::conditions::{self, READY, Reading, reason};
use wheelhouse_kinds::fleet::host::{HostSpec, HostStatus};
use wheelhouse_kinds::fleet::{GROUP, Host, Object, VERSION};
use wheelhouse_runtime::Stop;

use crate::directory::HostFile;

/// Between attempts while the system API does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// Field manager of this host's writes.
const MANAGER: &str = "wheelhouse-host";

/// What the host says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    pub draining: bool,
    pub disk_full: bool,
    pub replicas: i64,
    pub leaders: i64,
}

pub struct Registration {
    pub client: Client,
    pub host: HostFile,
    pub incarnation: String,
    pub vitals: watch::Receiver<Vitals>,
    /// Between two words of this host.
    pub heartbeat: Duration,
}

impl Registration {
    /// Writes the object if it is missing or out of date, then a heartbeat at every interval and with every change that others act on.
    pub async fn run(mut self, mut stop: Stop) {
        let mut last_error = String::new();
        loop {
            let vitals = *self.vitals.borrow_and_update();
            let pause = match stop.or(self.beat(vitals)).await {
                None => return,
                Some(Ok(())) => {
                    last_error.clear();
                    self.heartbeat
                }
                Some(Err(error)) => {
                    let text = error.to_string();
                    if text != last_error {
                        tracing::info!(error = %text, "no heartbeat could be written");
                        last_error = text;
                    }
                    RETRY
                }
            };
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(pause) => {}
                () = telling_change(&mut self.vitals, vitals) => {}
            }
        }
    }

    async fn beat(&self, vitals: Vitals) -> Result<(), ClientError> {
        let hosts = self.client.api(GROUP, VERSION, "hosts", "");
        let name = self.host.name.as_str();
        let wanted = HostSpec { zone: self.host.zone.clone(), unschedulable: false, addresses: self.host.addresses.clone() };
        let host = match hosts.find::<Host>(name).await? {
            Some(host) => host,
            None => hosts.create(&Object::<HostSpec, HostStatus>::new("Host", "", name, wanted.clone())).await?,
        };
        if host.spec.zone != wanted.zone || host.spec.addresses != wanted.addresses {
            let patch = json!({"spec": {"zone": wanted.zone, "addresses": wanted.addresses}});
            hosts.patch::<Host>(name, "", PatchKind::Merge, MANAGER, &patch).await?;
        }
        let mut status = host.status.clone().unwrap_or_default();
        let now = SystemClock.now();
        let (ready, why, message) = match vitals {
            Vitals { draining: true, .. } => (false, reason::DRAINING, "the host is about to exit"),
            Vitals { disk_full: true, .. } => (false, reason::DISK_FULL, "free disk space is below the reserve"),
            _ => (true, reason::HEARTBEAT, ""),
        };
        let reading = Reading { kind: READY, status: Some(ready), reason: why, message: message.to_owned() };
        conditions::set(&mut status.conditions, reading, host.generation(), now);
        status.last_heartbeat = Some(wheelhouse_kinds::time::api_time(now));
        status.incarnation = self.incarnation.clone();
        status.replicas = vitals.replicas;
        status.leaders = vitals.leaders;
        hosts.patch::<Host>(name, "status", PatchKind::Merge, MANAGER, &json!({"status": status})).await?;
        Ok(())
    }
}

/// Resolves when something changed that placement depends on; counts wait for the next heartbeat.
async fn telling_change(vitals: &mut watch::Receiver<Vitals>, before: Vitals) {
    let telling = |v: &Vitals| v.draining != before.draining || v.disk_full != before.disk_full;
    if vitals.wait_for(telling).await.is_err() {
        std::future::pending().await
    }
}
