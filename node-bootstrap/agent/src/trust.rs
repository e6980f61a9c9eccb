//! Finds the cluster's CA by its hash, before anything secret is sent.

use std::io;

use wheelhouse_base::Timestamp;
use wheelhouse_pki::{CertificateInfo, certificates_to_pem, spki_hash};
use wheelhouse_runtime::tls;

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("the endpoint {address} cannot be reached")]
    Connect {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("the hash {0:?} is not of the form sha256:<64 hexadecimal digits>")]
    HashForm(String),
    #[error(
        "the endpoint {address} does not show the authority that --ca-cert-hash names for {server_name}: the hash is of another cluster, the server \
         name is wrong, or somebody stands in between"
    )]
    Hash { address: String, server_name: String },
    #[error("this machine's clock is wrong: the cluster's certificate holds from {from} to {to} (seconds since 1970) and it is {now} here")]
    Clock { from: i64, to: i64, now: i64 },
}

/// The PEM of the CA that has this hash, of those that the server shows. That the server really is of this CA is checked by whoever connects with it.
pub async fn find(address: &str, server_name: &str, hash: &str, now: Timestamp) -> Result<String, TrustError> {
    let digits = hash.strip_prefix("sha256:").unwrap_or_default();
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(TrustError::HashForm(hash.to_owned()));
    }
    let shown = tls::shown_certificates(address, server_name, &[b"h2", b"http/1.1"]).await;
    let shown = shown.map_err(|source| TrustError::Connect { address: address.to_owned(), source })?;
    let named = |der: &&Vec<u8>| spki_hash(der).is_ok_and(|found| found.eq_ignore_ascii_case(hash));
    let Some(ca) = shown.iter().find(named) else {
        return Err(TrustError::Hash { address: address.to_owned(), server_name: server_name.to_owned() });
    };
    if let Some(leaf) = shown.first().and_then(|der| CertificateInfo::parse(der).ok())
        && !leaf.validity.holds_at(now)
    {
        let (from, to) = (leaf.validity.not_before.as_secs(), leaf.validity.not_after.as_secs());
        return Err(TrustError::Clock { from, to, now: now.as_secs() });
    }
    Ok(certificates_to_pem([ca.as_slice()]))
}
