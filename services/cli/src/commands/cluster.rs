//! `wheelhouse cluster …`

use std::io::{BufRead, IsTerminal};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::api::Api;
use crate::args::{Cluster, Connection, Output};
use crate::commands::etcd;
use crate::error::CliError;
use crate::output::{self, Progress, age, text};

const COLUMNS: [output::Column; 6] = [
    ("NAME", |c| text(c, "name")),
    ("STATE", |c| text(c, "state")),
    ("REPLICAS", |c| format!("{}/{}", text(c, "readyReplicas"), text(c, "replicas"))),
    ("VERSION", |c| text(c, "version")),
    ("ID", |c| text(c, "id")),
    ("AGE", |c| age(c, "createdAt")),
];

pub async fn run(connection: &Connection, output: Output, command: Cluster) -> Result<(), CliError> {
    let api = Api::connect(connection)?;
    match command {
        Cluster::Create { name, replicas, version, wait } => {
            let mut body = json!({"name": name, "replicas": replicas});
            if let Some(version) = version {
                body["version"] = json!(version);
            }
            let mut cluster = api.post("/v1/clusters", &body).await?;
            if let Some(limit) = wait.wait {
                cluster = ready(&api, &name, limit).await?;
            }
            show(output, &cluster);
            if output == Output::Table {
                eprintln!("Next: wheelhouse cluster kubeconfig {name} > {name}.kubeconfig && kubectl --kubeconfig {name}.kubeconfig get ns");
            }
        }
        Cluster::List => {
            let clusters = api.list("/v1/clusters").await?;
            output::list(output, &clusters, &COLUMNS, "There are no clusters. `wheelhouse cluster create NAME` makes one.");
        }
        Cluster::Get { name, wait } => {
            let cluster = match wait.wait {
                Some(limit) => ready(&api, &name, limit).await?,
                None => api.get(&format!("/v1/clusters/{name}")).await?,
            };
            show(output, &cluster);
            if output == Output::Table {
                conditions(&cluster);
            }
        }
        Cluster::Delete { name, yes, wait } => {
            if !yes {
                confirm(&name)?;
            }
            api.delete(&format!("/v1/clusters/{name}")).await?;
            if let Some(limit) = wait.wait {
                let what = format!("cluster {name} is not gone");
                api.follow(&name, limit, &what, |_| {}, |cluster| cluster.is_none()).await?;
                println!("Cluster {name} deleted.");
            } else {
                println!("Cluster {name} is being deleted.");
            }
        }
        Cluster::Scale { name, replicas, wait } => {
            let mut cluster = api.patch(&format!("/v1/clusters/{name}"), &json!({"replicas": replicas})).await?;
            if let Some(limit) = wait.wait {
                cluster = ready(&api, &name, limit).await?;
            }
            show(output, &cluster);
        }
        Cluster::Kubeconfig { name, ttl, list, revoke } => {
            let path = format!("/v1/clusters/{name}/kubeconfigs");
            if let Some(id) = revoke {
                api.delete(&format!("{path}/{id}")).await?;
                println!("Kubeconfig {id} revoked.");
            } else if list {
                let columns: [output::Column; 4] = [
                    ("ID", |k| text(k, "id")),
                    ("EXPIRES", |k| text(k, "expiresAt")),
                    ("DESCRIPTION", |k| text(k, "description")),
                    ("AGE", |k| age(k, "createdAt")),
                ];
                output::list(output, &api.list(&path).await?, &columns, "There are no kubeconfigs.");
            } else {
                let kubeconfig = issue(&api, &name, ttl).await?;
                match output {
                    Output::Json => output::print(&kubeconfig),
                    Output::Table => output::print_text(kubeconfig["kubeconfig"].as_str().unwrap_or_default()),
                }
            }
        }
        Cluster::Etcd { name, listen } => {
            let kubeconfig = issue(&api, &name, Some(etcd::CREDENTIAL_LIFE)).await?;
            etcd::serve(kubeconfig["kubeconfig"].as_str().unwrap_or_default(), listen, &name).await?;
        }
    }
    Ok(())
}

async fn issue(api: &Api, name: &str, ttl: Option<Duration>) -> Result<Value, CliError> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut body = json!({"description": format!("wheelhouse CLI, {at}")});
    if let Some(ttl) = ttl {
        body["ttlSeconds"] = json!(ttl.as_secs());
    }
    api.post(&format!("/v1/clusters/{name}/kubeconfigs"), &body).await
}

/// Waits until the cluster has proven that it takes writes, with every replica that was asked for.
async fn ready(api: &Api, name: &str, limit: Duration) -> Result<Value, CliError> {
    let mut progress = Progress::default();
    let what = format!("cluster {name} is not ready");
    let done = |cluster: Option<&Value>| cluster.is_some_and(|c| c["state"] == "Ready" && c["readyReplicas"] == c["replicas"]);
    let followed = api.follow(name, limit, &what, |cluster| progress.say(&format!("cluster {name}: {}", telling(cluster))), done).await;
    progress.end();
    followed.map(Option::unwrap_or_default)
}

/// The condition that says most about why a cluster is not ready.
fn telling(cluster: &Value) -> String {
    let conditions = cluster["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let problem = conditions.iter().find(|c| c["status"] != "True" && c["type"] != "Progressing").or(conditions.first());
    match problem {
        Some(condition) => format!("{} ({})", text(condition, "reason"), text(condition, "message")),
        None => "waiting for a first look at it".to_owned(),
    }
}

fn show(output: Output, cluster: &Value) {
    match output {
        Output::Json => output::print(cluster),
        Output::Table => output::list(output, std::slice::from_ref(cluster), &COLUMNS, ""),
    }
}

fn conditions(cluster: &Value) {
    let columns: [output::Column; 4] = [
        ("CONDITION", |c| text(c, "type")),
        ("STATUS", |c| text(c, "status")),
        ("REASON", |c| text(c, "reason")),
        ("MESSAGE", |c| text(c, "message")),
    ];
    let conditions = cluster["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !conditions.is_empty() {
        println!();
        output::list(Output::Table, conditions, &columns, "");
    }
}

fn confirm(name: &str) -> Result<(), CliError> {
    if !std::io::stdin().is_terminal() {
        return Err(CliError::Usage(format!("deleting {name} needs --yes where nobody can be asked")));
    }
    eprint!("This deletes cluster {name} and everything in it. Type its name to go on: ");
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if read.is_ok() && line.trim() == name { Ok(()) } else { Err(CliError::Failed("not deleted".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_that_is_wrong_is_told_first() {
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "m"});
        let cluster = json!({"conditions": [condition("Placed", "True", "Placed"), condition("Ready", "False", "NoHost")]});
        assert_eq!(telling(&cluster), "NoHost (m)");
        assert_eq!(telling(&json!({})), "waiting for a first look at it");
    }
}
