//! Waiting for a condition instead of for a time.

use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Looks until `condition` gives a value; panics with `what` after `limit`.
pub fn until<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < limit, "{what}: not within {limit:?}");
        // A look costs a process; without a pause the looking would be the load.
        std::thread::park_timeout(LOOK);
    }
}
