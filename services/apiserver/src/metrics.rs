//! The cluster's metrics, under upstream's names. One set per API server, gone with it.
//!
//! Labels are verbs, resources, scopes and codes that this server knows, never what a client sent, so the series are bounded.

use std::time::Duration;

use wheelhouse_runtime::Metrics;

use crate::request::path::RequestInfo;

/// Upstream's buckets, fewer of them.
const SECONDS: &[f64] = &[0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 15.0, 60.0];

#[derive(Clone, Default)]
pub struct ServerMetrics {
    metrics: Metrics,
}

impl ServerMetrics {
    /// The text of `/metrics`.
    pub fn render(&self) -> String {
        self.metrics.render()
    }

    /// Counts an answered request. `known`: the resource exists, so that its name may be a label.
    pub fn answered(&self, info: &RequestInfo, known: bool, code: u16, took: Duration) {
        let verb = verb_label(info);
        let (group, version, resource, subresource) = if known && info.is_resource {
            (info.group.as_str(), info.version.as_str(), info.resource.as_str(), info.subresource.as_str())
        } else {
            ("", "", "", "")
        };
        let code = code.to_string();
        let labels =
            [("verb", verb), ("group", group), ("version", version), ("resource", resource), ("subresource", subresource), ("code", code.as_str())];
        self.metrics.counter("apiserver_request_total", "Requests by verb, resource and HTTP code.", &labels).increment();
        if !info.is_long_running() {
            let labels = [("verb", verb), ("group", group), ("resource", resource)];
            let help = "Time from a request's headers to its answer, in seconds.";
            self.metrics.histogram("apiserver_request_duration_seconds", help, SECONDS, &labels).observe(took.as_secs_f64());
        }
    }

    pub fn in_flight(&self, mutating: bool, count: usize) {
        let kind = if mutating { "mutating" } else { "readOnly" };
        let help = "Requests in flight.";
        self.metrics.gauge("apiserver_current_inflight_requests", help, &[("request_kind", kind)]).set(count as f64);
    }

    pub fn refused(&self, mutating: bool) {
        let kind = if mutating { "mutating" } else { "readOnly" };
        let help = "Requests refused with 429 because too many were in flight.";
        self.metrics.counter("apiserver_dropped_requests_total", help, &[("request_kind", kind)]).increment();
    }

    pub fn long_running(&self, count: usize) {
        self.metrics.gauge("apiserver_longrunning_requests", "Watches and other streams that are open.", &[("verb", "WATCH")]).set(count as f64);
    }

    pub fn store_revision(&self, revision: u64) {
        self.metrics.gauge("etcd_debugging_mvcc_current_revision", "The store's newest revision on this replica.", &[]).set(revision as f64);
    }
}

fn verb_label(info: &RequestInfo) -> &'static str {
    match info.verb.as_str() {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "proxy" => "CONNECT",
        _ => "other",
    }
}
