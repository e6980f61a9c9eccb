//! A hash that is the same in every process of one build.

use super::{Content, Resource};

/// FNV-1a with 64 bits, twice with different starts. It only has to tell versions of our own documents apart.
#[derive(Clone)]
struct Hasher([u64; 2]);

const OFFSETS: [u64; 2] = [0xcbf2_9ce4_8422_2325, 0x6c62_272e_07bb_0142];
const PRIME: u64 = 0x0000_0100_0000_01b3;

impl Hasher {
    fn new() -> Hasher {
        Hasher(OFFSETS)
    }

    fn update(&mut self, bytes: &[u8]) {
        for half in &mut self.0 {
            for byte in bytes {
                *half = (*half ^ u64::from(*byte)).wrapping_mul(PRIME);
            }
            // So that two parts never run together.
            *half = (*half ^ 0xff).wrapping_mul(PRIME);
        }
    }

    fn finish(&self) -> String {
        format!("{:016X}{:016X}", self.0[0], self.0[1])
    }
}

pub(super) fn of_bytes(bytes: &[u8]) -> String {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.finish()
}

/// What every document of this build is made from, taken in once.
pub(super) struct Base(Hasher);

impl Base {
    pub(super) fn new(version: &str) -> Base {
        let mut hasher = Hasher::new();
        hasher.update(version.as_bytes());
        hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
        hasher.update(crate::load::TYPES.as_bytes());
        hasher.update(super::descriptions::PACKED);
        Base(hasher)
    }

    /// The hash of one v3 document: the base, its place and the resources in it.
    pub(super) fn document(&self, path: &str, resources: &[Resource], content: &Content) -> String {
        let mut hasher = self.0.clone();
        hasher.update(path.as_bytes());
        if let Content::GroupVersion { group, version } = content {
            for resource in resources.iter().filter(|r| r.group == *group && r.version == *version) {
                hasher.update(format!("{resource:?}").as_bytes());
            }
        }
        hasher.finish()
    }
}
