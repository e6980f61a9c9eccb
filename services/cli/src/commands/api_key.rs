//! `wheelhouse api-key …`

use serde_json::json;

use crate::api::Api;
use crate::args::{ApiKey, Connection, Output};
use crate::error::CliError;
use crate::output::{self, age, text};

pub async fn run(connection: &Connection, output: Output, command: ApiKey) -> Result<(), CliError> {
    let api = Api::connect(connection)?;
    match command {
        ApiKey::Create { description } => {
            let key = api.post("/v1/api-keys", &json!({"description": description})).await?;
            match output {
                Output::Json => output::print(&key),
                Output::Table => println!("{}", text(&key, "key")),
            }
        }
        ApiKey::List => {
            let keys = api.list("/v1/api-keys").await?;
            let columns: [output::Column; 3] =
                [("ID", |k| text(k, "id")), ("DESCRIPTION", |k| text(k, "description")), ("AGE", |k| age(k, "createdAt"))];
            output::list(output, &keys, &columns, "There are no API keys.");
        }
        ApiKey::Revoke { id } => {
            api.delete(&format!("/v1/api-keys/{id}")).await?;
            println!("API key {id} revoked.");
        }
    }
    Ok(())
}
