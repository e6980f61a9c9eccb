//! The plugin: one call of the container runtime, from environment and standard input to standard output.

mod attach;
mod hostports;
mod ipam;
pub mod protocol;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use wheelhouse_net::{Cidr, alone};

use crate::programs::{self, Programs};
use attach::{Wiring, host_interface};
pub(crate) use attach::{derived_mac, ensure_bridge};
use ipam::{Ipam, IpamError};
use protocol::{Attachment, CniError, Environment, NetworkConfig, code, versions};

/// Longest network configuration that is read; the runtime's are a few hundred bytes.
const MAX_INPUT: u64 = 1 << 20;

/// Where attachments are recorded unless the configuration says otherwise: emptied by a reboot, as namespaces are.
pub const DATA_DIR: &str = "/run/wheelhouse/cni";

/// A packet of 1500 bytes with VXLAN's header around it.
pub const DEFAULT_MTU: u32 = 1450;

/// Runs one call with the process's own environment, input and output.
pub fn main() -> ExitCode {
    let mut input = Vec::new();
    let read = std::io::stdin().take(MAX_INPUT).read_to_end(&mut input);
    let outcome = match read {
        Ok(_) => call(|name| std::env::var(name).ok(), &input),
        Err(error) => Err(CniError::new(code::IO, "cannot read standard input", error).to_json("")),
    };
    let (answer, exit) = match outcome {
        Ok(answer) => (answer, ExitCode::SUCCESS),
        Err(answer) => (Some(answer), ExitCode::FAILURE),
    };
    // A runtime that closed its end learns of the outcome by the exit code.
    let _ = answer.map(|answer| writeln!(std::io::stdout(), "{answer}"));
    exit
}

/// One call: what goes to standard output, as success or as error.
pub fn call(variable: impl Fn(&str) -> Option<String>, input: &[u8]) -> Result<Option<Value>, Value> {
    let environment = Environment::read(variable).map_err(|error| error.to_json(""))?;
    if environment.command == "VERSION" {
        let asked: Value = serde_json::from_slice(input).unwrap_or_default();
        return Ok(Some(versions(asked["cniVersion"].as_str().unwrap_or_default())));
    }
    let config = NetworkConfig::parse(input).map_err(|error| error.to_json(""))?;
    let plugin = Plugin { environment, config };
    plugin.run().map_err(|error| error.to_json(&plugin.config.cni_version))
}

struct Plugin {
    environment: Environment,
    config: NetworkConfig,
}

impl Plugin {
    fn run(&self) -> Result<Option<Value>, CniError> {
        if self.config.kind == "loopback" {
            return self.loopback();
        }
        match self.environment.command.as_str() {
            "ADD" => self.add().map(Some),
            "DEL" => self.del().map(|()| None),
            "CHECK" => self.check().map(|()| None),
            "GC" => self.gc().map(|()| None),
            // STATUS; others were refused when the environment was read.
            _ => self.status().map(|()| None),
        }
    }

    fn directory(&self) -> PathBuf {
        let root = if self.config.data_dir.is_empty() { DATA_DIR } else { &self.config.data_dir };
        PathBuf::from(root).join(if self.config.name.is_empty() { crate::NETWORK } else { &self.config.name })
    }

    fn attachment(&self) -> Attachment {
        Attachment { container_id: self.environment.container_id.clone(), ifname: self.environment.interface.clone() }
    }

    fn networks(&self) -> Result<Vec<Cidr>, CniError> {
        let parsed: Result<Vec<Cidr>, _> = self.config.pod_cidrs.iter().map(|text| text.parse()).collect();
        let networks = parsed.map_err(|error| CniError::new(code::INVALID_CONFIG, "podCIDRs", error))?;
        let usable = !networks.is_empty() && networks.iter().all(|network| network.gateway().is_some());
        if usable {
            Ok(networks)
        } else {
            Err(CniError::new(code::INVALID_CONFIG, "podCIDRs", "at least one network with room for a gateway is needed"))
        }
    }

    fn mtu(&self) -> u32 {
        if self.config.mtu == 0 { DEFAULT_MTU } else { self.config.mtu }
    }

