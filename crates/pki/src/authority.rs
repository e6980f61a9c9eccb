//! Certificate authorities and what they sign.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

use crate::certificate::{CertificateInfo, Validity, extension, key_identifier, signature_algorithm, spki_hash, write_alt_names, write_subject};
use crate::keys::{EcKey, KeyError};
use crate::request::CertificateRequest;
use crate::{AltName, Subject, der, pem};

const SUBJECT_KEY_IDENTIFIER: &[u32] = &[2, 5, 29, 14];
const KEY_USAGE: &[u32] = &[2, 5, 29, 15];
const SUBJECT_ALT_NAME: &[u32] = &[2, 5, 29, 17];
const BASIC_CONSTRAINTS: &[u32] = &[2, 5, 29, 19];
const AUTHORITY_KEY_IDENTIFIER: &[u32] = &[2, 5, 29, 35];
const EXTENDED_KEY_USAGE: &[u32] = &[2, 5, 29, 37];
const SERVER_AUTH: &[u32] = &[1, 3, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u32] = &[1, 3, 6, 1, 5, 5, 7, 3, 2];

/// Bits of the KeyUsage extension.
const DIGITAL_SIGNATURE: u8 = 0;
const KEY_ENCIPHERMENT: u8 = 2;
const KEY_CERT_SIGN: u8 = 5;
const CRL_SIGN: u8 = 6;

/// 128 random bits: two serials of one authority do not meet.
const SERIAL_BYTES: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("the authority's key")]
    Key(#[from] KeyError),
    #[error("the text holds no certificate")]
    NoCertificate,
    #[error("the certificate does not belong to the key")]
    Mismatch,
    #[error("the certificate is not an authority's")]
    NotAuthority,
    #[error("no randomness for a serial number")]
    Serial,
}

/// What a leaf certificate may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    Server,
    Client,
    /// Hosts speak to one another in both roles.
    Both,
}

/// A leaf certificate to be.
#[derive(Clone, Debug)]
pub struct Leaf {
    pub subject: Subject,
    pub alt_names: Vec<AltName>,
    pub usage: Usage,
    pub validity: Validity,
}

/// A CA certificate with its key.
#[derive(Debug)]
pub struct Authority {
    certificate: Vec<u8>,
    /// The Name element, copied as issuer.
    name: Vec<u8>,
    key: EcKey,
}

impl Authority {
    /// A new self-signed authority.
    pub fn create(common_name: &str, validity: Validity) -> Result<Self, AuthorityError> {
        let key = EcKey::generate()?;
        let name = write_subject(&Subject::new(common_name, &[]));
        let public_key = key.public_key_der();
        let extensions = [
            extension(KEY_USAGE, true, &der::named_bits(&[DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, KEY_CERT_SIGN, CRL_SIGN])),
            extension(BASIC_CONSTRAINTS, true, &der::sequence(&[&der::boolean(true)])),
            extension(SUBJECT_KEY_IDENTIFIER, false, &der::octets(&key_identifier(&public_key))),
        ];
        let certificate = sign(&key, &name, &name, &public_key, validity, &extensions)?;
        Ok(Self { certificate, name, key })
    }

