//! Service-account keys made ahead. An RSA key takes up to 0.4 s of CPU, which nobody should wait for who creates a cluster.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};
use wheelhouse_pki::{KeyError, RsaKey};

/// Keys at hand. A burst of creations beyond that waits for the CPU, one key after another.
const READY: usize = 8;

/// Takes keys from a channel that a thread at the lowest priority of its own making fills.
pub struct KeyPool {
    keys: Mutex<mpsc::Receiver<Result<RsaKey, KeyError>>>,
}

impl KeyPool {
    /// Starts the thread; it ends with the pool.
    pub fn start() -> Arc<Self> {
        let (sender, keys) = mpsc::channel(READY);
        let thread = std::thread::Builder::new().name("rsa-keys".to_owned()).spawn(move || {
            while !sender.is_closed() {
                let key = RsaKey::generate();
                if sender.blocking_send(key).is_err() {
                    return;
                }
            }
        });
        if let Err(error) = thread {
            // Whoever takes a key is told.
            tracing::error!(%error, "no thread for making keys");
        }
        Arc::new(Self { keys: Mutex::new(keys) })
    }

    pub async fn take(&self) -> Result<RsaKey, KeyError> {
        self.keys.lock().await.recv().await.unwrap_or(Err(KeyError::Generate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_differ() {
        let pool = KeyPool::start();
        let (one, other) = (pool.take().await.unwrap(), pool.take().await.unwrap());
        assert_ne!(one.public_key_der(), other.public_key_der());
    }
}
