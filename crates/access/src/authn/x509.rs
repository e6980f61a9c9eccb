//! Client certificates: the common name is the user, every organisation is a group.
//!
//! TLS accepts any certificate, so that a foreign one is answered 401 in HTTP instead of a broken handshake; the chain is checked here.

use std::fmt::Write as _;

use aws_lc_rs::digest;
use wheelhouse_base::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{Oid, asn1_rs::oid};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::CREDENTIAL_ID;
use crate::user::User;

/// Subject attribute that holds the user's uid (upstream's arc of the Kubernetes enterprise number).
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// The longest chain that is followed: a leaf, two intermediates and a root are more than anybody issues here.
const MAX_CHAIN: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("the certificate cannot be read")]
    Malformed,
    #[error("the certificate is not valid at this time")]
    NotNow,
    #[error("the certificate is not meant for clients")]
    NotForClients,
    #[error("the certificate was signed by an unknown authority")]
    UnknownAuthority,
    #[error("the certificate names no user")]
    NoCommonName,
    #[error("the certificate names several uids")]
    SeveralUids,
}

/// What a certificate proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub user: User,
    /// The chain is worth nothing after this time, so that a long-lived connection can be asked again.
    pub until: Timestamp,
}

/// The certificates (DER) in a PEM bundle, e.g. of the cluster's client CAs.
pub fn certificates_from_pem(pem: &[u8]) -> Result<Vec<Vec<u8>>, CertificateError> {
    let blocks = Pem::iter_from_buffer(pem).map(|block| block.map_err(|_| CertificateError::Malformed));
    blocks.map(|block| block.map(|b| b.contents)).collect()
}

/// The user that a chain (DER, leaf first, as TLS brought it) proves against the cluster's client CAs (DER).
pub fn authenticate<C: AsRef<[u8]>, R: AsRef<[u8]>>(chain: &[C], roots: &[R], now: Timestamp) -> Result<Verified, CertificateError> {
    let parsed: Vec<X509Certificate<'_>> = parse_all(chain.iter().take(MAX_CHAIN).map(AsRef::as_ref))?;
    let roots: Vec<X509Certificate<'_>> = parse_all(roots.iter().map(AsRef::as_ref))?;
    let leaf = parsed.first().ok_or(CertificateError::Malformed)?;
    let usable = leaf.extended_key_usage().map_err(|_| CertificateError::Malformed)?.is_some_and(|e| e.value.client_auth || e.value.any);
    if !valid(leaf, now) {
        return Err(CertificateError::NotNow);
    }
    verify_chain(leaf, &parsed[1..], &roots, now)?;
    if !usable {
        return Err(CertificateError::NotForClients);
    }
    let until = parsed.iter().map(|c| c.validity().not_after.timestamp()).min().unwrap_or_default();
    Ok(Verified { user: user(leaf, chain[0].as_ref())?, until: Timestamp::from_secs(until) })
}

fn parse_all<'a>(ders: impl Iterator<Item = &'a [u8]>) -> Result<Vec<X509Certificate<'a>>, CertificateError> {
    ders.map(|der| X509Certificate::from_der(der).map(|(_, c)| c).map_err(|_| CertificateError::Malformed)).collect()
}

fn valid(certificate: &X509Certificate<'_>, now: Timestamp) -> bool {
    let validity = certificate.validity();
    (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now.as_secs())
}

