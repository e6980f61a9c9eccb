//! Shell completion.

use clap::CommandFactory;

use crate::args::Args;

pub fn print(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Args::command(), "wheelhouse", &mut std::io::stdout());
}
