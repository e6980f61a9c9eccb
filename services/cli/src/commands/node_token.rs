//! `wheelhouse node-token …`

use serde_json::json;

use crate::api::Api;
use crate::args::{Connection, NodeToken, Output};
use crate::error::CliError;
use crate::output::{self, age, text};

pub async fn run(connection: &Connection, output: Output, command: NodeToken) -> Result<(), CliError> {
    let api = Api::connect(connection)?;
    match command {
        NodeToken::Create { cluster, ttl, description } => {
            let mut body = json!({"description": description});
            if let Some(ttl) = ttl {
                body["ttlSeconds"] = json!(ttl.as_secs());
            }
            let token = api.post(&format!("/v1/clusters/{cluster}/node-tokens"), &body).await?;
            match output {
                Output::Json => output::print(&token),
                Output::Table => {
                    eprintln!("Run this on the machine that shall become a node (valid until {}):", text(&token, "expiresAt"));
                    println!("{}", text(&token, "joinCommand"));
                }
            }
        }
        NodeToken::List { cluster } => {
            let tokens = api.list(&format!("/v1/clusters/{cluster}/node-tokens")).await?;
            let columns: [output::Column; 4] = [
                ("ID", |t| text(t, "id")),
                ("EXPIRES", |t| text(t, "expiresAt")),
                ("DESCRIPTION", |t| text(t, "description")),
                ("AGE", |t| age(t, "createdAt")),
            ];
            output::list(output, &tokens, &columns, "There are no node tokens.");
        }
        NodeToken::Revoke { cluster, id } => {
            api.delete(&format!("/v1/clusters/{cluster}/node-tokens/{id}")).await?;
            println!("Node token {id} revoked.");
        }
    }
    Ok(())
}
