//! Where the parts of a local service lie and how each is invoked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use wheelhouse_base::{Clock, SystemClock};
use wheelhouse_pki::{AltName, Authority, Leaf, Subject, Usage, Validity};

use super::child::Invocation;
use crate::args::Up;
use crate::error::CliError;

const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const CERTIFICATE_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Ports of host i are those of the first plus this much times i.
const PORT_STEP: u16 = 10;
/// The first host's metrics port lies this far above its clients port, so that 6444 gives 9444.
const METRICS_OFFSET: u16 = 3000;

pub struct Layout {
    up: Up,
    root: PathBuf,
    binaries: PathBuf,
}

impl Layout {
    pub fn new(up: Up) -> Result<Self, CliError> {
        let failed = |error| CliError::file(&up.data_dir, error);
        std::fs::create_dir_all(&up.data_dir).map_err(failed)?;
        let root = up.data_dir.canonicalize().map_err(failed)?;
        let own = std::env::current_exe().map_err(|error| CliError::Failed(format!("cannot tell where this program is: {error}")))?;
        let binaries = own.parent().map(Path::to_path_buf).unwrap_or_default();
        for name in ["wheelhouse-host", "wheelhouse-endpoint", "wheelhouse-api"] {
            if !binaries.join(name).exists() {
                let detail = format!("{name} is not beside {}; `make build` builds all programs", own.display());
                return Err(CliError::Failed(detail));
            }
        }
        Ok(Self { up, root, binaries })
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// `host-a`, `host-b` …
    pub fn host_names(&self) -> impl Iterator<Item = String> {
        (0..self.up.hosts).map(|index| format!("host-{}", char::from(b'a' + index)))
    }

    fn host_dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn is_joined(&self, name: &str) -> bool {
        self.host_dir(name).join("host.json").exists()
    }

    pub fn system_kubeconfig(&self) -> PathBuf {
        self.root.join("system.kubeconfig")
    }

    pub fn endpoint_url(&self) -> String {
        format!("https://{}", reachable(self.up.endpoint_listen))
    }

    pub fn api_url(&self) -> String {
        format!("https://{}", reachable(self.up.api_listen))
    }

    fn ports(&self, name: &str) -> (u16, u16, u16) {
        let index = u16::from(name.bytes().last().unwrap_or(b'a') - b'a');
        let clients = self.up.host_port + PORT_STEP * index;
        (clients, clients + 1, clients + METRICS_OFFSET)
    }

    fn peers_address(&self, name: &str) -> String {
        format!("127.0.0.1:{}", self.ports(name).1)
    }

    fn identity_arguments(&self, name: &str) -> Vec<String> {
        let (clients, peers, metrics) = self.ports(name);
        let zone = name.replace("host", "zone");
        let flags = [
            ("--data-dir", self.host_dir(name).display().to_string()),
            ("--name", name.to_owned()),
            ("--zone", zone),
            ("--clients-listen", format!("127.0.0.1:{clients}")),
            ("--peers-listen", format!("127.0.0.1:{peers}")),
            ("--metrics-listen", format!("127.0.0.1:{metrics}")),
            ("--advertise", "127.0.0.1".to_owned()),
        ];
        flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    async fn host_tool(&self, arguments: Vec<String>) -> Result<String, CliError> {
        let program = self.binaries.join("wheelhouse-host");
        let ran = Command::new(&program).args(&arguments).output().await.map_err(|error| CliError::file(&program, error))?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        let reason = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        Err(CliError::Failed(format!("wheelhouse-host {}: {reason}", arguments.first().map_or("", String::as_str))))
    }

    /// Makes the service when the directory is empty.
    pub async fn init_first_host(&self) -> Result<(), CliError> {
        if self.is_joined("host-a") {
            return Ok(());
        }
        let mut arguments = vec!["init".to_owned()];
        arguments.extend(self.identity_arguments("host-a"));
        arguments.extend(["--endpoint".to_owned(), self.endpoint_url()]);
        self.host_tool(arguments).await?;
        let (from, to) = (self.host_dir("host-a").join("credentials/operator.kubeconfig"), self.system_kubeconfig());
        let text = std::fs::read_to_string(&from).map_err(|error| CliError::file(&from, error))?;
        write_private(&to, &text)
    }

    pub async fn join(&self, name: &str) -> Result<(), CliError> {
        let printed = self.host_tool(vec!["token".into(), "--data-dir".into(), self.host_dir("host-a").display().to_string()]).await?;
        // It prints the flags as `join` takes them.
        let words: Vec<&str> = printed.split_whitespace().collect();
        let value = |flag: &str| {
            let at = words.iter().position(|word| *word == flag);
            at.and_then(|at| words.get(at + 1)).map(|word| (*word).to_owned())
        };
        let (Some(token), Some(hash)) = (value("--token"), value("--ca-cert-hash")) else {
            return Err(CliError::Failed(format!("wheelhouse-host token printed something else than flags: {printed}")));
        };
        let mut arguments = vec!["join".to_owned()];
        arguments.extend(self.identity_arguments(name));
        arguments.extend(["--host".into(), self.peers_address("host-a"), "--token".into(), token, "--ca-cert-hash".into(), hash]);
        self.host_tool(arguments).await.map(drop)
    }

    pub fn host_command(&self, name: &str) -> Invocation {
        let arguments = ["run", "--data-dir", &self.host_dir(name).display().to_string(), "--name", name].map(str::to_owned).to_vec();
        Invocation { program: self.binaries.join("wheelhouse-host"), arguments }
    }

    pub fn endpoint_command(&self) -> Invocation {
        let hosts: Vec<String> = self.host_names().map(|name| self.peers_address(&name)).collect();
        let arguments = [
            ("--listen", self.up.endpoint_listen.to_string()),
            ("--metrics-listen", format!("127.0.0.1:{}", self.up.host_port + METRICS_OFFSET - 1)),
            ("--host", hosts.join(",")),
            ("--credentials", self.host_dir("host-a").join("credentials/endpoint").display().to_string()),
            ("--data-dir", self.root.join("endpoint").display().to_string()),
        ];
        let arguments = arguments.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        Invocation { program: self.binaries.join("wheelhouse-endpoint"), arguments }
    }

    pub fn api_command(&self) -> Invocation {
        let file = |path: &str| self.root.join(path).display().to_string();
        let arguments = [
            ("--listen", self.up.api_listen.to_string()),
            ("--kubeconfig", file("host-a/credentials/tenant-api.kubeconfig")),
            ("--operator-key", file("host-a/operator.key")),
            ("--tls-cert", file("api/tls.crt")),
            ("--tls-key", file("api/tls.key")),
            ("--endpoint", reachable(self.up.endpoint_listen).to_string()),
        ];
        let arguments = arguments.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        Invocation { program: self.binaries.join("wheelhouse-api"), arguments }
    }

    /// The PEM of the tenant API's own authority, which the CLI trusts.
    pub fn api_ca(&self) -> Result<String, CliError> {
        let path = self.root.join("api/ca.crt");
        std::fs::read_to_string(&path).map_err(|error| CliError::file(&path, error))
    }

    /// A certificate for the tenant API from an authority that is made once. It is issued anew at every start, so that it never runs out.
    pub fn issue_api_certificate(&self) -> Result<(), CliError> {
        let failed = |error: wheelhouse_pki::AuthorityError| CliError::Failed(format!("no certificate for the tenant API: {error}"));
        let folder = self.root.join("api");
        std::fs::create_dir_all(&folder).map_err(|error| CliError::file(&folder, error))?;
        let (certificate, key, now) = (folder.join("ca.crt"), folder.join("ca.key"), SystemClock.now());
        let authority = match (std::fs::read_to_string(&certificate), std::fs::read_to_string(&key)) {
            (Ok(certificate), Ok(key)) => Authority::from_pem(&certificate, &key).map_err(failed)?,
            _ => {
                let authority = Authority::create("wheelhouse-api-ca", Validity::lasting(now, CA_LIFE)).map_err(failed)?;
                write_private(&key, &authority.key_pem())?;
                write_private(&certificate, &authority.certificate_pem())?;
                authority
            }
        };
        let address = reachable(self.up.api_listen).ip();
        let mut alt_names = vec![AltName::Dns("localhost".into()), AltName::Ip(Ipv4Addr::LOCALHOST.into()), AltName::Ip(Ipv6Addr::LOCALHOST.into())];
        if !address.is_loopback() {
            alt_names.push(AltName::Ip(address));
        }
        let validity = Validity::lasting(now, CERTIFICATE_LIFE);
        let leaf = Leaf { subject: Subject::new("wheelhouse-api", &[]), alt_names, usage: Usage::Server, validity };
        let (certificate, key) = authority.issue_with_key(&leaf).map_err(failed)?;
        write_private(&folder.join("tls.key"), &key)?;
        write_private(&folder.join("tls.crt"), &certificate)
    }
}

/// Where a listener is reached from this machine.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn write_private(path: &Path, text: &str) -> Result<(), CliError> {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| CliError::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_listeners_are_reached_on_loopback() {
        let at = |text: &str| reachable(text.parse().unwrap()).to_string();
        assert_eq!((at("0.0.0.0:1"), at("[::]:2"), at("192.0.2.7:3")), ("127.0.0.1:1".into(), "[::1]:2".into(), "192.0.2.7:3".into()));
    }
}
