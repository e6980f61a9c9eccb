//! What the container runtime says and hears: the CNI specification, versions 1.0.0 and 1.1.0.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub const SUPPORTED: &[&str] = &["1.0.0", "1.1.0"];

/// The version that answers carry where the request names none.
const NEWEST: &str = "1.1.0";

/// `CNI_*` of the environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub command: String,
    pub container_id: String,
    /// Path of the pod's network namespace; empty where the runtime has lost it.
    pub netns: String,
    pub interface: String,
}

/// The network configuration on standard input.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkConfig {
    pub cni_version: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// This node's pod networks, at most one of each family.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    pub mtu: u32,
    /// Where addresses and attachments are recorded.
    pub data_dir: String,
    pub runtime_config: RuntimeConfig,
    #[serde(rename = "cni.dev/valid-attachments")]
    pub valid_attachments: Option<Vec<Attachment>>,
    pub prev_result: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeConfig {
    pub port_mappings: Vec<PortMapping>,
    pub bandwidth: Option<Bandwidth>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortMapping {
    /// 0: no mapping.
    pub host_port: u16,
    pub container_port: u16,
    /// tcp, udp or sctp; empty means tcp.
    pub protocol: String,
    /// Empty: any address of the node.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
}

/// Rates in bits per second, bursts in bits; zero: no limit. Ingress is towards the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bandwidth {
    pub ingress_rate: u64,
    pub ingress_burst: u64,
    pub egress_rate: u64,
    pub egress_burst: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Attachment {
    #[serde(rename = "containerID")]
    pub container_id: String,
    pub ifname: String,
}

/// An error as the specification has it: code, short message, details.
#[derive(Debug, thiserror::Error)]
#[error("{message}: {details}")]
pub struct CniError {
    pub code: u32,
    pub message: String,
    pub details: String,
}

/// Codes of the specification, section "Error".
pub mod code {
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    pub const UNSUPPORTED_FIELD: u32 = 2;
    pub const INVALID_ENVIRONMENT: u32 = 4;
    pub const IO: u32 = 5;
    pub const DECODE: u32 = 6;
    pub const INVALID_CONFIG: u32 = 7;
    pub const TRY_AGAIN_LATER: u32 = 11;
    pub const NOT_AVAILABLE: u32 = 50;
    /// Own: what CHECK found is not what ADD made.
    pub const CHANGED: u32 = 100;
}

impl CniError {
    pub fn new(code: u32, message: impl Into<String>, details: impl ToString) -> Self {
        Self { code, message: message.into(), details: details.to_string() }
    }

    pub fn to_json(&self, version: &str) -> Value {
        json!({"cniVersion": answer_version(version), "code": self.code, "msg": self.message, "details": self.details})
    }
}

fn answer_version(version: &str) -> &str {
    if SUPPORTED.contains(&version) { version } else { NEWEST }
}

/// The answer to VERSION.
pub fn versions(version: &str) -> Value {
    json!({"cniVersion": answer_version(version), "supportedVersions": SUPPORTED})
}

impl Environment {
    /// Reads `CNI_*` by `variable`. What a command needs and is absent is an error; DEL lives without a namespace.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, CniError> {
        let text = |name: &str| variable(name).unwrap_or_default();
        let environment =
            Self { command: text("CNI_COMMAND"), container_id: text("CNI_CONTAINERID"), netns: text("CNI_NETNS"), interface: text("CNI_IFNAME") };
        let needed: &[&str] = match environment.command.as_str() {
            "ADD" | "CHECK" => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
            "DEL" => &["CNI_CONTAINERID", "CNI_IFNAME"],
            "GC" | "STATUS" | "VERSION" => &[],
            other => return Err(CniError::new(code::INVALID_ENVIRONMENT, "unknown CNI_COMMAND", other)),
        };
        let missing: Vec<&str> = needed.iter().filter(|name| text(name).is_empty()).copied().collect();
        if !missing.is_empty() {
            return Err(CniError::new(code::INVALID_ENVIRONMENT, "required environment variables are missing", missing.join(", ")));
        }
        // Both become parts of file names: the specification's grammar for them leaves no way out of the directory.
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)) && !text.starts_with('.');
        if !is_plain(&environment.container_id) {
            return Err(CniError::new(code::INVALID_ENVIRONMENT, "CNI_CONTAINERID has characters that it must not have", &environment.container_id));
        }
        if !is_plain(&environment.interface) || environment.interface.len() > 15 {
            return Err(CniError::new(code::INVALID_ENVIRONMENT, "CNI_IFNAME is no interface's name", &environment.interface));
        }
        Ok(environment)
    }
}

impl NetworkConfig {
    pub fn parse(input: &[u8]) -> Result<Self, CniError> {
        let config: Self =
            serde_json::from_slice(input).map_err(|error| CniError::new(code::DECODE, "the network configuration does not decode", error))?;
        if !SUPPORTED.contains(&config.cni_version.as_str()) {
            let details = format!("{:?}; supported are {}", config.cni_version, SUPPORTED.join(", "));
            return Err(CniError::new(code::INCOMPATIBLE_VERSION, "incompatible CNI version", details));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_dangerous_is_refused() {
        let read = |pairs: &[(&str, &str)]| {
            let find = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            Environment::read(find).map(|e| e.command).map_err(|e| (e.code, e.details))
        };
        assert_eq!(read(&[("CNI_COMMAND", "VERSION")]), Ok("VERSION".into()));
        assert_eq!(read(&[("CNI_COMMAND", "ADD"), ("CNI_NETNS", "/n")]), Err((4, "CNI_CONTAINERID, CNI_IFNAME".into())));
        assert_eq!(read(&[("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "../x"), ("CNI_IFNAME", "eth0")]), Err((4, "../x".into())));
        assert_eq!(read(&[("CNI_COMMAND", "JUMP")]), Err((4, "JUMP".into())));
        assert_eq!(NetworkConfig::parse(b"{").unwrap_err().code, code::DECODE);
        assert_eq!(NetworkConfig::parse(br#"{"cniVersion":"0.1.0"}"#).unwrap_err().code, code::INCOMPATIBLE_VERSION);
    }
}