    /// From PEM texts; the first certificate counts.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let key = EcKey::from_pem(key)?;
        let certificate = pem::certificates_from_pem(certificate).into_iter().next().ok_or(AuthorityError::NoCertificate)?;
        let info = CertificateInfo::parse(&certificate).map_err(|_| AuthorityError::NoCertificate)?;
        if !info.is_ca {
            return Err(AuthorityError::NotAuthority);
        }
        if info.public_key_der != key.public_key_der() {
            return Err(AuthorityError::Mismatch);
        }
        let name = raw_subject(&certificate).ok_or(AuthorityError::NoCertificate)?;
        Ok(Self { certificate, name, key })
    }

    pub fn certificate_der(&self) -> &[u8] {
        &self.certificate
    }

    pub fn certificate_pem(&self) -> String {
        pem::certificates_to_pem([self.certificate.as_slice()])
    }

    pub fn key_pem(&self) -> String {
        self.key.to_pem()
    }

    /// The form of `--ca-cert-hash`.
    pub fn hash(&self) -> String {
        spki_hash(&self.certificate).expect("an authority's own certificate was parsed or written here")
    }

    /// Signs a certificate for a public key (SubjectPublicKeyInfo); returns DER.
    pub fn issue(&self, leaf: &Leaf, public_key_der: &[u8]) -> Result<Vec<u8>, AuthorityError> {
        self.issue_raw(&write_subject(&leaf.subject), &leaf.alt_names, leaf.usage, leaf.validity, public_key_der)
    }

    /// A certificate with a new key: `(certificate PEM, key PEM)`.
    pub fn issue_with_key(&self, leaf: &Leaf) -> Result<(String, String), AuthorityError> {
        let key = EcKey::generate()?;
        let certificate = self.issue(leaf, &key.public_key_der())?;
        Ok((pem::certificates_to_pem([certificate.as_slice()]), key.to_pem()))
    }

    /// Signs a request as it is: its subject to the byte and its alternative names. Whether its contents are allowed is the caller's to decide.
    pub fn sign_request(&self, request: &CertificateRequest, usage: Usage, validity: Validity) -> Result<Vec<u8>, AuthorityError> {
        self.issue_raw(&request.raw_subject, &request.alt_names, usage, validity, &request.public_key_der)
    }

    fn issue_raw(
        &self,
        subject: &[u8],
        alt_names: &[AltName],
        usage: Usage,
        validity: Validity,
        public_key: &[u8],
    ) -> Result<Vec<u8>, AuthorityError> {
        let purposes: &[&[u32]] = match usage {
            Usage::Server => &[SERVER_AUTH],
            Usage::Client => &[CLIENT_AUTH],
            Usage::Both => &[SERVER_AUTH, CLIENT_AUTH],
        };
        let purposes: Vec<Vec<u8>> = purposes.iter().map(|p| der::oid(p)).collect();
        let authority_key = der::sequence(&[&der::implicit(0, &key_identifier(&self.key.public_key_der()))]);
        let mut extensions = vec![
            extension(KEY_USAGE, true, &der::named_bits(&[DIGITAL_SIGNATURE, KEY_ENCIPHERMENT])),
            extension(EXTENDED_KEY_USAGE, false, &der::element(0x30, &purposes.concat())),
            extension(BASIC_CONSTRAINTS, true, &der::sequence(&[])),
            extension(AUTHORITY_KEY_IDENTIFIER, false, &authority_key),
        ];
        if !alt_names.is_empty() {
            extensions.push(extension(SUBJECT_ALT_NAME, false, &write_alt_names(alt_names)));
        }
        // An authority's certificates end with it: beyond that nobody would accept them.
        let own = CertificateInfo::parse(&self.certificate).map_err(|_| AuthorityError::NoCertificate)?.validity;
        let validity = Validity { not_after: validity.not_after.min(own.not_after), ..validity };
        sign(&self.key, &self.name, subject, public_key, validity, &extensions)
    }
}

/// Version 3, a random serial, the given parts, and the signature around them.
fn sign(
    key: &EcKey,
    issuer: &[u8],
    subject: &[u8],
    public_key: &[u8],
    validity: Validity,
    extensions: &[Vec<u8>],
) -> Result<Vec<u8>, AuthorityError> {
    let mut serial = [0; SERIAL_BYTES];
    SystemRandom::new().fill(&mut serial).map_err(|_| AuthorityError::Serial)?;
    // A clear top bit keeps the number positive at this length, a set second one keeps it from being short.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    let tbs = der::sequence(&[
        &der::explicit(0, &der::integer(&[2])),
        &der::integer(&serial),
        &signature_algorithm(),
        issuer,
        &der::sequence(&[&der::time(validity.not_before.as_secs()), &der::time(validity.not_after.as_secs())]),
        subject,
        public_key,
        &der::explicit(3, &der::element(0x30, &extensions.concat())),
    ]);
    let signature = key.sign(&tbs)?;
    Ok(der::sequence(&[&tbs, &signature_algorithm(), &der::bits(&signature)]))
}

