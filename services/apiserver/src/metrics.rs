//! The cluster's metrics, under upstream's names. One set per API server, gone with it.
//!
//! Labels are verbs, resources, scopes and codes that this server knows, never what a client sent, so the series are bounded.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wheelhouse_runtime::Metrics;
use wheelhouse_runtime::metrics::{Counter, Gauge};

use crate::request::path::RequestInfo;

/// Upstream's buckets, fewer of them.
const SECONDS: &[f64] = &[0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 15.0, 60.0];

const WAIT_SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0];

/// A tenant may name any number of flow schemas; so many of them are labels, the rest are `other`.
const MAX_FLOW_NAMES: usize = 100;

#[derive(Clone, Default)]
pub struct ServerMetrics {
    metrics: Metrics,
    flow_names: Arc<FlowNames>,
}

/// Names of flow schemas and priority levels that are labels.
#[derive(Default)]
struct FlowNames(Mutex<BTreeSet<String>>);

impl FlowNames {
    fn label(&self, name: &str) -> String {
        let mut names = self.0.lock();
        if !names.contains(name) {
            if names.len() >= MAX_FLOW_NAMES {
                return "other".to_owned();
            }
            names.insert(name.to_owned());
        }
        name.to_owned()
    }
}

/// A request in flight.
pub struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.add(-1.0);
    }
}

impl ServerMetrics {
    pub fn all(&self) -> Metrics {
        self.metrics.clone()
    }

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

    /// Counts a request as in flight until the answer is dropped.
    pub fn count_in_flight(&self, mutating: bool) -> InFlight {
        let kind = if mutating { "mutating" } else { "readOnly" };
        let gauge = self.metrics.gauge("apiserver_current_inflight_requests", "Requests in flight.", &[("request_kind", kind)]);
        gauge.add(1.0);
        InFlight(gauge)
    }

    /// Counts what flow control made of a request. `refused` says why, as upstream calls it.
    pub fn flow_decided(&self, schema: &str, level: &str, refused: Option<&'static str>, waited: Duration) {
        let (schema, level) = (self.flow_names.label(schema), self.flow_names.label(level));
        let labels = [("flow_schema", schema.as_str()), ("priority_level", level.as_str())];
        let execute = if refused.is_none() { "true" } else { "false" };
        let help = "Time that requests waited for a seat, in seconds.";
        let waits = [("priority_level", level.as_str()), ("execute", execute)];
        self.metrics.histogram("apiserver_flowcontrol_request_wait_duration_seconds", help, WAIT_SECONDS, &waits).observe(waited.as_secs_f64());
        match refused {
            None => {
                let help = "Requests that got a seat, by flow schema and priority level.";
                self.metrics.counter("apiserver_flowcontrol_dispatched_requests_total", help, &labels).increment();
            }
            Some(reason) => {
                let help = "Requests that got no seat, by flow schema, priority level and reason.";
                let labels = [labels[0], labels[1], ("reason", reason)];
                self.metrics.counter("apiserver_flowcontrol_rejected_requests_total", help, &labels).increment();
            }
        }
    }

    /// How a priority level stands.
    pub fn flow_level(&self, level: &str, nominal: u64, seats: u64, executing: u64, waiting: u64) {
        let level = self.flow_names.label(level);
        for (name, help, value) in [
            ("apiserver_flowcontrol_nominal_limit_seats", "Seats of each priority level.", nominal),
            ("apiserver_flowcontrol_current_executing_seats", "Seats in use, by priority level.", seats),
            ("apiserver_flowcontrol_current_executing_requests", "Requests that run, by priority level.", executing),
            ("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait, by priority level.", waiting),
        ] {
            self.metrics.gauge(name, help, &[("priority_level", &level)]).set(value as f64);
        }
    }

    /// Counts who came and whether they were known. Names are not labels: a tenant has any number of users.
    pub fn authenticated(&self, known: bool) {
        let result = if known { "success" } else { "failure" };
        self.metrics.counter("authentication_attempts", "Attempts to authenticate, by result.", &[("result", result)]).increment();
    }

    pub fn authorized(&self, allowed: bool) {
        let result = if allowed { "allowed" } else { "denied" };
        self.metrics.counter("apiserver_authorization_decisions_total", "Decisions about requests, by result.", &[("result", result)]).increment();
    }

    /// Objects of one stored resource.
    pub fn storage_objects(&self, resource: &str, objects: usize) {
        self.metrics.gauge("apiserver_storage_objects", "Stored objects, by resource.", &[("resource", resource)]).set(objects as f64);
    }

    pub fn watch_events(&self, group: &str, version: &str, resource: &str) -> Counter {
        let labels = [("group", group), ("version", version), ("resource", resource)];
        self.metrics.counter("apiserver_watch_events_total", "Events sent to watches, by resource.", &labels)
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
