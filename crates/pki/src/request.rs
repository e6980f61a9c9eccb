//! Certificate signing requests (PKCS#10).

use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer;

use crate::certificate::{extension, read_alt_names, read_subject, signature_algorithm, write_alt_names, write_subject};
use crate::keys::{EcKey, KeyError};
use crate::{AltName, Subject, der, pem};

const EXTENSION_REQUEST: &[u32] = &[1, 2, 840, 113_549, 1, 9, 14];
const SUBJECT_ALT_NAME: &[u32] = &[2, 5, 29, 17];

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    #[error("not a PKCS#10 certificate request")]
    Malformed,
    #[error("the request is not signed by its own key")]
    Signature,
}

/// A request whose signature was checked: its sender holds the key.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    pub subject: Subject,
    pub alt_names: Vec<AltName>,
    /// SubjectPublicKeyInfo.
    pub public_key_der: Vec<u8>,
    /// Whether it asks for names other than DNS names and IP addresses (e-mail, URI); those are not signed.
    pub has_other_names: bool,
    pub(crate) raw_subject: Vec<u8>,
}

impl CertificateRequest {
    /// The first `CERTIFICATE REQUEST` block of a text.
    pub fn parse_pem(text: &str) -> Result<Self, RequestError> {
        let der = CertificateSigningRequestDer::from_pem_slice(text.as_bytes()).map_err(|_| RequestError::Pem)?;
        Self::parse(&der)
    }

    pub fn parse(request_der: &[u8]) -> Result<Self, RequestError> {
        let (rest, parsed) = X509CertificationRequest::from_der(request_der).map_err(|_| RequestError::Malformed)?;
        if !rest.is_empty() {
            return Err(RequestError::Malformed);
        }
        parsed.verify_signature().map_err(|_| RequestError::Signature)?;
        let info = &parsed.certification_request_info;
        let names = parsed.requested_extensions().into_iter().flatten().find_map(|e| match e {
            ParsedExtension::SubjectAlternativeName(san) => Some(&san.general_names),
            _ => None,
        });
        let alt_names = names.map(|n| read_alt_names(n)).unwrap_or_default();
        Ok(Self {
            subject: read_subject(&info.subject),
            has_other_names: names.is_some_and(|n| n.len() != alt_names.len()),
            alt_names,
            public_key_der: info.subject_pki.raw.to_vec(),
            raw_subject: info.subject.as_raw().to_vec(),
        })
    }

    /// Writes a request for `key`, as PEM.
    pub fn create(subject: &Subject, alt_names: &[AltName], key: &EcKey) -> Result<String, KeyError> {
        let attributes = if alt_names.is_empty() {
            der::element(0xa0, &[])
        } else {
            let extensions = der::sequence(&[&extension(SUBJECT_ALT_NAME, false, &write_alt_names(alt_names))]);
            der::element(0xa0, &der::sequence(&[&der::oid(EXTENSION_REQUEST), &der::set(&[&extensions])]))
        };
        let info = der::sequence(&[&der::integer(&[0]), &write_subject(subject), &key.public_key_der(), &attributes]);
        let signature = key.sign(&info)?;
        Ok(pem::encode("CERTIFICATE REQUEST", &der::sequence(&[&info, &signature_algorithm(), &der::bits(&signature)])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_with_their_names() {
        let key = EcKey::generate().unwrap();
        let subject = Subject::new("wheelhouse:host:a", &["wheelhouse:hosts"]);
        let names = vec![AltName::Dns("a.hosts".into()), AltName::Ip("10.0.0.1".parse().unwrap())];
        let request = CertificateRequest::parse_pem(&CertificateRequest::create(&subject, &names, &key).unwrap()).unwrap();
        assert_eq!((request.subject, request.alt_names, request.public_key_der), (subject, names, key.public_key_der()));
        assert!(!request.has_other_names);
    }

    #[test]
    fn a_changed_request_is_refused() {
        let text = CertificateRequest::create(&Subject::new("a", &[]), &[], &EcKey::generate().unwrap()).unwrap();
        let mut der = CertificateSigningRequestDer::from_pem_slice(text.as_bytes()).unwrap().to_vec();
        assert!(CertificateRequest::parse(&der).is_ok());
        let at = der.windows(3).position(|w| w == [0x0c, 1, b'a']).unwrap();
        der[at + 2] = b'b';
        assert!(matches!(CertificateRequest::parse(&der), Err(RequestError::Signature)));
        assert!(matches!(CertificateRequest::parse(&der[..40]), Err(RequestError::Malformed)));
    }
}
