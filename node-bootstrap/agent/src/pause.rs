//! The image of the container that holds a pod's namespaces, made here so that a node needs no registry for it.
//!
//! One static program of 225 bytes: it waits for signals, reaps what dies, and ends when told to. The machine code was assembled from
//!
//! ```text
//!         rt_sigprocmask(SIG_BLOCK, {INT, TERM, CHLD}, 0, 8)
//! wait:   rt_sigtimedwait({INT, TERM, CHLD}, 0, 0, 8)
//!         CHLD -> reap    error -> wait    otherwise exit(0)
//! reap:   wait4(-1, 0, WNOHANG, 0)
//!         found one -> reap    otherwise wait
//! ```

use serde_json::json;

use crate::image::{self, Content, File};

/// The name under which a node's own containerd looks for it.
pub const NAME: &str = "wheelhouse.local/pause:1";

/// Where the program is loaded.
const BASE: u64 = 0x40_0000;
const HEADERS: u64 = 64 + 56;

#[rustfmt::skip]
const X86_64: &[u8] = &[
    0xb8, 0x0e, 0x00, 0x00, 0x00, 0x31, 0xff, 0x48, 0x8d, 0x35, 0x53, 0x00, 0x00, 0x00, 0x31, 0xd2, 0x41, 0xba, 0x08, 0x00, 0x00, 0x00, 0x0f, 0x05,
    0xb8, 0x80, 0x00, 0x00, 0x00, 0x48, 0x8d, 0x3d, 0x3d, 0x00, 0x00, 0x00, 0x31, 0xf6, 0x31, 0xd2, 0x41, 0xba, 0x08, 0x00, 0x00, 0x00, 0x0f, 0x05,
    0x83, 0xf8, 0x11, 0x74, 0x0d, 0x85, 0xc0, 0x78, 0xdf, 0xb8, 0x3c, 0x00, 0x00, 0x00, 0x31, 0xff, 0x0f, 0x05, 0xb8, 0x3d, 0x00, 0x00, 0x00, 0x48,
    0xc7, 0xc7, 0xff, 0xff, 0xff, 0xff, 0x31, 0xf6, 0xba, 0x01, 0x00, 0x00, 0x00, 0x45, 0x31, 0xd2, 0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7f, 0xe3, 0xeb,
    0xb7, 0x02, 0x40, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
];

/// The program for this machine's architecture, as an ELF file; `None` where there is none, and upstream's image is to be used.
fn program() -> Option<Vec<u8>> {
    if std::env::consts::ARCH != "x86_64" {
        return None;
    }
    let size = HEADERS + X86_64.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    let half = |out: &mut Vec<u8>, value: u16| out.extend(value.to_le_bytes());
    let word = |out: &mut Vec<u8>, value: u32| out.extend(value.to_le_bytes());
    let long = |out: &mut Vec<u8>, value: u64| out.extend(value.to_le_bytes());
    // An executable for x86-64.
    half(&mut elf, 2);
    half(&mut elf, 62);
    word(&mut elf, 1);
    long(&mut elf, BASE + HEADERS);
    long(&mut elf, 64);
    long(&mut elf, 0);
    word(&mut elf, 0);
    for value in [64, 56, 1, 0, 0, 0] {
        half(&mut elf, value);
    }
    // One segment: the whole file, readable and executable.
    word(&mut elf, 1);
    word(&mut elf, 5);
    for value in [0, BASE, BASE, size, size, 0x1000] {
        long(&mut elf, value);
    }
    elf.extend_from_slice(X86_64);
    Some(elf)
}

/// An archive that `ctr images import` takes, with the image under `name`.
pub fn archive(name: &str) -> Option<Vec<u8>> {
    let file = File { path: "pause".into(), mode: 0o755, content: Content::Bytes(program()?) };
    Some(image::archive(name, &[file], &json!({"Entrypoint": ["/pause"], "User": "65535:65535"})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_program_runs_and_ends_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pause");
        std::fs::write(&path, program().unwrap()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(&path).spawn().unwrap();
        // A signal that comes before the program has blocked it ends it too.
        let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(told.success());
        child.wait().unwrap();
    }
}
