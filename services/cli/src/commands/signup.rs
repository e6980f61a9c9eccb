//! `wheelhouse signup`

use serde_json::json;

use crate::api::Api;
use crate::args::{Connection, Output, Signup};
use crate::error::CliError;
use crate::output;
use crate::profile::{Config, resolve};

/// Signs up and keeps the key: losing it means losing the tenant, so it is saved before anything is printed.
pub async fn run(connection: &Connection, output: Output, signup: Signup) -> Result<(), CliError> {
    let mut profile = resolve(connection)?;
    profile.api_key.clear();
    let mut body = json!({"name": signup.name, "email": signup.email});
    if let Some(invitation) = signup.invitation {
        body["invitation"] = json!(invitation);
    }
    let tenant = Api::with_profile(&profile)?.post("/v1/tenants", &body).await?;
    profile.api_key = tenant["apiKey"]["key"].as_str().unwrap_or_default().to_owned();
    let mut config = Config::load()?;
    config.profiles.insert(signup.name.clone(), profile);
    config.current.clone_from(&signup.name);
    let path = config.save()?;
    if output == Output::Json {
        output::print(&tenant);
    } else {
        println!("Signed up as {} (tenant {}).", signup.name, output::text(&tenant, "id"));
        println!("The API key is in {} and selected.", path.display());
        println!("Next: wheelhouse cluster create demo --wait");
    }
    Ok(())
}
