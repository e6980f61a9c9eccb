//! Sealing: what reaches the log or the disk is compressed, then encrypted with the cluster's data key.
//!
//! ```text
//! sealed value = version (1) | stream (12) | counter (8) | AES-256-GCM( flag (1) | lz4 or plain bytes ) | tag (16)
//! key of a stream = HMAC-SHA-256(data key, "stream" | stream)          nonce = counter, zero-extended to 96 bits
//! ```
//!
//! Several hosts seal with one cluster's key, and each restarts now and then. Random 96-bit nonces under one key would be safe for about
//! 2^32 values only, a few days of full load. So every opening of a group draws a random stream, whose own key encrypts with a counter:
//! no nonce repeats under one key, however long the cluster lives. The place of a value (its key on disk) is bound as associated data,
//! so that a value moved to another place does not open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use parking_lot::Mutex;

const VERSION: u8 = 1;
const STREAM_BYTES: usize = 12;
const COUNTER_BYTES: usize = 8;
const HEADER_BYTES: usize = 1 + STREAM_BYTES + COUNTER_BYTES;
const TAG_BYTES: usize = 16;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// Smaller bodies do not gain from compression.
const COMPRESS_FROM: usize = 128;

/// Keys of other streams that stay derived. A disk holds as many streams as the group was opened times; deriving one again costs 1 us.
const CACHED_STREAMS: usize = 64;

type StreamId = [u8; STREAM_BYTES];

/// A cluster's data key. Wiped from memory when the last copy goes.
#[derive(Clone, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
pub struct DataKey([u8; 32]);

impl DataKey {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn random() -> Self {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).expect("the operating system provides randomness");
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn derive(&self, purpose: &[u8], context: &[u8]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut input = hmac::Context::with_key(&key);
        input.update(purpose);
        input.update(context);
        input.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataKey(..)")
    }
}

/// Why a sealed value does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the sealed value is cut short")]
    Short,
    #[error("the sealed value has the unknown version {0}")]
    Version(u8),
    #[error("the sealed value was altered, moved, or sealed with another key")]
    Authentication,
    #[error("the sealed value does not decompress")]
    Compression,
}

/// Seals and opens one group's values. Every opening of a group makes a new one, hence a new stream.
pub struct Sealer {
    data_key: DataKey,
    stream: StreamId,
    key: LessSafeKey,
    counter: AtomicU64,
    names: hmac::Key,
    others: Mutex<HashMap<StreamId, Arc<LessSafeKey>>>,
}

impl Sealer {
    pub fn new(data_key: DataKey) -> Self {
        let mut stream = [0; STREAM_BYTES];
        SystemRandom::new().fill(&mut stream).expect("the operating system provides randomness");
        let key = stream_key(&data_key, &stream);
        let names = hmac::Key::new(hmac::HMAC_SHA256, &data_key.derive(b"names", b""));
        Self { data_key, stream, key, counter: AtomicU64::new(0), names, others: Mutex::default() }
    }

    /// Compresses and encrypts `plain`, bound to the place `aad`.
    pub fn seal(&self, aad: &[u8], plain: &[u8]) -> Vec<u8> {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut sealed = Vec::with_capacity(HEADER_BYTES + 1 + plain.len() + TAG_BYTES);
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.stream);
        sealed.extend_from_slice(&counter.to_be_bytes());
        compress_into(&mut sealed, plain);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(counter), Aad::from(aad), &mut sealed[HEADER_BYTES..])
            .expect("a value is far below the 64 GiB that one nonce may encrypt");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    pub fn open(&self, aad: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (header, body) = sealed.split_at_checked(HEADER_BYTES).ok_or(OpenError::Short)?;
        if header[0] != VERSION {
            return Err(OpenError::Version(header[0]));
        }
        let stream: StreamId = header[1..1 + STREAM_BYTES].try_into().expect("the slice has the stream's length");
        let counter = u64::from_be_bytes(header[1 + STREAM_BYTES..].try_into().expect("the rest of the header is the counter"));
        let mut body = body.to_vec();
        let plain = if stream == self.stream {
            self.key.open_in_place(nonce(counter), Aad::from(aad), &mut body)
        } else {
            self.other(&stream).open_in_place(nonce(counter), Aad::from(aad), &mut body)
        };
        decompress(plain.map_err(|_| OpenError::Authentication)?)
    }

    /// A name's 16 bytes on disk: keyed, so that a deleted cluster leaves no readable name either, and fixed, so that ranges stay small.
    pub fn hide_name(&self, name: &[u8]) -> [u8; 16] {
        let tag = hmac::sign(&self.names, name);
        tag.as_ref()[..16].try_into().expect("SHA-256 has 32 bytes")
    }

    fn other(&self, stream: &StreamId) -> Arc<LessSafeKey> {
        let mut others = self.others.lock();
        if let Some(key) = others.get(stream) {
            return key.clone();
        }
        if others.len() >= CACHED_STREAMS {
            others.clear();
        }
        let key = Arc::new(stream_key(&self.data_key, stream));
        others.insert(*stream, key.clone());
        key
    }
}

fn stream_key(data_key: &DataKey, stream: &StreamId) -> LessSafeKey {
    let key = data_key.derive(b"stream", stream);
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("AES-256 keys have 32 bytes"))
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn compress_into(out: &mut Vec<u8>, plain: &[u8]) {
    if plain.len() >= COMPRESS_FROM {
        let compressed = lz4_flex::block::compress_prepend_size(plain);
        if compressed.len() < plain.len() {
            out.push(LZ4);
            out.extend_from_slice(&compressed);
            return;
        }
    }
    out.push(PLAIN);
    out.extend_from_slice(plain);
}

fn decompress(opened: &[u8]) -> Result<Vec<u8>, OpenError> {
    match opened.split_first() {
        Some((&PLAIN, plain)) => Ok(plain.to_vec()),
        Some((&LZ4, compressed)) => lz4_flex::block::decompress_size_prepended(compressed).map_err(|_| OpenError::Compression),
        _ => Err(OpenError::Compression),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_open_where_they_belong_and_nowhere_else() {
        let key = DataKey::random();
        let sealer = Sealer::new(key.clone());
        for plain in [&b""[..], b"x", &[7; 5000]] {
            let sealed = sealer.seal(b"place", plain);
            assert_eq!(sealer.open(b"place", &sealed).as_deref(), Ok(plain));
            assert_eq!(sealer.open(b"elsewhere", &sealed), Err(OpenError::Authentication));
            assert_eq!(Sealer::new(key.clone()).open(b"place", &sealed).as_deref(), Ok(plain), "a later opening reads it");
            assert!(Sealer::new(DataKey::random()).open(b"place", &sealed).is_err(), "another cluster's key does not");
        }
    }

    #[test]
    fn an_altered_value_does_not_open() {
        let sealer = Sealer::new(DataKey::random());
        let sealed = sealer.seal(b"k", &[1; 300]);
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert!(sealer.open(b"k", &altered).is_err(), "byte {at}");
        }
        for length in 0..sealed.len() {
            assert!(sealer.open(b"k", &sealed[..length]).is_err());
        }
    }

    #[test]
    fn sealing_twice_never_gives_the_same_bytes() {
        let sealer = Sealer::new(DataKey::random());
        assert_ne!(sealer.seal(b"k", b"value"), sealer.seal(b"k", b"value"));
    }

    #[test]
    fn compressible_bodies_shrink() {
        let sealer = Sealer::new(DataKey::random());
        assert!(sealer.seal(b"k", &[b'a'; 4096]).len() < 200);
    }
}
