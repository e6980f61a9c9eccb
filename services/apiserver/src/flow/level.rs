//! What a PriorityLevelConfiguration asks for.

use serde_json::Value;

/// Upstream's defaults of the fields (API reference of `flowcontrol.apiserver.k8s.io/v1`).
const DEFAULT_SHARES: u64 = 30;
const DEFAULT_QUEUES: u64 = 64;
const DEFAULT_HAND: u64 = 8;
const DEFAULT_LENGTH: u64 = 50;

/// Memory for queues is bounded whatever a tenant writes; the API allows ten million queues.
const MAX_QUEUES: u64 = 1024;
const MAX_LENGTH: u64 = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pub name: String,
    pub uid: String,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never waits and is never refused.
    Exempt,
    Limited(Limited),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    pub shares: u64,
    /// Percent of the nominal seats that others may use while they are free.
    pub lendable: u64,
    /// Percent of the nominal seats that may be borrowed on top; `None` for no bound.
    pub borrowing: Option<u64>,
    pub response: Response,
}

/// What becomes of a request that finds no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    Reject,
    Queue { queues: usize, hand: usize, length: usize },
}

impl Level {
    /// Reads a stored object. What is out of range was refused when it was written; here it is bounded again.
    pub fn read(name: &str, object: &Value) -> Self {
        let spec = &object["spec"];
        let kind = if spec["type"] == "Exempt" { Kind::Exempt } else { Kind::Limited(Limited::read(&spec["limited"])) };
        Self { name: name.to_owned(), uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), kind }
    }

    /// The level that takes whatever no other takes, in case its object is missing.
    pub fn catch_all() -> Self {
        let limited = Limited { shares: 5, lendable: 0, borrowing: None, response: Response::Reject };
        Self { name: "catch-all".into(), uid: String::new(), kind: Kind::Limited(limited) }
    }

    /// The level of the cluster's own administrators, in case its object is missing.
    pub fn exempt() -> Self {
        Self { name: "exempt".into(), uid: String::new(), kind: Kind::Exempt }
    }
}

impl Limited {
    fn read(limited: &Value) -> Self {
        let response = &limited["limitResponse"];
        let queuing = &response["queuing"];
        let bounded = |field: &str, default: u64, most: u64| queuing[field].as_u64().unwrap_or(default).clamp(1, most);
        let response = if response["type"] == "Queue" {
            let queues = bounded("queues", DEFAULT_QUEUES, MAX_QUEUES);
            Response::Queue {
                queues: to_usize(queues),
                hand: to_usize(bounded("handSize", DEFAULT_HAND, queues)),
                length: to_usize(bounded("queueLengthLimit", DEFAULT_LENGTH, MAX_LENGTH)),
            }
        } else {
            Response::Reject
        };
        Self {
            shares: limited["nominalConcurrencyShares"].as_u64().unwrap_or(DEFAULT_SHARES),
            lendable: limited["lendablePercent"].as_u64().unwrap_or(0).min(100),
            borrowing: limited["borrowingLimitPercent"].as_u64(),
            response,
        }
    }
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
