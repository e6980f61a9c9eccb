//! Parses the command line and runs one command.

use std::process::ExitCode;

use clap::Parser;
use wheelhouse_node::args::{Cli, Command};
use wheelhouse_node::{check, join, leave, run, unit};
use wheelhouse_runtime::telemetry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let telemetry = cli.log_format.parse().map_err(anyhow::Error::msg).and_then(|format| Ok(telemetry::init("wheelhouse-node", format)?));
    let _telemetry = match telemetry {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("wheelhouse-node: {error:#}");
            return ExitCode::from(2);
        }
    };
    let done: anyhow::Result<()> = match cli.command {
        Command::Join(flags) => async { Ok(join::join(&flags).await?) }.await,
        Command::Run(flags) => async { Ok(run::run(&flags.place).await?) }.await,
        Command::Leave(flags) => async { Ok(leave::leave(&flags).await?) }.await,
        Command::Check(flags) => check::command(&flags).await,
        Command::Unit(flags) => {
            print!("{}", unit::systemd(&flags.place));
            Ok(())
        }
        Command::CloudInit => {
            print!("{}", unit::cloud_init());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wheelhouse-node: {error:#}");
            ExitCode::FAILURE
        }
    }
}
