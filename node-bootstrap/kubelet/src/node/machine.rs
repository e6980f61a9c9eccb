//! What the machine is and has, read from the kernel.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// Facts that hold until the next boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    pub cpus: u32,
    /// Bytes.
    pub memory: u64,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel: String,
    pub os_image: String,
    /// `amd64`, `arm64`, as the API names them.
    pub architecture: &'static str,
}

/// A filesystem's size and what is left, in bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub size: u64,
    pub available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

/// Memory as the kernel counts it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    pub available: u64,
}

fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

pub fn read() -> Machine {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default().lines().filter(|line| line.starts_with("processor")).count();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux").trim_matches('"');
    let machine_id = line("/etc/machine-id");
    let uuid = line("/sys/class/dmi/id/product_uuid");
    Machine {
        cpus: u32::try_from(cpus.max(1)).unwrap_or(u32::MAX),
        memory: memory().total,
        system_uuid: if uuid.is_empty() { machine_id.clone() } else { uuid },
        machine_id,
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        kernel: line("/proc/sys/kernel/osrelease"),
        os_image: pretty.to_owned(),
        architecture: match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        },
    }
}

pub fn memory() -> Memory {
    parse_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

fn parse_memory(text: &str) -> Memory {
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    Memory { total: kib("MemTotal"), available: kib("MemAvailable") }
}

/// Of the filesystem that `path` lies on.
pub fn space(path: &Path) -> Space {
    let Ok(stat) = rustix::fs::statvfs(path) else { return Space::default() };
    Space { size: stat.f_blocks * stat.f_frsize, available: stat.f_bavail * stat.f_frsize, inodes: stat.f_files, inodes_free: stat.f_favail }
}

/// The address from which `towards` is reached; when that is the machine itself, the address of its default route.
pub fn address_towards(towards: &str) -> Option<IpAddr> {
    let from = |to: &str| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        // Nothing is sent: connecting a datagram socket only picks the route.
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
    };
    from(towards).or_else(|| from("192.0.2.1:9")).or_else(first_address)
}

/// Without a default route: the first address of the machine that others can reach.
fn first_address() -> Option<IpAddr> {
    let trie = fs::read_to_string("/proc/net/fib_trie").ok()?;
    let mut last = None;
    for line in trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<IpAddr>().ok();
        } else if line.starts_with("/32 host LOCAL")
            && let Some(ip) = last.filter(|ip| !ip.is_loopback())
        {
            return Some(ip);
        }
    }
    None
}

/// The machine's name in the form of a node's: lower case.
pub fn hostname() -> String {
    line("/proc/sys/kernel/hostname").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let memory = parse_memory("MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n");
        assert_eq!(memory, Memory { total: 2 << 20, available: 1 << 20 });
    }
}
