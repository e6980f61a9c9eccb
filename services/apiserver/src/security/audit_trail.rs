//! What becomes known of a request on its way through the server, for its audit event.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http::{HeaderMap, header};
use parking_lot::Mutex;
use wheelhouse_access::audit::{Event, Record, Stage, is_recorded};
use wheelhouse_access::impersonation::Impersonated;
use wheelhouse_access::{Attributes, Decision, User};
use wheelhouse_base::Timestamp;
use wheelhouse_meta::Status;

use super::Security;
use crate::request::path::RequestInfo;

/// Filled in by the steps of a request, in any order; a step that was not reached leaves its part empty.
#[derive(Default)]
pub struct AuditTrail(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    user: Option<User>,
    impersonated: Option<Impersonated>,
    decision: Option<Decision>,
    annotations: BTreeMap<String, String>,
}

impl AuditTrail {
    pub fn authenticated(&self, user: &User) {
        self.0.lock().user = Some(user.clone());
    }

    pub fn impersonated(&self, impersonated: &Impersonated) {
        self.0.lock().impersonated = Some(impersonated.clone());
    }

    pub fn decided(&self, decision: &Decision) {
        self.0.lock().decision = Some(decision.clone());
    }

    #[cfg(test)]
    pub(super) fn annotation(&self, key: &str) -> Option<String> {
        self.0.lock().annotations.get(key).cloned()
    }

    /// Notes under keys; what was noted first stays.
    pub fn annotated(&self, annotations: BTreeMap<String, String>) {
        let mut seen = self.0.lock();
        for (key, value) in annotations {
            seen.annotations.entry(key).or_insert(value);
        }
    }
}

/// A request and its answer.
pub struct Exchange<'a> {
    /// Also sent in the `Audit-Id` header.
    pub id: &'a str,
    pub info: &'a RequestInfo,
    /// Path and query, as sent.
    pub uri: &'a str,
    pub headers: &'a HeaderMap,
    /// `None` for requests of this process.
    pub peer: Option<SocketAddr>,
    pub code: u16,
    pub failure: Option<&'a Status>,
    pub received: Timestamp,
}

impl Security {
    /// Puts the request into the cluster's audit log, if it has one. A long-running request is recorded when its answer starts.
    pub fn record(&self, trail: &AuditTrail, exchange: &Exchange<'_>) {
        let Some(sink) = &self.audit else { return };
        let seen = trail.0.lock();
        let nobody = User::default();
        let attributes: Attributes<'_> = exchange.info.attributes(seen.user.as_ref().unwrap_or(&nobody));
        if !is_recorded(&attributes, exchange.peer.is_none()) {
            return;
        }
        let source_ips: Vec<String> = exchange.peer.iter().map(|peer| peer.ip().to_string()).collect();
        let record = Record {
            id: exchange.id,
            stage: if exchange.info.is_long_running() { Stage::ResponseStarted } else { Stage::ResponseComplete },
            uri: exchange.uri,
            attributes: &attributes,
            impersonated: seen.impersonated.as_ref().map(|i| &i.user),
            impersonation_constraint: seen.impersonated.as_ref().map_or("", |i| i.constraint.as_str()),
            source_ips: &source_ips,
            user_agent: exchange.headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default(),
            code: exchange.code,
            failure: exchange.failure,
            decision: seen.decision.as_ref(),
            received: exchange.received,
            now: self.clock.now(),
            annotations: seen.annotations.clone(),
        };
        sink.write(&Event::new(record));
    }
}
