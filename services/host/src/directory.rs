//! A host's data directory.
//!
//! ```text
//! host.json          who this host is and where it listens          hosts.json   the other hosts, as last known
//! ca.crt             the operator's authority                       tls.crt .key this host's certificate
//! operator.key       seals bundles in the system store              host.key     seals what lies here
//! operator-ca.sealed the authority's key, under operator.key        db/          RocksDB
//! replicas/NAME.json one replica: its spec, and its cluster's bundle under host.key
//! audit/CLUSTER/     a cluster's audit log, as far as its requests came here
//! ```
//!
//! A host starts everything it has from here alone. Every file is written beside the old one and renamed over it, so a crash leaves one
//! or the other. The two key files are readable by the owner only; a host belongs to the operator, and whoever can read them owns the service.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wheelhouse_base::routes::KnownHost;
use wheelhouse_base::{ClusterId, HostName};
use wheelhouse_kinds::fleet::control_plane_replica::ReplicaSpec;
use wheelhouse_kinds::fleet::host::HostAddresses;
use wheelhouse_pki::{Authority, ClusterBundle, SealingKey};

#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("{path} cannot be read")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} cannot be written")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is malformed: {reason}")]
    Malformed { path: PathBuf, reason: String },
    #[error("{0} already holds a host")]
    Occupied(PathBuf),
    #[error("{0} is used by another process")]
    Locked(PathBuf),
}

/// `host.json`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostFile {
    pub name: HostName,
    #[serde(default)]
    pub zone: String,
    pub base_domain: String,
    /// `https://host:port`, as tenants reach the endpoint.
    pub endpoint: String,
    pub clients_listen: SocketAddr,
    pub peers_listen: SocketAddr,
    pub metrics_listen: SocketAddr,
    pub addresses: HostAddresses,
}

impl HostFile {
    pub fn known(&self) -> KnownHost {
        KnownHost { name: self.name.clone(), clients: self.addresses.clients.clone(), peers: self.addresses.peers.clone() }
    }
}

/// `replicas/NAME.json`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaFile {
    pub spec: ReplicaSpec,
    /// The ControlPlaneReplica's uid; empty for a founder's file that `init` wrote.
    #[serde(default)]
    pub uid: String,
    /// Whether the store was opened here before: if so and its data is not there, it is lost and not new.
    #[serde(default)]
    pub opened: bool,
    /// The bundle under the host's key, base64.
    bundle: String,
}

/// The secrets of a host, in memory.
#[derive(Clone)]
pub struct HostKeys {
    pub operator: SealingKey,
    pub host: SealingKey,
}

#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

/// Between attempts at the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

const OPERATOR_CA_CONTEXT: &str = "wheelhouse/operator-ca";

impl Directory {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Makes the directory for a new host.
    pub fn create(&self) -> Result<(), DirectoryError> {
        if self.path("host.json").exists() {
            return Err(DirectoryError::Occupied(self.0.clone()));
        }
        let replicas = self.path("replicas");
        fs::create_dir_all(&replicas).map_err(|source| DirectoryError::Write { path: replicas, source })
    }

