//! Rate limits: token buckets by address, bounded in number.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use parking_lot::Mutex;
use wheelhouse_base::Timestamp;

use crate::problem::Problem;
use crate::state::App;

/// The largest body: a hundred times what any request here needs.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Such a body crosses the slowest link in a second.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Buckets remembered; full ones are forgotten first, since a forgotten full bucket changes nothing.
const REMEMBERED: usize = 65_536;

/// Token buckets, one per `K`.
pub struct Buckets<K> {
    rate_per_second: f64,
    burst: f64,
    buckets: Mutex<HashMap<K, (f64, Timestamp)>>,
}

impl<K: Eq + Hash> Buckets<K> {
    pub fn new(rate_per_second: f64, burst: f64) -> Self {
        Self { rate_per_second, burst, buckets: Mutex::default() }
    }

    /// Takes a token, or says in how many whole seconds there will be one.
    pub fn take(&self, key: K, now: Timestamp) -> Result<(), u32> {
        let mut buckets = self.buckets.lock();
        if buckets.len() >= REMEMBERED {
            let (rate, burst) = (self.rate_per_second, self.burst);
            buckets.retain(|_, (tokens, at)| *tokens + now.since(*at).as_secs_f64() * rate < burst);
            if buckets.len() >= REMEMBERED {
                return Err(1);
            }
        }
        let (tokens, at) = buckets.entry(key).or_insert((self.burst, now));
        *tokens = (*tokens + now.since(*at).as_secs_f64() * self.rate_per_second).min(self.burst);
        *at = now;
        if *tokens >= 1.0 {
            *tokens -= 1.0;
            return Ok(());
        }
        Err((((1.0 - *tokens) / self.rate_per_second).ceil() as u32).max(1))
    }
}

/// IPv6 clients hold whole /64s, so the prefix is the client.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        },
    }
}

/// Refuses an address that asks too often.
pub async fn per_address(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    match app.requests.take(client_of(peer.ip()), app.clock.now()) {
        Ok(()) => Ok(next.run(request).await),
        Err(seconds) => Err(Problem::too_many("this address sends more requests than allowed", seconds)),
    }
}

/// Reads the whole body before anything is done about the request, so that a slow or an endless one holds no more than its own connection.
pub async fn whole_body(request: Request, next: Next) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, MAX_BODY_BYTES)).await;
    match read {
        Ok(Ok(bytes)) => Ok(next.run(Request::from_parts(parts, Body::from(bytes))).await),
        Ok(Err(error)) if is_over_the_limit(&error) => Err(Problem::too_large(MAX_BODY_BYTES)),
        Ok(Err(_)) => Err(Problem::bad_request("the body broke off")),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "The request took too long", "its body did not come in time")),
    }
}

fn is_over_the_limit(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<http_body_util::LengthLimitError>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let buckets = Buckets::new(0.5, 2.0);
        let now = Timestamp::from_secs(100);
        assert_eq!([buckets.take("a", now), buckets.take("a", now), buckets.take("a", now)], [Ok(()), Ok(()), Err(2)]);
        assert_eq!(buckets.take("b", now), Ok(()), "others are not affected");
        assert_eq!(buckets.take("a", now.plus(Duration::from_secs(2))), Ok(()));
    }

    #[test]
    fn memory_is_bounded_under_many_addresses() {
        let buckets = Buckets::new(1.0, 1.0);
        let now = Timestamp::from_secs(100);
        for i in 0..REMEMBERED {
            assert_eq!(buckets.take(i, now), Ok(()));
        }
        assert_eq!(buckets.take(REMEMBERED, now), Err(1), "all are empty, so none may be forgotten");
        assert_eq!(buckets.take(REMEMBERED, now.plus(Duration::from_secs(2))), Ok(()));
    }

    #[test]
    fn an_ipv6_client_is_its_prefix() {
        let client = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(client("2001:db8:1:2:3::4"), client("2001:db8:1:2:ffff::1"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
    }
}
