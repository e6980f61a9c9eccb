//! Images of one layer, made in memory: for what a node must have without a registry.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};

/// A file of an image.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the root, without a leading slash; at most 100 bytes.
    pub path: String,
    pub mode: u32,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub enum Content {
    Bytes(Vec<u8>),
    /// A symbolic link to this path.
    Link(String),
}

/// A Docker archive that `ctr images import` takes. `config` is the image's `config`: `Entrypoint`, `Cmd`, `Env`, `User`.
pub fn archive(name: &str, files: &[File], config: &Value) -> Vec<u8> {
    let layer = tar(files);
    let layer_digest = hex(&layer);
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let rootfs = json!({"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]});
    let config = json!({"architecture": architecture, "os": "linux", "config": config, "rootfs": rootfs}).to_string();
    let (config_name, layer_name) = (format!("{}.json", hex(config.as_bytes())), format!("{layer_digest}.tar"));
    let manifest = json!([{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]).to_string();
    let plain = |path: String, bytes: Vec<u8>| File { path, mode: 0o644, content: Content::Bytes(bytes) };
    tar(&[plain(config_name, config.into_bytes()), plain(layer_name, layer), plain("manifest.json".into(), manifest.into_bytes())])
}

fn hex(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// A tar archive (POSIX ustar). Times are zero, so that the same files give the same image.
fn tar(files: &[File]) -> Vec<u8> {
    const BLOCK: usize = 512;
    let mut out = Vec::new();
    for File { path, mode, content } in files {
        let (kind, bytes, link) = match content {
            Content::Bytes(bytes) => ("0", bytes.as_slice(), ""),
            Content::Link(to) => ("2", &[][..], to.as_str()),
        };
        let mut header = vec![0u8; BLOCK];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, &path[..path.len().min(100)]);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", bytes.len()));
        put(136, "00000000000");
        put(148, "        ");
        put(156, kind);
        put(157, &link[..link.len().min(100)]);
        put(257, "ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.extend(header);
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_archive_is_one_that_tar_reads() {
        let files = [
            File { path: "bin/a".into(), mode: 0o755, content: Content::Bytes(b"hello".to_vec()) },
            File { path: "bin/b".into(), mode: 0o777, content: Content::Link("a".into()) },
        ];
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("layer.tar"), tar(&files)).unwrap();
        assert!(Command::new("tar").args(["-xf", "layer.tar"]).current_dir(folder.path()).status().unwrap().success());
        assert_eq!(std::fs::read_to_string(folder.path().join("bin/b")).unwrap(), "hello");
        let text = archive("x/y:1", &files, &json!({"Cmd": ["/bin/a"]}));
        assert!(String::from_utf8_lossy(&text).contains("\"RepoTags\":[\"x/y:1\"]"));
    }
}
