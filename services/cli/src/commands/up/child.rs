//! Child processes: started, started again when they die, and stopped in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::error::CliError;

/// Before a process that died is started again: long enough not to spin, short against any failover that is looked at.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// What a process gets to drain after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// What to run: program, and arguments.
#[derive(Clone)]
pub struct Invocation {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

pub struct Children {
    logs: PathBuf,
    invocations: BTreeMap<String, Invocation>,
    running: BTreeMap<String, Child>,
}

impl Children {
    pub fn new(logs: PathBuf) -> Self {
        Self { logs, invocations: BTreeMap::new(), running: BTreeMap::new() }
    }

    pub fn add(&mut self, name: &str, invocation: Invocation) {
        self.invocations.insert(name.to_owned(), invocation);
    }

    /// Starts a process that was added; its output goes to its log.
    pub fn start(&mut self, name: &str) -> Result<(), CliError> {
        let invocation = &self.invocations[name];
        let log = open_log(&self.logs, name)?;
        let errors = log.try_clone().map_err(|error| CliError::file(&self.logs, error))?;
        let child = Command::new(&invocation.program)
            .args(&invocation.arguments)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .map_err(|error| CliError::file(&invocation.program, error))?;
        self.running.insert(name.to_owned(), child);
        Ok(())
    }

    /// Keeps everything running until `stop` resolves.
    pub async fn supervise(&mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            let ended = tokio::select! {
                name = first_exit(&mut self.running) => name,
                () = &mut stop => return,
            };
            eprintln!("{ended} ended; it is started again (its log: {})", log_path(&self.logs, &ended).display());
            self.running.remove(&ended);
            tokio::select! {
                () = tokio::time::sleep(RESTART_DELAY) => {}
                () = &mut stop => return,
            }
            if let Err(error) = self.start(&ended) {
                eprintln!("{ended} cannot be started: {error}");
            }
        }
    }

    /// SIGTERM to all, what serves clients first, and SIGKILL to what is left after the limit.
    pub async fn stop(&mut self) {
        for child in self.running.values() {
            if let Some(id) = child.id() {
                // A group of its own, so that Ctrl-C reaches only this process and the order is ours.
                let _ = std::process::Command::new("kill").arg("-TERM").arg(id.to_string()).status();
            }
        }
        let all = async {
            for child in self.running.values_mut() {
                let _ = child.wait().await;
            }
        };
        if tokio::time::timeout(STOP_LIMIT, all).await.is_err() {
            for child in self.running.values_mut() {
                let _ = child.kill().await;
            }
        }
        self.running.clear();
    }
}

/// The name of the first process to end.
async fn first_exit(running: &mut BTreeMap<String, Child>) -> String {
    let waits = running.iter_mut().map(|(name, child)| {
        Box::pin(async move {
            let _ = child.wait().await;
            name.clone()
        })
    });
    let waits: Vec<_> = waits.collect();
    if waits.is_empty() {
        return std::future::pending().await;
    }
    futures::future::select_all(waits).await.0
}

fn log_path(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{name}.log"))
}

fn open_log(logs: &Path, name: &str) -> Result<std::fs::File, CliError> {
    std::fs::create_dir_all(logs).map_err(|error| CliError::file(logs, error))?;
    let path = log_path(logs, name);
    std::fs::OpenOptions::new().create(true).append(true).open(&path).map_err(|error| CliError::file(&path, error))
}
