//! The service's processes: signals, and what Linux says about them.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// The hosts that `wheelhouse up` runs.
pub const HOSTS: [&str; 3] = ["host-a", "host-b", "host-c"];

/// `/proc/<pid>/stat` counts in hundredths of a second on every architecture that Rust's std supports on Linux.
const TICK: Duration = Duration::from_millis(10);

/// One host's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident, in bytes; pages that several processes share count in each.
    pub rss: u64,
    /// Resident, in bytes, with shared pages divided among those that share them.
    pub pss: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handles {
    pub threads: usize,
    pub files: usize,
}

impl Process {
    /// The process of the host `name` of the service that keeps its data in `data`.
    pub fn of_host(data: &Path, name: &str) -> Option<Self> {
        Self::with_arguments(&["run", &data.join(name).display().to_string()])
    }

    /// The process of the endpoint whose routing table lies in `data`.
    pub fn of_endpoint(data: &Path) -> Option<Self> {
        Self::with_arguments(&["--data-dir", &data.join("endpoint").display().to_string(), "--credentials"])
    }

    fn with_arguments(wanted: &[&str]) -> Option<Self> {
        let has_them = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            wanted.iter().all(|word| words.contains(&word.as_bytes()))
        };
        let entries = std::fs::read_dir("/proc").ok()?;
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(has_them).map(Self)
    }

    pub fn of_child(child: &Child) -> Self {
        Self(child.id())
    }

    /// All hosts' processes; fails if one does not run.
    pub fn hosts(data: &Path) -> Result<Vec<Self>> {
        HOSTS.iter().map(|name| Self::of_host(data, name).with_context(|| format!("{name} does not run"))).collect()
    }

    /// Sends a signal, e.g. `KILL`.
    pub fn signal(self, name: &str) -> Result<()> {
        let status = Command::new("kill").args([format!("-{name}"), self.0.to_string()]).status().context("kill does not run")?;
        ensure!(status.success(), "process {} takes no signal", self.0);
        Ok(())
    }

    pub fn memory(self) -> Result<Memory> {
        let path = format!("/proc/{}/smaps_rollup", self.0);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let field = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
        };
        Ok(Memory { rss: field("Rss").context("no Rss")?, pss: field("Pss").context("no Pss")? })
    }

    /// Threads and open file handles.
    pub fn handles(self) -> Result<Handles> {
        let count = |folder: &str| -> Result<usize> {
            let path = format!("/proc/{}/{folder}", self.0);
            Ok(std::fs::read_dir(&path).with_context(|| format!("reading {path}"))?.count())
        };
        Ok(Handles { threads: count("task")?, files: count("fd")? })
    }

    /// Processor time since the process started, user and system.
    pub fn cpu(self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.0);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        // The name in brackets may hold blanks; user and system time are fields 14 and 15, the 12th and 13th behind it.
        let (_, behind) = text.rsplit_once(')').context("a stat line without a name")?;
        let ticks: u32 = behind.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
        Ok(TICK * ticks)
    }
}

/// Over all hosts.
pub fn memory(data: &Path) -> Result<Memory> {
    Process::hosts(data)?.into_iter().try_fold(Memory::default(), |sum, process| {
        let more = process.memory()?;
        Ok(Memory { rss: sum.rss + more.rss, pss: sum.pss + more.pss })
    })
}

/// Over all hosts.
pub fn cpu(data: &Path) -> Result<Duration> {
    Process::hosts(data)?.into_iter().map(Process::cpu).sum()
}
