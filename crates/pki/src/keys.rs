//! Private keys. They print as their kind only, so that no log carries one.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;

use crate::pem;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("no key could be made")]
    Generate,
    #[error("the text holds no PKCS#8 private key")]
    NoKey,
    #[error("the key is not of the expected kind")]
    WrongKind,
    #[error("signing failed")]
    Sign,
}

/// A P-256 key.
pub struct EcKey {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
}

/// The SubjectPublicKeyInfo of a P-256 key up to its 65-byte uncompressed point.
const P256_SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03,
    0x42, 0x00,
];

impl EcKey {
    pub fn generate() -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|_| KeyError::Generate)?;
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| KeyError::Generate)?.as_ref().to_vec();
        Ok(Self { pair, pkcs8 })
    }

    /// A PKCS#8 `PRIVATE KEY` block.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let pkcs8 = pkcs8_of(text)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8).map_err(|_| KeyError::WrongKind)?;
        Ok(Self { pair, pkcs8 })
    }

    pub fn to_pem(&self) -> String {
        pem::encode("PRIVATE KEY", &self.pkcs8)
    }

    pub fn pkcs8_der(&self) -> &[u8] {
        &self.pkcs8
    }

    /// SubjectPublicKeyInfo.
    pub fn public_key_der(&self) -> Vec<u8> {
        [P256_SPKI_PREFIX.as_slice(), self.pair.public_key().as_ref()].concat()
    }

    /// ECDSA with SHA-256, as certificates carry it.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signature = self.pair.sign(&SystemRandom::new(), message).map_err(|_| KeyError::Sign)?;
        Ok(signature.as_ref().to_vec())
    }
}

impl std::fmt::Debug for EcKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EcKey(P-256)")
    }
}

/// An RSA-2048 key for service-account tokens. Making one costs up to 0.4 s of CPU: keep a few ready.
pub struct RsaKey {
    pkcs8: Vec<u8>,
    spki: Vec<u8>,
}

impl RsaKey {
    pub fn generate() -> Result<Self, KeyError> {
        Self::of(&RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| KeyError::Generate)?)
    }

    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        Self::of(&RsaKeyPair::from_pkcs8(&pkcs8_of(text)?).map_err(|_| KeyError::WrongKind)?)
    }

    fn of(pair: &RsaKeyPair) -> Result<Self, KeyError> {
        let pkcs8: Pkcs8V1Der<'_> = pair.as_der().map_err(|_| KeyError::Generate)?;
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(|_| KeyError::Generate)?;
        Ok(Self { pkcs8: pkcs8.as_ref().to_vec(), spki: spki.as_ref().to_vec() })
    }

    /// A PKCS#8 `PRIVATE KEY` block.
    pub fn to_pem(&self) -> String {
        pem::encode("PRIVATE KEY", &self.pkcs8)
    }

    /// A `PUBLIC KEY` block.
    pub fn public_pem(&self) -> String {
        pem::encode("PUBLIC KEY", &self.spki)
    }

    /// SubjectPublicKeyInfo; its SHA-256 is what the `kid` of tokens is made of.
    pub fn public_key_der(&self) -> &[u8] {
        &self.spki
    }
}

impl std::fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RsaKey(2048)")
    }
}

fn pkcs8_of(text: &str) -> Result<Vec<u8>, KeyError> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|_| KeyError::NoKey)?;
    Ok(key.secret_pkcs8_der().to_vec())
}
