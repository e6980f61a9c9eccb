//! Parses the command line and runs one command.

use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use wheelhouse_base::{Clock, SystemClock};
use wheelhouse_host::config::{Cli, Command};
use wheelhouse_host::directory::Directory;
use wheelhouse_host::{init, join, process, store_only, token};
use wheelhouse_runtime::telemetry;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let format = cli.log_format.parse().map_err(anyhow::Error::msg).context("--log-format")?;
    let _telemetry = telemetry::init("wheelhouse-host", format)?;
    match cli.command {
        None if cli.store_only.store_only => store_only::run(&cli.store_only).await,
        None => anyhow::bail!("say what to do: init, join, run, token, credentials, or --store-only"),
        Some(Command::Init(flags)) => init::init(&flags),
        Some(Command::Join(flags)) => {
            let directory = Directory::new(&flags.identity.data_dir);
            let host = init::host_file(&flags.identity, "");
            join::join(&directory, host, &flags.host, &flags.token, &flags.ca_cert_hash).await.context("joining")
        }
        Some(Command::Run(flags)) => process::run(&flags).await,
        Some(Command::Token(flags)) => {
            let directory = Directory::new(&flags.data_dir);
            let keys = directory.keys()?;
            let expires = SystemClock.now().plus(Duration::from_secs(3600 * u64::from(flags.hours)));
            println!("--token {} --ca-cert-hash {}", token::issue(&keys.operator, expires), directory.authority(&keys)?.hash());
            Ok(())
        }
        Some(Command::Credentials(flags)) => {
            let directory = Directory::new(&flags.data_dir);
            let (keys, host) = (directory.keys()?, directory.host()?);
            if let Some(cluster) = &flags.cluster {
                return init::cluster_admin(&directory, &host, cluster, &flags.out);
            }
            init::credentials(&directory, &directory.authority(&keys)?, &host, flags.kind, &flags.out, Duration::from_secs(flags.life_seconds))
        }
    }
}
