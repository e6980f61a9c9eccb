//! Writing and reading X.509 certificates.

use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use wheelhouse_base::Timestamp;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::{AltName, Subject, der};

const COMMON_NAME: &[u32] = &[2, 5, 4, 3];
const ORGANIZATION: &[u32] = &[2, 5, 4, 10];
const ECDSA_SHA256: &[u32] = &[1, 2, 840, 10045, 4, 3, 2];

/// From when until when a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// Machines' clocks differ; a certificate made now must hold on one that is a little behind.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

impl Validity {
    pub fn lasting(now: Timestamp, life: Duration) -> Self {
        Self { not_before: Timestamp::from_secs(now.as_secs() - CLOCK_SKEW.as_secs() as i64), not_after: now.plus(life) }
    }

    /// When it is to be replaced: two thirds of its life have passed.
    pub fn renew_at(&self) -> Timestamp {
        self.not_before.plus(self.not_after.since(self.not_before) * 2 / 3)
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.renew_at()
    }

    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// What a certificate says, as far as anybody here asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    pub subject: Subject,
    pub alt_names: Vec<AltName>,
    pub validity: Validity,
    pub is_ca: bool,
    /// SubjectPublicKeyInfo.
    pub public_key_der: Vec<u8>,
    /// The serial number's bytes, big-endian.
    pub serial: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
#[error("not an X.509 certificate")]
pub struct CertificateError;

impl CertificateInfo {
    pub fn parse(certificate_der: &[u8]) -> Result<Self, CertificateError> {
        let (_, parsed) = X509Certificate::from_der(certificate_der).map_err(|_| CertificateError)?;
        let alt_names = parsed.subject_alternative_name().ok().flatten();
        Ok(Self {
            subject: read_subject(parsed.subject()),
            alt_names: alt_names.map(|san| read_alt_names(&san.value.general_names)).unwrap_or_default(),
            validity: Validity {
                not_before: Timestamp::from_secs(parsed.validity().not_before.timestamp()),
                not_after: Timestamp::from_secs(parsed.validity().not_after.timestamp()),
            },
            is_ca: parsed.is_ca(),
            public_key_der: parsed.public_key().raw.to_vec(),
            serial: parsed.raw_serial().to_vec(),
        })
    }
}

/// `sha256:<hex of the SHA-256 of the SubjectPublicKeyInfo>`, as `kubeadm join --discovery-token-ca-cert-hash` takes it.
pub fn spki_hash(certificate_der: &[u8]) -> Result<String, CertificateError> {
    let info = CertificateInfo::parse(certificate_der)?;
    let hash = digest(&SHA256, &info.public_key_der);
    Ok(hash.as_ref().iter().fold(String::from("sha256:"), |text, byte| text + &format!("{byte:02x}")))
}

/// The last common name and every organisation, in order.
pub(crate) fn read_subject(name: &x509_parser::x509::X509Name<'_>) -> Subject {
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
    Subject {
        common_name: name.iter_common_name().last().and_then(text).unwrap_or_default(),
        organizations: name.iter_organization().filter_map(text).collect(),
    }
}

pub(crate) fn read_alt_names(names: &[GeneralName<'_>]) -> Vec<AltName> {
    let read = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(dns) => Some(AltName::Dns((*dns).to_owned())),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|b| AltName::Ip(IpAddr::from(b))),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|b| AltName::Ip(IpAddr::from(b))),
        },
        _ => None,
    };
    names.iter().filter_map(read).collect()
}

/// The Name element of a subject: organisations first, as kubeadm writes them, each in a set of its own.
pub(crate) fn write_subject(subject: &Subject) -> Vec<u8> {
    let attribute = |kind: &[u32], value: &str| der::set(&[&der::sequence(&[&der::oid(kind), &der::utf8(value)])]);
    let mut names: Vec<Vec<u8>> = subject.organizations.iter().map(|o| attribute(ORGANIZATION, o)).collect();
    names.push(attribute(COMMON_NAME, &subject.common_name));
    der::element(0x30, &names.concat())
}

pub(crate) fn write_alt_names(names: &[AltName]) -> Vec<u8> {
    let write = |name: &AltName| match name {
        AltName::Dns(dns) => der::implicit(2, dns.as_bytes()),
        AltName::Ip(IpAddr::V4(ip)) => der::implicit(7, &ip.octets()),
        AltName::Ip(IpAddr::V6(ip)) => der::implicit(7, &ip.octets()),
    };
    der::element(0x30, &names.iter().map(write).collect::<Vec<_>>().concat())
}

/// The algorithm of every signature made here.
pub(crate) fn signature_algorithm() -> Vec<u8> {
    der::sequence(&[&der::oid(ECDSA_SHA256)])
}

/// The key identifier of RFC 5280, 4.2.1.2 (1): SHA-1 over the public key's bits. It names, it protects nothing.
pub(crate) fn key_identifier(public_key_der: &[u8]) -> Vec<u8> {
    let bits = x509_parser::x509::SubjectPublicKeyInfo::from_der(public_key_der).map(|(_, spki)| spki.subject_public_key.data.to_vec());
    digest(&SHA1_FOR_LEGACY_USE_ONLY, &bits.unwrap_or_default()).as_ref().to_vec()
}

/// An entry of the extensions list.
pub(crate) fn extension(kind: &[u32], critical: bool, value: &[u8]) -> Vec<u8> {
    let mark = if critical { der::boolean(true) } else { Vec::new() };
    der::sequence(&[&der::oid(kind), &mark, &der::octets(value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_due_after_two_thirds() {
        let validity = Validity { not_before: Timestamp::from_secs(0), not_after: Timestamp::from_secs(300) };
        assert!(!validity.is_due(Timestamp::from_secs(199)));
        assert!(validity.is_due(Timestamp::from_secs(200)));
        assert!(validity.holds_at(Timestamp::from_secs(300)) && !validity.holds_at(Timestamp::from_secs(301)));
    }

    #[test]
    fn a_new_certificate_holds_on_a_slow_clock() {
        let now = Timestamp::from_secs(10_000);
        assert!(Validity::lasting(now, Duration::from_secs(60)).holds_at(Timestamp::from_secs(9_800)));
    }
}
