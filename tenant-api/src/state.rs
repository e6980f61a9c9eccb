//! What handlers share.

use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use wheelhouse_base::{Clock, SystemClock};
use wheelhouse_client::Client;
use wheelhouse_pki::SealingKey;

use crate::config::Config;
use crate::limits::Buckets;

/// Cloning is cheap.
#[derive(Clone)]
pub struct App(Arc<Parts>);

pub struct Parts {
    /// The system control plane, as this service's own user.
    pub system: Client,
    pub operator_key: SealingKey,
    /// `host:port` of the endpoint.
    pub endpoint: String,
    pub base_domain: String,
    pub invitation: Option<String>,
    pub requests: Buckets<IpAddr>,
    pub signups: Buckets<IpAddr>,
    pub clock: Arc<dyn Clock>,
}

impl std::ops::Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl App {
    pub fn new(system: Client, operator_key: SealingKey, config: &Config) -> Self {
        let rate = f64::from(config.requests_per_second);
        let signups = f64::from(config.signups_per_hour);
        Self(Arc::new(Parts {
            system,
            operator_key,
            endpoint: config.endpoint.clone(),
            base_domain: config.base_domain.clone(),
            invitation: config.invitation.clone(),
            requests: Buckets::new(rate, rate * 10.0),
            signups: Buckets::new(signups / 3600.0, signups),
            clock: Arc::new(SystemClock),
        }))
    }
}

/// `length` characters of lower-case base32: 5 bits each, from the system's generator.
pub fn random_id(length: usize) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    random_bytes(length).iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

pub fn random_bytes(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SystemRandom::new().fill(&mut bytes).expect("the operating system's generator does not fail once it is seeded");
    bytes
}
