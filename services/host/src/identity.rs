//! This host's certificate: made from the operator's authority, renewed at two thirds of its life while everything runs.

use std::time::Duration;

use wheelhouse_base::routes::{host_server_name, peers_server_name};
use wheelhouse_base::{HostName, Timestamp};
use wheelhouse_fleet::names::{HOSTS_GROUP, host_user};
use wheelhouse_pki::{AltName, Authority, AuthorityError, CertificateInfo, Leaf, Subject, Usage, Validity, certificates_from_pem};
use wheelhouse_runtime::tls::{CertificateSlot, TlsError};

use crate::directory::{Directory, DirectoryError, HostFile, HostKeys};

/// A host's first certificate lasts ninety days, as those that follow do by default, renewed after sixty.
pub const LIFE: Duration = Duration::from_secs(90 * 86_400);

/// Certificates are looked at every hour, or more often where they live so short that an hour would miss the last third of their lives.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// How often to look at certificates that live so long.
pub fn look_every(life: Duration) -> Duration {
    LOOK_EVERY.min(life / 12)
}

/// The organisation in endpoints' certificates.
pub const ENDPOINTS_GROUP: &str = "wheelhouse:endpoints";

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("issuing the host's certificate")]
    Issue(#[from] AuthorityError),
    #[error("keeping the host's certificate")]
    Directory(#[from] DirectoryError),
    #[error("using the host's certificate")]
    Tls(#[from] TlsError),
}

/// The certificate that a host of this name has.
pub fn host_leaf(name: &HostName, base_domain: &str, life: Duration, now: Timestamp) -> Leaf {
    Leaf {
        subject: Subject::new(host_user(name), &[HOSTS_GROUP]),
        alt_names: vec![AltName::Dns(host_server_name(name, base_domain)), AltName::Dns(peers_server_name(base_domain))],
        usage: Usage::Both,
        validity: Validity::lasting(now, life),
    }
}

/// Writes a fresh certificate and key; the authority's certificate follows the host's own, so that a joining host can check its hash.
pub fn issue(directory: &Directory, authority: &Authority, host: &HostFile, life: Duration, now: Timestamp) -> Result<(), IdentityError> {
    let (certificate, key) = authority.issue_with_key(&host_leaf(&host.name, &host.base_domain, life, now))?;
    directory.write_text("tls.key", &key)?;
    directory.write_text("tls.crt", &format!("{certificate}{}", authority.certificate_pem()))?;
    Ok(())
}

/// The certificate in use, for the process.
pub fn load(directory: &Directory) -> Result<CertificateSlot, IdentityError> {
    Ok(CertificateSlot::from_pem(&directory.text("tls.crt")?, &directory.text("tls.key")?)?)
}

/// Replaces the certificate if two thirds of its life are over, or if it was made to live longer than certificates do now. Says whether it did.
pub fn renew_if_due(
    directory: &Directory,
    keys: &HostKeys,
    host: &HostFile,
    slot: &CertificateSlot,
    life: Duration,
    now: Timestamp,
) -> Result<bool, IdentityError> {
    if CertificateInfo::parse(&slot.leaf()).is_ok_and(|info| !info.validity.is_due(now) && info.validity.not_after <= now.plus(life)) {
        return Ok(false);
    }
    issue(directory, &directory.authority(keys)?, host, life, now)?;
    slot.replace(&directory.text("tls.crt")?, &directory.text("tls.key")?)?;
    Ok(true)
}

/// Who stands behind a peer's certificate, which was checked against the operator's authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    Host(HostName),
    Endpoint,
    /// No certificate: a machine that wants to join.
    Stranger,
}

impl Peer {
    /// From the chain that the handshake verified.
    pub fn of(chain: Option<&[rustls::pki_types::CertificateDer<'_>]>) -> Self {
        let info = chain.and_then(|c| c.first()).and_then(|c| CertificateInfo::parse(c).ok());
        let Some(CertificateInfo { subject, .. }) = info else { return Self::Stranger };
        let host = wheelhouse_fleet::names::host_of_user(&subject.common_name);
        match host {
            Some(host) if subject.organizations.iter().any(|o| o == HOSTS_GROUP) => Self::Host(host),
            _ if subject.organizations.iter().any(|o| o == ENDPOINTS_GROUP) => Self::Endpoint,
            _ => Self::Stranger,
        }
    }
}

/// Whether a PEM text's first certificate is due at `now`; an unreadable one is.
pub fn is_due(pem: &str, now: Timestamp) -> bool {
    certificates_from_pem(pem).first().is_none_or(|der| is_due_der(der, now))
}

/// The same of a certificate in DER.
pub fn is_due_der(der: &[u8], now: Timestamp) -> bool {
    CertificateInfo::parse(der).map_or(true, |info| info.validity.is_due(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::CertificateDer;
    use wheelhouse_base::{Clock, SystemClock};
    use wheelhouse_pki::EcKey;

    fn peer(subject: Subject) -> Peer {
        let authority = Authority::create("op", Validity::lasting(SystemClock.now(), Duration::from_secs(3600))).unwrap();
        let leaf = Leaf { subject, alt_names: vec![], usage: Usage::Both, validity: Validity::lasting(SystemClock.now(), Duration::from_secs(60)) };
        let der = authority.issue(&leaf, &EcKey::generate().unwrap().public_key_der()).unwrap();
        Peer::of(Some(&[CertificateDer::from(der)]))
    }

    #[test]
    fn peers_are_who_their_certificate_says() {
        assert_eq!(peer(Subject::new("wheelhouse:host:a", &[HOSTS_GROUP])), Peer::Host("a".parse().unwrap()));
        assert_eq!(peer(Subject::new("wheelhouse:host:a", &["other"])), Peer::Stranger, "the name alone is not enough");
        assert_eq!(peer(Subject::new("x", &[ENDPOINTS_GROUP])), Peer::Endpoint);
        assert_eq!(Peer::of(None), Peer::Stranger);
    }
}
