//! Delays between restarts and between pulls: 10 s, doubled up to 5 min, forgotten after 10 min of peace (upstream's `client-go` flow control).

use std::time::Duration;

use wheelhouse_base::Timestamp;

const FIRST: Duration = Duration::from_secs(10);
/// `MaxContainerRestartPeriod` of the kubelet.
const MAX: Duration = Duration::from_secs(300);
/// Twice the longest delay without a failure, and the next one is the first again.
const FORGET: Duration = Duration::from_secs(600);

/// One thing that keeps failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    delay: Duration,
    /// When the last attempt began.
    last: Timestamp,
}

impl Backoff {
    /// How long to wait after a failure at `failed`; `None` when the next attempt may be made now.
    pub fn remaining(this: Option<&Self>, failed: Timestamp, now: Timestamp) -> Option<(Duration, Timestamp)> {
        let backoff = this.filter(|backoff| failed.since(backoff.last) <= FORGET)?;
        let until = failed.plus(backoff.delay);
        (until > now).then_some((backoff.delay, until))
    }

    /// Notes an attempt made now because of a failure at `failed`.
    pub fn next(this: Option<&Self>, failed: Timestamp, now: Timestamp) -> Self {
        match this.filter(|backoff| failed.since(backoff.last) <= FORGET) {
            None => Self { delay: FIRST, last: now },
            Some(backoff) => Self { delay: (backoff.delay * 2).min(MAX), last: now },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_five_minutes_and_are_forgotten() {
        let mut now = Timestamp::from_secs(1000);
        let mut backoff = None;
        let mut waited = Vec::new();
        for _ in 0..8 {
            let failed = now;
            if let Some((delay, until)) = Backoff::remaining(backoff.as_ref(), failed, now) {
                waited.push(delay.as_secs());
                now = until;
            } else {
                waited.push(0);
            }
            backoff = Some(Backoff::next(backoff.as_ref(), failed, now));
        }
        assert_eq!(waited, [0, 10, 20, 40, 80, 160, 300, 300]);
        let failed = now.plus(Duration::from_secs(601));
        assert_eq!(Backoff::remaining(backoff.as_ref(), failed, failed), None, "it ran well for long enough");
    }
}