    /// The plugin that runtimes ask for beside every network: loopback comes up.
    fn loopback(&self) -> Result<Option<Value>, CniError> {
        let environment = &self.environment;
        match environment.command.as_str() {
            "ADD" => {
                Programs::inside(&environment.netns).ip("link set lo up\n").map_err(programs::to_cni)?;
                Ok(Some(json!({
                    "cniVersion": self.config.cni_version,
                    "interfaces": [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": environment.netns}],
                    "ips": [{"address": "127.0.0.1/8", "interface": 0}, {"address": "::1/128", "interface": 0}],
                })))
            }
            _ => Ok(None),
        }
    }

    fn add(&self) -> Result<Value, CniError> {
        let networks = self.networks()?;
        let attachment = self.attachment();
        let ipam = Ipam::lock(&self.directory()).map_err(ipam_error)?;
        let addresses = ipam.allocate(&networks, &attachment).map_err(ipam_error)?;
        let wiring = Wiring { networks, addresses, mtu: self.mtu(), attachment: attachment.clone(), netns: self.environment.netns.clone() };
        let made = wiring.attach().and_then(|macs| wiring.limit(self.config.runtime_config.bandwidth).map(|()| macs)).and_then(|macs| {
            hostports::open(&attachment, &wiring.addresses, &self.config.runtime_config.port_mappings, &self.directory()).map(|()| macs)
        });
        match made {
            Ok((host_mac, pod_mac)) => Ok(self.result(&wiring, &host_mac, &pod_mac)),
            Err(error) => {
                // Nothing may be left of a failed ADD, and what cannot be cleaned up now, DEL or GC will.
                let _ = self.undo(&ipam, &attachment);
                Err(error)
            }
        }
    }

    fn result(&self, wiring: &Wiring, host_mac: &str, pod_mac: &str) -> Value {
        let ips: Vec<Value> = wiring
            .addresses
            .iter()
            .zip(&wiring.networks)
            .map(|(address, network)| json!({"address": alone(address), "gateway": network.gateway(), "interface": 1}))
            .collect();
        let routes: Vec<Value> = wiring
            .networks
            .iter()
            .map(|network| json!({"dst": if network.family() == wheelhouse_net::Family::V4 { "0.0.0.0/0" } else { "::/0" }, "gw": network.gateway()}))
            .collect();
        json!({
            "cniVersion": self.config.cni_version,
            "interfaces": [
                {"name": host_interface(&wiring.attachment), "mac": host_mac},
                {"name": self.environment.interface, "mac": pod_mac, "sandbox": self.environment.netns},
            ],
            "ips": ips,
            "routes": routes,
            "dns": {},
        })
    }

    fn undo(&self, ipam: &Ipam, attachment: &Attachment) -> Result<(), CniError> {
        hostports::close(attachment, &self.directory())?;
        attach::detach(attachment)?;
        ipam.release(attachment).map_err(ipam_error)
    }

    /// Succeeds whatever is left, in whatever order, as often as it is called.
    fn del(&self) -> Result<(), CniError> {
        let ipam = Ipam::lock(&self.directory()).map_err(ipam_error)?;
        self.undo(&ipam, &self.attachment())
    }

    fn check(&self) -> Result<(), CniError> {
        let ipam = Ipam::lock(&self.directory()).map_err(ipam_error)?;
        let attachment = self.attachment();
        let held: Vec<_> =
            ipam.held().map_err(ipam_error)?.into_iter().filter(|(_, owner)| *owner == attachment).map(|(address, _)| address).collect();
        if held.is_empty() {
            return Err(CniError::new(code::CHANGED, "the attachment has no address", &attachment.container_id));
        }
        attach::check(&attachment, &self.environment.netns, &held)
    }

    /// Removes every attachment that the runtime does not name.
    fn gc(&self) -> Result<(), CniError> {
        let Some(valid) = &self.config.valid_attachments else {
            return Err(CniError::new(code::INVALID_CONFIG, "cni.dev/valid-attachments", "GC without it would remove everything"));
        };
        let ipam = Ipam::lock(&self.directory()).map_err(ipam_error)?;
        let held: std::collections::BTreeSet<Attachment> = ipam.held().map_err(ipam_error)?.into_iter().map(|(_, owner)| owner).collect();
        let mut failure = Ok(());
        for attachment in held.iter().filter(|attachment| !valid.contains(attachment)) {
            if let Err(error) = self.undo(&ipam, attachment) {
                failure = Err(error);
            }
        }
        failure
    }

    fn status(&self) -> Result<(), CniError> {
        self.networks()?;
        Ipam::lock(&self.directory()).map_err(ipam_error)?;
        Programs::here().check().map_err(|error| CniError::new(code::NOT_AVAILABLE, "a program is missing", error))
    }
}

fn ipam_error(error: IpamError) -> CniError {
    match error {
        // Addresses come back as pods end.
        IpamError::Full(_) => CniError::new(code::TRY_AGAIN_LATER, "addresses are used up", error),
        IpamError::Io { source, path } => CniError::new(code::IO, format!("cannot use {}", path.display()), source),
    }
}
