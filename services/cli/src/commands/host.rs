//! `wheelhouse host …`: the operator's view, straight from the system control plane.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wheelhouse_client::{Client, ClientError, ListOptions, PatchKind};
use wheelhouse_kinds::fleet::host::EVACUATE_ANNOTATION;

use crate::args::{Host, Output};
use crate::error::CliError;
use crate::output::{self, Progress, age};

/// Written by `wheelhouse up` next to its data.
const DEFAULT_KUBECONFIG: &str = ".wheelhouse/system.kubeconfig";

/// Between two looks at a host that is evacuating.
const LOOK: Duration = Duration::from_millis(500);

pub async fn run(kubeconfig: Option<PathBuf>, output: Output, command: Host) -> Result<(), CliError> {
    if let Host::Token { data_dir, hours } = command {
        return token(&data_dir, hours).await;
    }
    let path = kubeconfig.unwrap_or_else(|| PathBuf::from(DEFAULT_KUBECONFIG));
    let text = std::fs::read_to_string(&path).map_err(|error| CliError::file(&path, error))?;
    let client = wheelhouse_client::kubeconfig::client(&text).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
    match command {
        Host::List => list(&client, output).await,
        Host::Cordon { name } => {
            mark(&client, &name, json!({"spec": {"unschedulable": true}})).await?;
            println!("Host {name} cordoned.");
            Ok(())
        }
        Host::Uncordon { name } => {
            mark(&client, &name, json!({"spec": {"unschedulable": false}, "metadata": {"annotations": {EVACUATE_ANNOTATION: null}}})).await?;
            println!("Host {name} uncordoned.");
            Ok(())
        }
        Host::Evacuate { name, wait } => {
            mark(&client, &name, json!({"spec": {"unschedulable": true}, "metadata": {"annotations": {EVACUATE_ANNOTATION: "true"}}})).await?;
            println!("Host {name} evacuates.");
            match wait.wait {
                Some(limit) => evacuated(&client, &name, limit).await,
                None => Ok(()),
            }
        }
        Host::Token { .. } => unreachable!("handled before a kubeconfig is read"),
    }
}

async fn list(client: &Client, output: Output) -> Result<(), CliError> {
    let list: Value = hosts(client).list(&ListOptions::default()).await.map_err(refused)?;
    let items: Vec<Value> = list["items"].as_array().cloned().unwrap_or_default();
    let columns: [(&str, fn(&Value) -> String); 7] = [
        ("NAME", |h| output::text(&h["metadata"], "name")),
        ("READY", |h| ready(h)),
        ("ZONE", |h| output::text(&h["spec"], "zone")),
        ("TAKES REPLICAS", |h| {
            if is_evacuating(h) {
                "evacuating"
            } else if h["spec"]["unschedulable"] == true {
                "cordoned"
            } else {
                "yes"
            }
            .to_owned()
        }),
        ("REPLICAS", |h| h["status"]["replicas"].as_i64().unwrap_or(0).to_string()),
        ("LEADERS", |h| h["status"]["leaders"].as_i64().unwrap_or(0).to_string()),
        ("AGE", |h| age(&h["metadata"], "creationTimestamp")),
    ];
    output::list(output, &items, &columns, "There are no hosts.");
    Ok(())
}

fn is_evacuating(host: &Value) -> bool {
    host["metadata"]["annotations"][EVACUATE_ANNOTATION] == "true"
}

/// Waits until no replica is assigned to the host any more.
async fn evacuated(client: &Client, name: &str, limit: Duration) -> Result<(), CliError> {
    let (started, mut progress) = (Instant::now(), Progress::default());
    let assigned = ListOptions { field_selector: format!("spec.host={name}"), ..ListOptions::default() };
    loop {
        let list: Value =
            client.api("fleet.wheelhouse.dev", "v1", "controlplanereplicas", "wheelhouse-system").list(&assigned).await.map_err(refused)?;
        let left = list["items"].as_array().map_or(0, Vec::len);
        if left == 0 {
            progress.end();
            println!("Host {name} holds no replica any more.");
            return Ok(());
        }
        if started.elapsed() > limit {
            progress.end();
            let what = format!("{left} replicas are still on {name}; `kubectl get clusters -A` says where there is no other host");
            return Err(CliError::TimedOut { what, seconds: limit.as_secs() });
        }
        progress.say(&format!("host {name}: {left} replicas are still there"));
        tokio::time::sleep(LOOK).await;
    }
}

/// From the program beside this one, which reads the host's keys.
async fn token(data_dir: &Path, hours: u32) -> Result<(), CliError> {
    let own = std::env::current_exe().map_err(|error| CliError::Failed(format!("cannot tell where this program is: {error}")))?;
    let program = own.with_file_name("wheelhouse-host");
    let ran =
        tokio::process::Command::new(&program).arg("token").arg("--data-dir").arg(data_dir).args(["--hours", &hours.to_string()]).output().await;
    let ran = ran.map_err(|error| CliError::file(&program, error))?;
    if !ran.status.success() {
        return Err(CliError::Failed(String::from_utf8_lossy(&ran.stderr).trim().to_owned()));
    }
    print!("{}", String::from_utf8_lossy(&ran.stdout));
    Ok(())
}

fn hosts(client: &Client) -> wheelhouse_client::Api<'_> {
    client.api("fleet.wheelhouse.dev", "v1", "hosts", "")
}

fn ready(host: &Value) -> String {
    let conditions = host["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|c| c["type"] == "Ready");
    ready.map_or_else(|| "Unknown".to_owned(), |c| output::text(c, "status"))
}

async fn mark(client: &Client, name: &str, patch: Value) -> Result<(), CliError> {
    hosts(client).patch::<Value>(name, "", PatchKind::Merge, "", &patch).await.map_err(refused).map(drop)
}

fn refused(error: ClientError) -> CliError {
    match error.code() {
        0 => CliError::Failed(format!("the system control plane does not answer: {error}")),
        code => CliError::Refused { code, detail: error.to_string() },
    }
}
