//! `wheelhouse`: the command for tenants and operators.
//!
//! ```text
//! args -> commands/<noun> -> api (the tenant API over HTTPS) -> output (tables for people, JSON for programs)
//!                        \-> commands/up (starts a whole service on this machine)
//! ```
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 denied, 5 timed out.

mod api;
mod args;
mod commands;
mod error;
mod output;
mod profile;

use clap::Parser;

use crate::args::{Args, Command};
use crate::error::CliError;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let args = Args::parse();
    match run(args).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            error.report();
            error.exit_code()
        }
    }
}

async fn run(args: Args) -> Result<(), CliError> {
    let Args { connection, output, command } = args;
    match command {
        Command::Up(up) => commands::up::run(up).await,
        Command::Completion { shell } => {
            commands::completion::print(shell);
            Ok(())
        }
        Command::Signup(signup) => commands::signup::run(&connection, output, signup).await,
        Command::Cluster { command } => commands::cluster::run(&connection, output, command).await,
        Command::NodeToken { command } => commands::node_token::run(&connection, output, command).await,
        Command::ApiKey { command } => commands::api_key::run(&connection, output, command).await,
        Command::Host { kubeconfig, command } => commands::host::run(kubeconfig, output, command).await,
    }
}
