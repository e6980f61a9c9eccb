//! `wheelhouse up`
use crate::args::Up;
use crate::error::CliError;

pub async fn run(_: Up) -> Result<(), CliError> {
    Err(CliError::Failed("not here yet".into()))
}
