//! Whether this machine can be a node.

use std::path::Path;
use std::process::Command;

use crate::args::Check;

/// What to look for.
pub struct Wanted<'a> {
    /// Must be free; not looked at when unset.
    pub port: Option<u16>,
    /// containerd and what it needs must be installed.
    pub own_runtime: bool,
    pub state: &'a Path,
}

/// One line of the table.
struct Row {
    what: &'static str,
    problem: Option<String>,
}

fn row(what: &'static str, good: bool, problem: impl FnOnce() -> String) -> Row {
    Row { what, problem: (!good).then(problem) }
}

fn installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

fn rows(wanted: &Wanted<'_>) -> Vec<Row> {
    let mut rows = vec![
        row("root", effective_uid() == Some(0), || "run it as root".to_owned()),
        row("cgroups", Path::new("/sys/fs/cgroup/cgroup.controllers").exists() || Path::new("/sys/fs/cgroup/memory").is_dir(), || {
            "neither hierarchy of cgroups is mounted at /sys/fs/cgroup".to_owned()
        }),
        row("overlayfs", std::fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("overlay")) || loads("overlay"), || {
            "the kernel has no overlay filesystem".to_owned()
        }),
    ];
    if wanted.own_runtime {
        for (program, package) in [("containerd", "containerd"), ("runc", "runc"), ("ctr", "containerd"), ("iptables", "iptables")] {
            rows.push(row(program, installed(program), || format!("{program} is not installed; on Debian: apt-get install {package}")));
        }
        let plugins = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"].iter().any(|folder| Path::new(folder).join("bridge").exists());
        rows.push(row("network plugins", plugins, || "not installed; on Debian: apt-get install containernetworking-plugins".to_owned()));
    }
    if let Some(port) = wanted.port {
        let free = std::net::TcpListener::bind(("0.0.0.0", port)).is_ok();
        rows.push(row("port", free, || format!("port {port} is in use; name another with --port")));
    }
    let writable = std::fs::create_dir_all(wanted.state).is_ok();
    rows.push(row("state directory", writable, || format!("{} cannot be written", wanted.state.display())));
    rows
}

fn loads(module: &str) -> bool {
    Command::new("modprobe").arg(module).status().is_ok_and(|status| status.success())
}

fn effective_uid() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

/// What is missing, one line each.
pub fn problems(wanted: &Wanted<'_>) -> Vec<String> {
    rows(wanted).into_iter().filter_map(|row| row.problem.map(|problem| format!("  {}: {problem}", row.what))).collect()
}

/// `wheelhouse-node check`: prints the table and fails if something is missing.
pub async fn command(flags: &Check) -> anyhow::Result<()> {
    let mut rows = rows(&Wanted { port: Some(flags.port), own_runtime: true, state: &flags.place.state_dir });
    if let Some(endpoint) = &flags.endpoint {
        let address = endpoint.trim_start_matches("https://").trim_end_matches('/');
        let reached = tokio::time::timeout(std::time::Duration::from_secs(5), tokio::net::TcpStream::connect(address)).await;
        let problem = match reached {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("{address} cannot be reached: {error}")),
            Err(_) => Some(format!("{address} does not answer")),
        };
        rows.push(Row { what: "endpoint", problem });
    }
    for row in &rows {
        println!("{:<16} {}", row.what, row.problem.as_deref().unwrap_or("ok"));
    }
    let missing = rows.iter().filter(|row| row.problem.is_some()).count();
    anyhow::ensure!(missing == 0, "{missing} of {} are missing", rows.len());
    Ok(())
}
