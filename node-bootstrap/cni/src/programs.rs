//! Runs `ip`, `tc` and `nft`, here or in a pod's network namespace.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::plugin::protocol::{CniError, code};

/// How much of a program's complaint is kept.
const QUOTED_TEXT: usize = 400;

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("cannot run {0}")]
    Spawn(&'static str, #[source] io::Error),
    #[error("cannot enter the network namespace {0}")]
    Namespace(String, #[source] io::Error),
    #[error("{program} failed: {message}")]
    Failed { program: &'static str, message: String },
}

pub fn to_cni(error: ProgramError) -> CniError {
    let details = match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    match error {
        ProgramError::Namespace(..) => CniError::new(code::INVALID_ENVIRONMENT, "CNI_NETNS", details),
        _ => CniError::new(code::IO, "the kernel's networking could not be changed", details),
    }
}

/// Where programs run.
pub struct Programs {
    /// Path of a network namespace; none: where this process is.
    netns: Option<String>,
}

impl Programs {
    pub fn here() -> Self {
        Self { netns: None }
    }

    pub fn inside(netns: &str) -> Self {
        Self { netns: Some(netns.to_owned()) }
    }

    /// Runs lines of `ip`. The first that fails ends it.
    pub fn ip(&self, lines: &str) -> Result<(), ProgramError> {
        self.run("ip", &["-batch", "-"], lines).map(drop)
    }

    /// Answers a query as JSON; none when the thing asked for is not there.
    pub fn ip_query(&self, arguments: &[&str]) -> Result<Option<Value>, ProgramError> {
        match self.run("ip", &[&["-j"], arguments].concat(), "") {
            Ok(text) => Ok(serde_json::from_str(&text).ok()),
            Err(ProgramError::Failed { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs lines of `bridge`.
    pub fn bridge(&self, lines: &str) -> Result<(), ProgramError> {
        self.run("bridge", &["-batch", "-"], lines).map(drop)
    }

    /// Answers a query of `bridge` as JSON.
    pub fn bridge_query(&self, arguments: &[&str]) -> Result<Option<Value>, ProgramError> {
        Ok(serde_json::from_str(&self.run("bridge", &[&["-j"], arguments].concat(), "")?).ok())
    }

    pub fn tc(&self, lines: &str) -> Result<(), ProgramError> {
        self.run("tc", &["-batch", "-"], lines).map(drop)
    }

    pub fn nft(&self, text: &str) -> Result<(), ProgramError> {
        self.run("nft", &["-f", "-"], text).map(drop)
    }

    /// Whether all of them are installed.
    pub fn check(&self) -> Result<(), ProgramError> {
        self.run("ip", &["-V"], "")?;
        self.run("nft", &["--version"], "").map(drop)
    }

    /// Sets a `net.` sysctl by its path below `/proc/sys/net`; absent ones (a kernel without IPv6) are left.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<(), ProgramError> {
        let path = format!("/proc/sys/net/{path}");
        self.inside_thread(|| match std::fs::write(&path, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|error| ProgramError::Failed { program: "sysctl", message: format!("{path}: {error}") }),
        })
    }

    fn run(&self, program: &'static str, arguments: &[&str], input: &str) -> Result<String, ProgramError> {
        self.inside_thread(|| run(program, arguments, input))
    }

    /// A namespace belongs to a thread, and programs start in that of the thread that starts them; this one must not stay there.
    fn inside_thread<T: Send>(&self, work: impl FnOnce() -> Result<T, ProgramError> + Send) -> Result<T, ProgramError> {
        let Some(netns) = &self.netns else { return work() };
        let failed = |source| ProgramError::Namespace(netns.clone(), source);
        let file = File::open(netns).map_err(failed)?;
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| failed(error.into()))?;
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn run(program: &'static str, arguments: &[&str], input: &str) -> Result<String, ProgramError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The runtime's own PATH may be short.
    if std::env::var_os("PATH").is_none() {
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    }
    let mut child = command.spawn().map_err(|error| ProgramError::Spawn(program, error))?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A program that gave up early says why on its own.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| ProgramError::Spawn(program, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).chars().take(QUOTED_TEXT).collect();
    Err(ProgramError::Failed { program, message })
}