fn raw_subject(certificate_der: &[u8]) -> Option<Vec<u8>> {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let (_, parsed) = X509Certificate::from_der(certificate_der).ok()?;
    Some(parsed.subject().as_raw().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::Duration;
    use wheelhouse_base::{Clock, SystemClock, Timestamp};
    use x509_parser::prelude::{FromDer, X509Certificate};

    fn day() -> Validity {
        Validity::lasting(SystemClock.now(), Duration::from_secs(86_400))
    }

    fn leaf() -> Leaf {
        Leaf {
            subject: Subject::new("alice", &["one", "two", "three"]),
            alt_names: vec![AltName::Dns("*.c.example".into()), AltName::Ip("10.96.0.1".parse().unwrap()), AltName::Ip("fd00::1".parse().unwrap())],
            usage: Usage::Both,
            validity: day(),
        }
    }

    /// Runs openssl on PEM input and returns what it printed.
    fn openssl(arguments: &[&str], input: &str) -> String {
        let mut child = Command::new("openssl").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "openssl {arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn openssl_verifies_what_an_authority_issued() {
        let authority = Authority::create("test-ca", day()).unwrap();
        let (certificate, _) = authority.issue_with_key(&leaf()).unwrap();
        let ca = tempfile(&authority.certificate_pem());
        let verdict = openssl(&["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", ca.path().to_str().unwrap()], &certificate);
        assert!(verdict.contains("OK"), "{verdict}");
        let text = openssl(&["x509", "-noout", "-subject", "-nameopt", "RFC2253", "-ext", "subjectAltName,extendedKeyUsage"], &certificate);
        assert!(text.contains("CN=alice,O=three,O=two,O=one"), "{text}");
        assert!(text.contains("DNS:*.c.example") && text.contains("IP Address:10.96.0.1") && text.contains("FD00:0:0:0:0:0:0:1"), "{text}");
        assert!(text.contains("TLS Web Server Authentication, TLS Web Client Authentication"), "{text}");
    }

    #[test]
    fn the_hash_is_kubeadms() {
        let authority = Authority::create("test-ca", day()).unwrap();
        let key = openssl(&["x509", "-pubkey", "-noout"], &authority.certificate_pem());
        let der = tempfile("");
        openssl(&["pkey", "-pubin", "-outform", "der", "-out", der.path().to_str().unwrap()], &key);
        let digest = openssl(&["dgst", "-sha256", "-hex", der.path().to_str().unwrap()], "");
        assert_eq!(authority.hash(), format!("sha256:{}", digest.trim().rsplit(' ').next().unwrap()));
    }

    #[test]
    fn every_group_survives_and_the_signature_holds() {
        let authority = Authority::create("test-ca", day()).unwrap();
        let der = authority.issue(&leaf(), &EcKey::generate().unwrap().public_key_der()).unwrap();
        let info = CertificateInfo::parse(&der).unwrap();
        assert_eq!((info.subject, info.alt_names), (leaf().subject, leaf().alt_names));
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        let (_, ca) = X509Certificate::from_der(authority.certificate_der()).unwrap();
        assert!(parsed.verify_signature(Some(ca.public_key())).is_ok());
        assert!(parsed.verify_signature(Some(parsed.public_key())).is_err());
    }

    #[test]
    fn a_leaf_does_not_outlive_its_authority() {
        let authority = Authority::create("test-ca", day()).unwrap();
        let long = Leaf { validity: Validity::lasting(SystemClock.now(), Duration::from_secs(10 * 86_400)), ..leaf() };
        let der = authority.issue(&long, &EcKey::generate().unwrap().public_key_der()).unwrap();
        let end = |der: &[u8]| CertificateInfo::parse(der).unwrap().validity.not_after;
        assert_eq!(end(&der), end(authority.certificate_der()));
    }

    #[test]
    fn authorities_come_back_from_pem_and_refuse_foreign_keys() {
        let (one, other) = (Authority::create("one", day()).unwrap(), Authority::create("other", day()).unwrap());
        let back = Authority::from_pem(&one.certificate_pem(), &one.key_pem()).unwrap();
        assert_eq!(back.hash(), one.hash());
        assert!(matches!(Authority::from_pem(&one.certificate_pem(), &other.key_pem()), Err(AuthorityError::Mismatch)));
        let (leaf_certificate, leaf_key) = one.issue_with_key(&leaf()).unwrap();
        assert!(matches!(Authority::from_pem(&leaf_certificate, &leaf_key), Err(AuthorityError::NotAuthority)));
    }

    #[test]
    fn requests_made_by_openssl_are_signed_with_their_own_subject() {
        let authority = Authority::create("test-ca", day()).unwrap();
        let key = tempfile("");
        let path = key.path().to_str().unwrap();
        openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path], "");
        let csr = openssl(
            &["req", "-new", "-key", path, "-subj", "/O=system:nodes/O=extra/CN=system:node:n1", "-addext", "subjectAltName=DNS:n1,IP:10.0.0.7"],
            "",
        );
        let request = CertificateRequest::parse_pem(&csr).unwrap();
        assert_eq!(request.subject, Subject::new("system:node:n1", &["system:nodes", "extra"]));
        let der = authority.sign_request(&request, Usage::Client, day()).unwrap();
        let info = CertificateInfo::parse(&der).unwrap();
        assert_eq!((info.subject, info.public_key_der), (request.subject.clone(), request.public_key_der.clone()));
        assert_eq!(info.alt_names, [AltName::Dns("n1".into()), AltName::Ip("10.0.0.7".parse().unwrap())]);
    }

    #[test]
    fn dates_after_2049_are_read_back() {
        let far = Validity { not_before: Timestamp::from_secs(0), not_after: Timestamp::from_secs(4_000_000_000) };
        let authority = Authority::create("far", far).unwrap();
        assert_eq!(CertificateInfo::parse(authority.certificate_der()).unwrap().validity, far);
    }

    fn tempfile(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }
}
