//! `wheelhouse host …`: the operator's view, straight from the system control plane.

use std::path::PathBuf;

use serde_json::{Value, json};
use wheelhouse_client::{Client, ClientError, ListOptions, PatchKind};

use crate::args::{Host, Output};
use crate::error::CliError;
use crate::output::{self, age};

/// Written by `wheelhouse up` next to its data.
const DEFAULT_KUBECONFIG: &str = ".wheelhouse/system.kubeconfig";

pub async fn run(kubeconfig: Option<PathBuf>, output: Output, command: Host) -> Result<(), CliError> {
    let path = kubeconfig.unwrap_or_else(|| PathBuf::from(DEFAULT_KUBECONFIG));
    let text = std::fs::read_to_string(&path).map_err(|error| CliError::file(&path, error))?;
    let client = wheelhouse_client::kubeconfig::client(&text).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
    match command {
        Host::List => {
            let list: Value = hosts(&client).list(&ListOptions::default()).await.map_err(refused)?;
            let items: Vec<Value> = list["items"].as_array().cloned().unwrap_or_default();
            let columns: [output::Column; 5] = [
                ("NAME", |h| output::text(&h["metadata"], "name")),
                ("READY", |h| ready(h)),
                ("ZONE", |h| output::text(&h["spec"], "zone")),
                ("SCHEDULABLE", |h| if h["spec"]["unschedulable"] == true { "no".into() } else { "yes".into() }),
                ("AGE", |h| age(&h["metadata"], "creationTimestamp")),
            ];
            output::list(output, &items, &columns, "There are no hosts.");
        }
        Host::Cordon { name } => cordon(&client, &name, true).await?,
        Host::Uncordon { name } => cordon(&client, &name, false).await?,
    }
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

async fn cordon(client: &Client, name: &str, unschedulable: bool) -> Result<(), CliError> {
    let patch = json!({"spec": {"unschedulable": unschedulable}});
    hosts(client).patch::<Value>(name, "", PatchKind::Merge, "", &patch).await.map_err(refused)?;
    println!("Host {name} {}.", if unschedulable { "cordoned" } else { "uncordoned" });
    Ok(())
}

fn refused(error: ClientError) -> CliError {
    match error.code() {
        0 => CliError::Failed(format!("the system control plane does not answer: {error}")),
        code => CliError::Refused { code, detail: error.to_string() },
    }
}