fn verify_chain(
    leaf: &X509Certificate<'_>,
    intermediates: &[X509Certificate<'_>],
    roots: &[X509Certificate<'_>],
    now: Timestamp,
) -> Result<(), CertificateError> {
    let issued = |child: &X509Certificate<'_>, parent: &X509Certificate<'_>| {
        let is_authority = parent.basic_constraints().ok().flatten().is_some_and(|b| b.value.ca);
        is_authority
            && valid(parent, now)
            && child.issuer().as_raw() == parent.subject().as_raw()
            && child.verify_signature(Some(parent.public_key())).is_ok()
    };
    let mut current = leaf;
    for _ in 0..MAX_CHAIN {
        if roots.iter().any(|root| issued(current, root)) {
            return Ok(());
        }
        current = intermediates.iter().find(|i| issued(current, i)).ok_or(CertificateError::UnknownAuthority)?;
    }
    Err(CertificateError::UnknownAuthority)
}

fn user(leaf: &X509Certificate<'_>, der: &[u8]) -> Result<User, CertificateError> {
    let subject = leaf.subject();
    let name = subject.iter_common_name().last().and_then(|cn| cn.as_str().ok()).unwrap_or_default();
    if name.is_empty() {
        return Err(CertificateError::NoCommonName);
    }
    let groups = subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect();
    let mut uids = subject.iter_attributes().filter(|a| *a.attr_type() == UID);
    let uid = uids.next().map(|a| a.as_str().map(str::to_owned).map_err(|_| CertificateError::Malformed)).transpose()?;
    if uids.next().is_some() {
        return Err(CertificateError::SeveralUids);
    }
    let mut credential = "X509SHA256=".to_owned();
    for byte in digest::digest(&digest::SHA256, der).as_ref() {
        let _ = write!(credential, "{byte:02x}");
    }
    Ok(User { name: name.to_owned(), uid: uid.unwrap_or_default(), groups, extra: [(CREDENTIAL_ID.to_owned(), vec![credential])].into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    fn authority(name: &str) -> (Vec<u8>, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.der().to_vec(), Issuer::new(params, key))
    }

    fn leaf(issuer: &Issuer<'static, KeyPair>, edit: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        edit(&mut params);
        params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().to_vec()
    }

    /// Within the years that rcgen gives a certificate by default.
    fn now() -> Timestamp {
        crate::time::parse("2026-01-01T00:00:00Z").unwrap()
    }

    #[test]
    fn the_subject_names_user_groups_and_uid() {
        let (ca, issuer) = authority("ca");
        let der = leaf(&issuer, |p| p.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), "u-1"));
        let Verified { user, until } = authenticate(&[&der], &[&ca], now()).unwrap();
        assert!(until > now());
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "u-1"));
        assert_eq!(user.groups, ["dev"]);
        let credential = &user.extra[CREDENTIAL_ID][0];
        assert_eq!((credential.starts_with("X509SHA256="), credential.len()), (true, 11 + 64));
    }

    #[test]
    fn foreign_expired_and_serving_certificates_are_refused() {
        let (ca, issuer) = authority("ca");
        // The same name, another key.
        let (_, impostor) = authority("ca");
        let refused = |der: &[u8], now| authenticate(&[der], &[&ca], now).unwrap_err();
        assert_eq!(refused(&leaf(&impostor, |_| ()), now()), CertificateError::UnknownAuthority);
        let serving = leaf(&issuer, |p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        assert_eq!(refused(&serving, now()), CertificateError::NotForClients);
        let expired = leaf(&issuer, |p| p.not_after = rcgen::date_time_ymd(2025, 1, 1));
        assert_eq!(refused(&expired, now()), CertificateError::NotNow);
        let nameless = leaf(&issuer, |p| p.distinguished_name = rcgen::DistinguishedName::new());
        assert_eq!(refused(&nameless, now()), CertificateError::NoCommonName);
        assert_eq!(refused(b"", now()), CertificateError::Malformed);
    }

    #[test]
    fn an_intermediate_that_was_sent_along_completes_the_chain() {
        let (root, root_issuer) = authority("root");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "intermediate");
        let key = KeyPair::generate().unwrap();
        let intermediate = params.signed_by(&key, &root_issuer).unwrap().der().to_vec();
        let der = leaf(&Issuer::new(params, key), |_| ());
        assert!(authenticate(&[&der, &intermediate], &[&root], now()).is_ok());
        assert_eq!(authenticate(&[&der], &[&root], now()), Err(CertificateError::UnknownAuthority));
        // A leaf is no authority.
        let child = leaf(&authority("jane").1, |_| ());
        assert_eq!(authenticate(&[&child, &der, &intermediate], &[&root], now()), Err(CertificateError::UnknownAuthority));
    }
}
