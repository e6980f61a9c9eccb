//! Which address belongs to which attachment: one file per address, named after it.
//!
//! Every call of the plugin is a process of its own, so a lock on the directory orders them. Addresses are handed out in a circle: the one that was just given back
//! is the last to be used again, so that a packet on its way to a dead pod does not reach a new one. The directory lies on a file system that a
//! reboot empties, as the reboot empties the namespaces.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use wheelhouse_net::Cidr;

use crate::plugin::protocol::Attachment;

/// The network's own address and the gateway are not handed out.
const FIRST: u128 = 2;

/// Addresses that are tried in one network: a larger one (IPv6) is used as if it had this many.
const MAX_TRIED: u128 = 65_536;

#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    #[error("cannot use {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("no free address in {0}")]
    Full(Cidr),
}

/// The record of addresses, locked for as long as it lives.
pub struct Ipam {
    directory: PathBuf,
    /// The lock goes with it.
    _lock: File,
}

impl Ipam {
    /// Waits for the lock.
    pub fn lock(directory: &Path) -> Result<Self, IpamError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| IpamError::Io { path, source }
        };
        fs::create_dir_all(directory).map_err(failed(directory))?;
        let path = directory.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed(&path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(&path)(error.into()))?;
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    fn path_of(&self, address: &IpAddr) -> PathBuf {
        // Colons are fine in names of files.
        self.directory.join(format!("address-{address}"))
    }

    fn io(&self, path: &Path, source: io::Error) -> IpamError {
        IpamError::Io { path: path.to_owned(), source }
    }

    /// One address of each network, the same ones again for an attachment that has some.
    pub fn allocate(&self, networks: &[Cidr], attachment: &Attachment) -> Result<Vec<IpAddr>, IpamError> {
        let held = self.held()?;
        let mut given = Vec::with_capacity(networks.len());
        for network in networks {
            let own = held.iter().find(|(address, owner)| owner == attachment && network.contains(address));
            given.push(match own {
                Some((address, _)) => *address,
                None => self.take(network, attachment).inspect_err(|_| self.undo(&given, &held))?,
            });
        }
        Ok(given)
    }

    /// Gives back what this call took before it failed.
    fn undo(&self, given: &[IpAddr], held_before: &[(IpAddr, Attachment)]) {
        for address in given.iter().filter(|address| !held_before.iter().any(|(held, _)| held == *address)) {
            let _ = fs::remove_file(self.path_of(address));
        }
    }

    fn take(&self, network: &Cidr, attachment: &Attachment) -> Result<IpAddr, IpamError> {
        // An IPv4 network's last address is its broadcast address.
        let end = network.size().min(MAX_TRIED) - u128::from(network.size() <= MAX_TRIED);
        let last_path = self.directory.join(format!("last-{}", network.first()));
        let last = fs::read_to_string(&last_path)
            .ok()
            .and_then(|text| network.offset(&text.trim().parse().ok()?))
            .filter(|last| (FIRST..end).contains(last));
        let start = last.map_or(FIRST, |last| last + 1);
        for offset in (start..end).chain(FIRST..start.min(end)) {
            let Some(address) = network.nth(offset) else { break };
            let path = self.path_of(&address);
            match OpenOptions::new().create_new(true).write(true).open(&path) {
                Ok(mut file) => {
                    let written = write!(file, "{}\n{}\n", attachment.container_id, attachment.ifname);
                    written.and_then(|()| fs::write(&last_path, address.to_string())).map_err(|source| self.io(&path, source))?;
                    return Ok(address);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(self.io(&path, source)),
            }
        }
        Err(IpamError::Full(*network))
    }

    /// Every address in use with its owner. A file that a crash left half-written belongs to nobody that exists.
    pub fn held(&self) -> Result<Vec<(IpAddr, Attachment)>, IpamError> {
        let mut held = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(|source| self.io(&self.directory, source))? {
            let entry = entry.map_err(|source| self.io(&self.directory, source))?;
            let name = entry.file_name();
            let Some(address) = name.to_str().and_then(|name| name.strip_prefix("address-")?.parse().ok()) else { continue };
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let mut lines = text.lines().map(str::to_owned);
            held.push((address, Attachment { container_id: lines.next().unwrap_or_default(), ifname: lines.next().unwrap_or_default() }));
        }
        held.sort();
        Ok(held)
    }

    /// Gives back every address of an attachment; none is fine.
    pub fn release(&self, attachment: &Attachment) -> Result<(), IpamError> {
        for (address, owner) in self.held()? {
            if owner == *attachment {
                let path = self.path_of(&address);
                fs::remove_file(&path).map_err(|source| self.io(&path, source))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(id: u32) -> Attachment {
        Attachment { container_id: format!("c{id}"), ifname: "eth0".into() }
    }

    #[test]
    fn addresses_are_unique_kept_and_used_in_a_circle() {
        let directory = tempfile::tempdir().unwrap();
        let networks: Vec<Cidr> = ["10.1.0.0/29", "fd00:1::/64"].iter().map(|n| n.parse().unwrap()).collect();
        let ipam = Ipam::lock(directory.path()).unwrap();
        let texts = |id| ipam.allocate(&networks, &attachment(id)).map(|list| list.iter().map(IpAddr::to_string).collect::<Vec<_>>());
        assert_eq!(texts(1).unwrap(), ["10.1.0.2", "fd00:1::2"]);
        assert_eq!(texts(1).unwrap(), ["10.1.0.2", "fd00:1::2"], "asked twice, given once");
        assert_eq!(texts(2).unwrap()[0], "10.1.0.3");
        ipam.release(&attachment(1)).unwrap();
        ipam.release(&attachment(1)).unwrap();
        for (id, last) in [(3, 4), (4, 5), (5, 6), (6, 2)] {
            assert_eq!(texts(id).unwrap()[0], format!("10.1.0.{last}"));
        }
        // 2 to 6: the network's own address, the gateway and the broadcast address are nobody's. What failed took nothing in the other network either.
        assert!(matches!(ipam.allocate(&networks, &attachment(7)), Err(IpamError::Full(network)) if network == networks[0]));
        let reversed = [networks[1], networks[0]];
        assert!(ipam.allocate(&reversed, &attachment(7)).is_err());
        assert_eq!(ipam.held().unwrap().len(), 10);
    }

    #[test]
    fn processes_take_turns() {
        let directory = tempfile::tempdir().unwrap();
        let network: [Cidr; 1] = ["10.1.0.0/24".parse().unwrap()];
        let given: Vec<IpAddr> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..32)
                .map(|id| {
                    scope.spawn({
                        let path = directory.path();
                        move || Ipam::lock(path).unwrap().allocate(&network, &attachment(id)).unwrap()[0]
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(given.iter().collect::<std::collections::BTreeSet<_>>().len(), 32);
    }
}
