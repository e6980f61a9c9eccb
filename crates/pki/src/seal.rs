//! Sealing: AES-256-GCM under a key that never leaves the process in the clear.
//!
//! A sealed text is `1` (the format), 12 random bytes of nonce, ciphertext, 16 bytes of tag. The context (what is sealed and for whom) is
//! authenticated, so that one cluster's keys cannot be put in another's place.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

const FORMAT: u8 = 1;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SealError {
    #[error("a sealing key has 32 bytes")]
    KeyLength,
    #[error("no randomness")]
    Randomness,
    #[error("the sealed text is not of a known format")]
    Format,
    #[error("the sealed text was changed, or sealed under another key or for another use")]
    Refused,
}

/// A 256-bit key that seals other keys: the operator's, or a host's own.
#[derive(Clone)]
pub struct SealingKey([u8; 32]);

impl SealingKey {
    pub fn generate() -> Result<Self, SealError> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| SealError::Randomness)?;
        Ok(Self(bytes))
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SealError> {
        bytes.try_into().map(Self).map_err(|_| SealError::KeyLength)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub fn seal(&self, plain: &[u8], context: &str) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| SealError::Randomness)?;
        let mut text = plain.to_vec();
        let aad = Aad::from(context.as_bytes());
        self.key()?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut text).map_err(|_| SealError::Refused)?;
        Ok([&[FORMAT], nonce.as_slice(), &text].concat())
    }

    pub fn open(&self, sealed: &[u8], context: &str) -> Result<Vec<u8>, SealError> {
        let body = sealed.strip_prefix(&[FORMAT]).ok_or(SealError::Format)?;
        let (nonce, text) = body.split_at_checked(NONCE_LEN).ok_or(SealError::Format)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Format)?;
        let mut text = text.to_vec();
        let plain = self.key()?.open_in_place(nonce, Aad::from(context.as_bytes()), &mut text).map_err(|_| SealError::Refused)?;
        Ok(plain.to_vec())
    }

    fn key(&self) -> Result<LessSafeKey, SealError> {
        UnboundKey::new(&AES_256_GCM, &self.0).map(LessSafeKey::new).map_err(|_| SealError::KeyLength)
    }
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_context_open() {
        let (key, other) = (SealingKey::generate().unwrap(), SealingKey::generate().unwrap());
        let sealed = key.seal(b"secret", "bundle/c-1").unwrap();
        assert_eq!(key.open(&sealed, "bundle/c-1").unwrap(), b"secret");
        assert_eq!(key.open(&sealed, "bundle/c-2"), Err(SealError::Refused));
        assert_eq!(other.open(&sealed, "bundle/c-1"), Err(SealError::Refused));
        assert_eq!(key.open(&sealed[..5], "bundle/c-1"), Err(SealError::Format));
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(key.open(&changed, "bundle/c-1"), Err(SealError::Refused));
        assert_ne!(key.seal(b"secret", "bundle/c-1").unwrap(), sealed, "nonces are fresh");
    }
}
