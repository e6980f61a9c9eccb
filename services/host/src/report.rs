//! Replicas' status in the system API: what the fleet's decisions and the tenants' conditions rest on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wheelhouse_base::{Clock, SystemClock};
use wheelhouse_client::{Client, ClientError, PatchKind};
use wheelhouse_kinds::fleet::conditions::{self, READY, Reading, reason};
use wheelhouse_kinds::fleet::control_plane_replica::ReplicaStatus;
use wheelhouse_kinds::fleet::{ControlPlaneReplica, GROUP, SYSTEM_NAMESPACE, VERSION};
use wheelhouse_runtime::Stop;
use wheelhouse_store::Store;

use crate::host::Host;
use crate::replica::State;

/// Changes in many groups at once (an election, a restart) are gathered for so long.
const GATHER: Duration = Duration::from_millis(20);

/// After a round in which something could not be written.
const RETRY: Duration = Duration::from_millis(500);

/// What was last written of each replica.
type Written = BTreeMap<String, Told>;

#[derive(Clone, PartialEq)]
enum Told {
    State(State),
    Lost(String),
}

/// Writes every change of every replica until stopped.
pub async fn run(host: Arc<Host>, mut stop: Stop) {
    let mut written = Written::new();
    let mut failed = false;
    loop {
        tokio::select! {
            () = stop.stopped() => return,
            () = host.replica_change() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(RETRY), if failed => {}
        }
        failed = round(&host, &mut written).await > 0;
    }
}

/// Writes what differs from what was written; answers how many could not be.
async fn round(host: &Host, written: &mut Written) -> usize {
    let mut now: BTreeMap<String, (Told, u64)> = BTreeMap::new();
    for (name, replica) in host.running() {
        let state = replica.state.borrow().clone();
        now.insert(name, (Told::State(state), replica.store.snapshot().revision()));
    }
    for (name, why) in host.lost() {
        now.insert(name, (Told::Lost(why), 0));
    }
    written.retain(|name, _| now.contains_key(name));
    let mut failures = 0;
    for (name, (told, revision)) in now {
        if written.get(&name) == Some(&told) {
            continue;
        }
        match write(&host.system, &name, &told, revision).await {
            Ok(()) => {
                written.insert(name, told);
            }
            Err(error) => {
                tracing::debug!(replica = %name, %error, "a replica's status could not be written");
                failures += 1;
            }
        }
    }
    failures
}

async fn write(system: &Client, name: &str, told: &Told, revision: u64) -> Result<(), ClientError> {
    let api = system.api(GROUP, VERSION, "controlplanereplicas", SYSTEM_NAMESPACE);
    let object: ControlPlaneReplica = api.get(name).await?;
    let old = object.status.clone().unwrap_or_default();
    let mut status = match told {
        Told::State(state) => ReplicaStatus {
            role: state.role,
            term: state.term,
            revision,
            voters: state.voters.clone(),
            observed_generation: state.generation,
            conditions: old.conditions,
        },
        Told::Lost(_) => old,
    };
    let (ready, why, message) = match told {
        Told::Lost(why) => (false, reason::LOST, why.clone()),
        Told::State(State { fault: Some(fault), .. }) => (false, reason::FAULTED, fault.clone()),
        Told::State(State { ready: true, .. }) => (true, reason::SERVING, String::new()),
        Told::State(_) => (false, reason::STARTING, "no contact with the group's leader".to_owned()),
    };
    let reading = Reading { kind: READY, status: Some(ready), reason: why, message };
    conditions::set(&mut status.conditions, reading, object.generation(), SystemClock.now());
    // The list of voters is replaced as a whole, also by an empty one, which the struct leaves out.
    let mut status = serde_json::to_value(&status).unwrap_or_default();
    if status.get("voters").is_none() {
        status["voters"] = Value::Null;
    }
    api.patch::<Value>(name, "status", PatchKind::Merge, "wheelhouse-host", &json!({"status": status})).await?;
    Ok(())
}
