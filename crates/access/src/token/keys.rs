//! Keys that sign and verify service-account tokens.
//!
//! A key is named in a token's header by the base64url SHA-256 of its SubjectPublicKeyInfo, so that verifiers outside the cluster (cloud
//! IAM through the published key set) can pick it without trying all.

use aws_lc_rs::digest;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use serde_json::{Value, json};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the key is not PEM")]
    NotPem,
    #[error("the key is neither RSA nor ECDSA P-256")]
    Unsupported,
    #[error("the key cannot be read: {0}")]
    Malformed(String),
}

/// A key that verifies tokens.
#[derive(Clone)]
pub struct VerifyingKey {
    pub(crate) id: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: DecodingKey,
    /// Its entry in the published key set.
    pub(crate) jwk: Value,
}

/// The key that signs new tokens; it verifies them too.
#[derive(Clone)]
pub struct SigningKey {
    pub(crate) key: EncodingKey,
    pub(crate) public: VerifyingKey,
}

impl VerifyingKey {
    /// Reads `-----BEGIN PUBLIC KEY-----` (SubjectPublicKeyInfo): RSA, or ECDSA on P-256.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        Self::from_spki(&first_pem(pem)?.contents)
    }

    /// Reads a SubjectPublicKeyInfo in DER.
    pub fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let (_, spki) = SubjectPublicKeyInfo::from_der(der).map_err(|e| KeyError::Malformed(e.to_string()))?;
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, der));
        let bits: &[u8] = &spki.subject_public_key.data;
        let parsed = spki.parsed().map_err(|e| KeyError::Malformed(e.to_string()))?;
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match parsed {
            Parsed::RSA(rsa) => {
                let trim = |n: &[u8]| text(&n[n.iter().take_while(|b| **b == 0).count()..]);
                let jwk = json!({"use": "sig", "kty": "RSA", "kid": id, "alg": "RS256", "n": trim(rsa.modulus), "e": trim(rsa.exponent)});
                Ok(Self { id, algorithm: Algorithm::RS256, key: DecodingKey::from_rsa_der(bits), jwk })
            }
            // An uncompressed P-256 point: 0x04 and two coordinates of 32 bytes.
            Parsed::EC(_) if bits.len() == 65 && bits[0] == 4 => {
                let (x, y) = (text(&bits[1..33]), text(&bits[33..]));
                let jwk = json!({"use": "sig", "kty": "EC", "kid": id, "crv": "P-256", "alg": "ES256", "x": x, "y": y});
                Ok(Self { id, algorithm: Algorithm::ES256, key: DecodingKey::from_ec_der(bits), jwk })
            }
            _ => Err(KeyError::Unsupported),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }
}

impl SigningKey {
    /// Reads a private key in PKCS#8 PEM (`-----BEGIN PRIVATE KEY-----`): RSA of at least 2048 bits, or ECDSA on P-256.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let der = first_pem(pem)?.contents;
        let malformed = |e: &dyn std::fmt::Display| KeyError::Malformed(e.to_string());
        if let Ok(pair) = aws_lc_rs::rsa::KeyPair::from_pkcs8(&der) {
            let spki = pair.public_key().as_der().map_err(|e| malformed(&e))?;
            let key = EncodingKey::from_rsa_pem(pem).map_err(|e| malformed(&e))?;
            return Ok(Self { key, public: VerifyingKey::from_spki(spki.as_ref())? });
        }
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).map_err(|_| KeyError::Unsupported)?;
        let spki = pair.public_key().as_der().map_err(|e| malformed(&e))?;
        Ok(Self { key: EncodingKey::from_ec_der(&der), public: VerifyingKey::from_spki(spki.as_ref())? })
    }

    pub fn public(&self) -> &VerifyingKey {
        &self.public
    }
}

fn first_pem(pem: &[u8]) -> Result<Pem, KeyError> {
    Pem::iter_from_buffer(pem).next().and_then(Result::ok).ok_or(KeyError::NotPem)
}
