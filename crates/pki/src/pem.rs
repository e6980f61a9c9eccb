//! PEM text (RFC 7468): 64 characters a line.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

const LINE: usize = 64;

pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

/// Certificates in the order given, each in its own block.
pub fn certificates_to_pem<'a>(ders: impl IntoIterator<Item = &'a [u8]>) -> String {
    ders.into_iter().map(|der| encode("CERTIFICATE", der)).collect()
}

/// Every certificate of a PEM text as DER; other blocks are skipped, a malformed text yields what came before the fault.
pub fn certificates_from_pem(text: &str) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(text.as_bytes()).map_while(Result::ok).map(|c| c.as_ref().to_vec()).collect()
}
