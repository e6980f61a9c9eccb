//! `wheelhouse up`: a whole service on this machine, from the binaries beside this one.
//!
//! ```text
//! host-a: init, run     host-b, c …: join, run     endpoint     tenant API
//! ```
//!
//! Everything lies in the data directory; starting again on it resumes. A process that dies is started again after a second, which is what the
//! machine's service manager would do.

mod child;
mod layout;

use std::time::{Duration, Instant};

use crate::api::Api;
use crate::args::Up;
use crate::error::CliError;
use crate::output;
use crate::profile::{Config, Profile};

use child::Children;
use layout::Layout;

/// A first start makes keys and elects leaders; a slow machine may take its time.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Between looks at something that is coming up.
const LOOK: Duration = Duration::from_millis(200);
/// The profile that `up` writes for the CLI.
const PROFILE: &str = "local";

pub async fn run(up: Up) -> Result<(), CliError> {
    let layout = Layout::new(up)?;
    let mut children = Children::new(layout.logs());
    let running = async {
        start(&layout, &mut children).await?;
        let ca = layout.api_ca()?;
        wait_ready(&layout, &ca).await?;
        let profile = write_profile(&layout, &ca)?;
        announce(&layout, &profile);
        Ok::<(), CliError>(())
    };
    let started = tokio::select! {
        result = running => result,
        () = stop_requested() => Ok(()),
    };
    if started.is_ok() {
        children.supervise(stop_requested()).await;
    }
    children.stop().await;
    started
}

async fn start(layout: &Layout, children: &mut Children) -> Result<(), CliError> {
    layout.init_first_host().await?;
    children.add("host-a", layout.host_command("host-a"));
    children.start("host-a")?;
    let names: Vec<String> = layout.host_names().skip(1).collect();
    for name in &names {
        if !layout.is_joined(name) {
            join(layout, name).await?;
        }
        children.add(name, layout.host_command(name));
        children.start(name)?;
    }
    children.add("endpoint", layout.endpoint_command());
    children.start("endpoint")?;
    layout.issue_api_certificate()?;
    children.add("api", layout.api_command());
    children.start("api")
}

/// The first host may still be starting: its refusals are waited out.
async fn join(layout: &Layout, name: &str) -> Result<(), CliError> {
    let started = Instant::now();
    loop {
        match layout.join(name).await {
            Ok(()) => return Ok(()),
            Err(error) if started.elapsed() > START_LIMIT => return Err(error),
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

async fn wait_ready(layout: &Layout, ca: &str) -> Result<(), CliError> {
    let profile = Profile { endpoint: layout.api_url(), ca: ca.to_owned(), api_key: String::new() };
    let api = Api::with_profile(&profile)?;
    let (started, mut progress) = (Instant::now(), output::Progress::default());
    loop {
        match api.text("/readyz").await {
            Ok(_) => break,
            Err(error) if started.elapsed() > START_LIMIT => {
                progress.end();
                return Err(CliError::Failed(format!("the service does not become ready: {error}; its logs are in {}", layout.logs().display())));
            }
            Err(_) => {
                progress.say("starting …");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
    progress.end();
    Ok(())
}

/// Points the CLI at this service. A key that was saved for it stays.
fn write_profile(layout: &Layout, ca: &str) -> Result<String, CliError> {
    let mut config = Config::load()?;
    let known = config.profiles.iter().find(|(_, profile)| profile.ca == ca && !profile.api_key.is_empty()).map(|(name, _)| name.clone());
    config.profiles.insert(PROFILE.to_owned(), Profile { endpoint: layout.api_url(), ca: ca.to_owned(), api_key: String::new() });
    let current = known.unwrap_or_else(|| PROFILE.to_owned());
    config.current.clone_from(&current);
    config.save()?;
    Ok(current)
}

fn announce(layout: &Layout, profile: &str) {
    println!("Wheelhouse is up: {} hosts, endpoint {}, tenant API {}.", layout.host_names().count(), layout.endpoint_url(), layout.api_url());
    println!("  logs      {}", layout.logs().display());
    println!("  operators kubectl --kubeconfig {} get clusters,hosts -A", layout.system_kubeconfig().display());
    if profile == PROFILE {
        println!("  tenants   wheelhouse signup --name demo --email you@example.com && wheelhouse cluster create demo --wait");
    } else {
        println!("  tenants   wheelhouse cluster list    (profile {profile})");
    }
    println!("Ctrl-C stops it.");
}

async fn stop_requested() {
    // Without a signal handler the default one ends the process, children included by their own handlers.
    if wheelhouse_runtime::shutdown::requested().await.is_err() {
        std::future::pending::<()>().await;
    }
}
