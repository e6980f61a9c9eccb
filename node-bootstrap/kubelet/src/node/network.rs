//! The network configuration that the container runtime hands to its plugins, from the node's pod range.

use std::path::Path;

use serde_json::json;

/// Name of the file in the runtime's configuration folder; its number lets it come before others.
pub const FILE: &str = "10-wheelhouse.conflist";

/// Where the runtime looks, and how the node's pods are attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// `/etc/cni/net.d`
    pub folder: std::path::PathBuf,
    /// The bridge that pods hang on.
    pub bridge: String,
    /// Where addresses in use are kept.
    pub state: std::path::PathBuf,
}

/// Pods on one bridge with addresses of the node's range; what leaves the pods' network carries the node's address.
pub fn conflist(network: &Network, ranges: &[String]) -> String {
    let ranges: Vec<_> = ranges.iter().map(|range| json!([{"subnet": range}])).collect();
    let bridge = json!({
        "type": "bridge", "bridge": network.bridge, "isGateway": true, "ipMasq": true, "hairpinMode": true, "promiscMode": false,
        "ipam": {"type": "host-local", "dataDir": network.state, "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
    });
    let ports = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    json!({"cniVersion": "0.4.0", "name": "wheelhouse", "plugins": [bridge, ports]}).to_string()
}

/// Writes the file if it is not there as it should be.
pub fn write(network: &Network, ranges: &[String]) -> std::io::Result<()> {
    let (path, text) = (network.folder.join(FILE), conflist(network, ranges));
    if std::fs::read_to_string(&path).is_ok_and(|now| now == text) {
        return Ok(());
    }
    std::fs::create_dir_all(&network.folder)?;
    replace(&path, &text)
}

/// The runtime must never read half a file.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let next = path.with_extension("tmp");
    std::fs::write(&next, text)?;
    std::fs::rename(next, path)
}