    /// Held while the host runs; two processes on one directory would destroy it. A predecessor that was just killed may take a moment to go.
    #[expect(clippy::disallowed_methods, reason = "nothing else runs yet: the lock comes before everything")]
    pub fn lock(&self, patience: Duration) -> Result<File, DirectoryError> {
        let path = self.path("lock");
        let file = File::create(&path).map_err(|source| DirectoryError::Write { path: path.clone(), source })?;
        let until = Instant::now() + patience;
        while file.try_lock().is_err() {
            if Instant::now() >= until {
                return Err(DirectoryError::Locked(self.0.clone()));
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        Ok(file)
    }

    pub fn write_host(&self, host: &HostFile) -> Result<(), DirectoryError> {
        self.write_json("host.json", host)
    }

    pub fn host(&self) -> Result<HostFile, DirectoryError> {
        self.read_json("host.json")
    }

    pub fn write_text(&self, name: &str, text: &str) -> Result<(), DirectoryError> {
        self.write(name, text.as_bytes())
    }

    pub fn text(&self, name: &str) -> Result<String, DirectoryError> {
        let path = self.path(name);
        fs::read_to_string(&path).map_err(|source| DirectoryError::Read { path, source })
    }

    /// Writes the operator's authority and key and a fresh host key.
    pub fn write_keys(&self, authority: &Authority, keys: &HostKeys) -> Result<(), DirectoryError> {
        self.write("operator.key", STANDARD.encode(keys.operator.as_bytes()).as_bytes())?;
        self.write("host.key", STANDARD.encode(keys.host.as_bytes()).as_bytes())?;
        let sealed = keys.operator.seal(authority.key_pem().as_bytes(), OPERATOR_CA_CONTEXT).map_err(|e| self.malformed("operator-ca.sealed", e))?;
        self.write("operator-ca.sealed", STANDARD.encode(sealed).as_bytes())?;
        self.write_text("ca.crt", &authority.certificate_pem())
    }

    pub fn keys(&self) -> Result<HostKeys, DirectoryError> {
        let key = |name: &str| {
            let bytes = STANDARD.decode(self.text(name)?.trim()).map_err(|e| self.malformed(name, e))?;
            SealingKey::from_bytes(&bytes).map_err(|e| self.malformed(name, e))
        };
        Ok(HostKeys { operator: key("operator.key")?, host: key("host.key")? })
    }

    pub fn authority(&self, keys: &HostKeys) -> Result<Authority, DirectoryError> {
        let name = "operator-ca.sealed";
        let sealed = STANDARD.decode(self.text(name)?.trim()).map_err(|e| self.malformed(name, e))?;
        let key = keys.operator.open(&sealed, OPERATOR_CA_CONTEXT).map_err(|e| self.malformed(name, e))?;
        let key = String::from_utf8(key).map_err(|e| self.malformed(name, e))?;
        Authority::from_pem(&self.text("ca.crt")?, &key).map_err(|e| self.malformed("ca.crt", e))
    }

    /// The hosts that were known last; none if that was never written.
    pub fn hosts(&self) -> Result<Vec<KnownHost>, DirectoryError> {
        if self.path("hosts.json").exists() { self.read_json("hosts.json") } else { Ok(Vec::new()) }
    }

    pub fn write_hosts(&self, hosts: &[KnownHost]) -> Result<(), DirectoryError> {
        self.write_json("hosts.json", &hosts)
    }

    /// Every replica that was ever assigned here and not destroyed since, by object name.
    pub fn replicas(&self) -> Result<BTreeMap<String, ReplicaFile>, DirectoryError> {
        let path = self.path("replicas");
        let listed = fs::read_dir(&path).map_err(|source| DirectoryError::Read { path: path.clone(), source })?;
        let mut replicas = BTreeMap::new();
        for entry in listed {
            let entry = entry.map_err(|source| DirectoryError::Read { path: path.clone(), source })?;
            let file = entry.file_name().to_string_lossy().into_owned();
            if let Some(name) = file.strip_suffix(".json") {
                replicas.insert(name.to_owned(), self.read_json(&format!("replicas/{file}"))?);
            }
        }
        Ok(replicas)
    }

    pub fn write_replica(&self, name: &str, replica: &ReplicaFile) -> Result<(), DirectoryError> {
        self.write_json(&format!("replicas/{name}.json"), replica)
    }

    /// Where a cluster's audit log lies, made if it is not there.
    pub fn audit(&self, cluster: &ClusterId) -> Result<PathBuf, DirectoryError> {
        let path = self.path("audit").join(cluster.as_str());
        fs::create_dir_all(&path).map_err(|source| DirectoryError::Write { path: path.clone(), source })?;
        Ok(path)
    }

    /// Removes a cluster's audit log. Missing is fine.
    pub fn remove_audit(&self, cluster: &ClusterId) -> Result<(), DirectoryError> {
        let path = self.path("audit").join(cluster.as_str());
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(DirectoryError::Write { path, source }),
            _ => Ok(()),
        }
    }

    /// Overwrites the file before it is removed: it holds a wrapped key. Missing is fine.
    pub fn remove_replica(&self, name: &str) -> Result<(), DirectoryError> {
        let path = self.path(&format!("replicas/{name}.json"));
        let failed = |source| DirectoryError::Write { path: path.clone(), source };
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
            Ok(metadata) => {
                let mut file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
                file.write_all(&vec![0; usize::try_from(metadata.len()).unwrap_or(0)]).map_err(failed)?;
                file.sync_all().map_err(failed)?;
            }
        }
        fs::remove_file(&path).map_err(failed)
    }

    fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, DirectoryError> {
        serde_json::from_str(&self.text(name)?).map_err(|e| self.malformed(name, e))
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), DirectoryError> {
        let text = serde_json::to_vec_pretty(value).map_err(|e| self.malformed(name, e))?;
        self.write(name, &text)
    }

    /// Synced before it is renamed into place; readable by the owner only.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), DirectoryError> {
        let (path, fresh) = (self.path(name), self.path(&format!("{name}.new")));
        let written = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(path.parent().unwrap_or(&self.0))?.sync_all()
        };
        written().map_err(|source| DirectoryError::Write { path: path.clone(), source })
    }

    fn malformed(&self, name: &str, reason: impl std::fmt::Display) -> DirectoryError {
        DirectoryError::Malformed { path: self.path(name), reason: reason.to_string() }
    }
}

