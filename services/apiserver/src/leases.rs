//! The store leases that end Events after an hour.
//!
//! One lease per Event would cost a second write for each; Events of one minute share one, so an Event lives between 60 and 61 minutes.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use wheelhouse_meta::Status;
use wheelhouse_mvcc::{Command, Outcome, Refusal};

use crate::request::Answer;
use crate::storage::Storage;

/// Upstream's `--event-ttl`, and the minute that Events share.
const TTL_SECS: i64 = 3600 + 60;
const SHARED_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct EventLeases(Mutex<Option<(i64, Instant)>>);

impl EventLeases {
    /// The lease for an Event that is written now.
    pub async fn current(&self, storage: &Storage) -> Answer<i64> {
        let mut current = self.0.lock().await;
        if let Some((id, since)) = *current
            && since.elapsed() < SHARED_FOR
        {
            return Ok(id);
        }
        let id = rand::random_range(1..=i64::MAX);
        match storage.store().commit(Command::LeaseGrant { id, ttl_secs: TTL_SECS }).await {
            Ok(Outcome::LeaseGranted) | Ok(Outcome::Failed(Refusal::LeaseExists(_))) => {}
            Ok(_) => return Err(Status::internal_error("the store granted no lease").into()),
            Err(error) => return Err(Status::service_unavailable(error.to_string()).into()),
        }
        *current = Some((id, Instant::now()));
        Ok(id)
    }
}