impl ReplicaFile {
    pub fn new(spec: ReplicaSpec, uid: String, bundle: &ClusterBundle, keys: &HostKeys) -> Result<Self, wheelhouse_pki::BundleError> {
        Ok(Self { spec, uid, opened: false, bundle: STANDARD.encode(bundle.wrap(&keys.host)?) })
    }

    /// The same replica under new orders.
    #[must_use]
    pub fn with_orders(&self, spec: ReplicaSpec, uid: String) -> Self {
        Self { spec, uid, ..self.clone() }
    }

    /// The same replica, whose data is here from now on.
    #[must_use]
    pub fn as_opened(&self) -> Self {
        Self { opened: true, ..self.clone() }
    }

    pub fn bundle(&self, keys: &HostKeys) -> Result<ClusterBundle, String> {
        let wrapped = STANDARD.decode(&self.bundle).map_err(|e| e.to_string())?;
        ClusterBundle::unwrap(&wrapped, &self.spec.cluster_id, &keys.host).map_err(|e| e.to_string())
    }
}

/// The known hosts on disk. They are learned in two ways, and both write here: what is known in memory only is not known after a restart, when
/// nobody may be there to ask.
pub struct KeptHosts {
    directory: Directory,
    written: Mutex<Vec<KnownHost>>,
}

impl KeptHosts {
    /// What cannot be read now counts as not written.
    pub fn new(directory: Directory) -> Self {
        let written = directory.hosts().unwrap_or_default();
        Self { directory, written: Mutex::new(written) }
    }

    /// Writes the hosts if they differ from what is on disk. A failure is logged, and the next call tries again.
    pub fn keep(&self, hosts: &[KnownHost]) {
        let mut written = self.written.lock();
        if *written == hosts {
            return;
        }
        match self.directory.write_hosts(hosts) {
            Ok(()) => *written = hosts.to_vec(),
            Err(error) => tracing::warn!(%error, "the known hosts could not be kept"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wheelhouse_base::{Clock, SystemClock};
    use wheelhouse_pki::{RsaKey, Validity};

    #[test]
    fn everything_comes_back_and_replicas_can_be_destroyed() {
        let temp = tempfile::tempdir().unwrap();
        let directory = Directory::new(temp.path());
        directory.create().unwrap();
        let keys = HostKeys { operator: SealingKey::generate().unwrap(), host: SealingKey::generate().unwrap() };
        let authority = Authority::create("op", Validity::lasting(SystemClock.now(), Duration::from_secs(3600))).unwrap();
        directory.write_keys(&authority, &keys).unwrap();
        assert_eq!(directory.authority(&directory.keys().unwrap()).unwrap().hash(), authority.hash());

        let bundle = ClusterBundle::create(ClusterId::system(), &RsaKey::generate().unwrap(), SystemClock.now()).unwrap();
        let file = ReplicaFile::new(ReplicaSpec::default(), "u".into(), &bundle, &keys).unwrap();
        directory.write_replica("system-r1", &file).unwrap();
        let back = directory.replicas().unwrap();
        assert_eq!(back["system-r1"].bundle(&keys).unwrap(), bundle);
        let strange = HostKeys { host: SealingKey::generate().unwrap(), ..keys };
        assert!(back["system-r1"].bundle(&strange).is_err());
        directory.remove_replica("system-r1").unwrap();
        directory.remove_replica("system-r1").unwrap();
        assert!(directory.replicas().unwrap().is_empty());
    }

    #[test]
    fn known_hosts_are_on_disk_whichever_way_they_came() {
        let temp = tempfile::tempdir().unwrap();
        let directory = Directory::new(temp.path());
        let host = |name: &str| KnownHost { name: name.parse().unwrap(), clients: format!("{name}:1"), peers: format!("{name}:2") };
        directory.write_hosts(&[host("a")]).unwrap();
        let kept = KeptHosts::new(directory.clone());
        kept.keep(&[host("a"), host("b")]);
        assert_eq!(directory.hosts().unwrap(), [host("a"), host("b")]);
        fs::remove_file(directory.path("hosts.json")).unwrap();
        kept.keep(&[host("a"), host("b")]);
        assert!(directory.hosts().unwrap().is_empty(), "what is known to be written is not written again");
        kept.keep(&[host("a")]);
        assert_eq!(directory.hosts().unwrap(), [host("a")]);
    }

    #[test]
    fn one_process_at_a_time() {
        let temp = tempfile::tempdir().unwrap();
        let directory = Directory::new(temp.path());
        let held = directory.lock(Duration::ZERO).unwrap();
        assert!(matches!(directory.lock(Duration::ZERO), Err(DirectoryError::Locked(_))));
        drop(held);
        assert!(directory.lock(Duration::ZERO).is_ok());
    }
}
