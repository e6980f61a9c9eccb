//! Probes and life-cycle hooks.

use k8s_openapi::api::core::v1::{ExecAction, GRPCAction, HTTPGetAction, Lifecycle, LifecycleHandler, Probe, SleepAction, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use wheelhouse_meta::validation as names;

use crate::prelude::*;

/// The ways to look or to act, of which exactly one must be set.
struct Handler<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_socket: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep: Option<&'a SleepAction>,
}

pub fn validate(probe: &Probe, which: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let way = Handler {
        exec: probe.exec.as_ref(),
        http_get: probe.http_get.as_ref(),
        tcp_socket: probe.tcp_socket.as_ref(),
        grpc: probe.grpc.as_ref(),
        sleep: None,
    };
    handler(&way, path, errors);
    let counts = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (field, value) in counts {
        errors.extend(names::nonnegative(i64::from(value.unwrap_or_default()), &path.child(field)));
    }
    let grace = path.child("terminationGracePeriodSeconds");
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|s| *s <= 0) {
        errors.push(FieldError::invalid(&grace, seconds, "must be greater than 0"));
    }
    match which {
        "readinessProbe" => {
            if let Some(seconds) = probe.termination_grace_period_seconds {
                errors.push(FieldError::invalid(&grace, seconds, "must not be set for readinessProbes"));
            }
        }
        _ => {
            let threshold = probe.success_threshold.unwrap_or_default();
            if threshold != 1 {
                errors.push(FieldError::invalid(&path.child("successThreshold"), threshold, "must be 1"));
            }
        }
    }
}

pub fn lifecycle(lifecycle: &Lifecycle, path: &Path<'_>, errors: &mut ErrorList) {
    let mut hook = |hook: &Option<LifecycleHandler>, field: &str| {
        let Some(hook) = hook else { return };
        let way = Handler {
            exec: hook.exec.as_ref(),
            http_get: hook.http_get.as_ref(),
            tcp_socket: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        };
        handler(&way, &path.child(field), errors);
    };
    hook(&lifecycle.post_start, "postStart");
    hook(&lifecycle.pre_stop, "preStop");
}

fn handler(handler: &Handler<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let mut count = 0;
    let mut first = |field: &str, errors: &mut ErrorList| {
        count += 1;
        if count > 1 {
            errors.push(FieldError::forbidden(&path.child(field), "may not specify more than 1 handler type"));
        }
        count == 1
    };
    if let Some(exec) = handler.exec
        && first("exec", errors)
        && items(&exec.command).is_empty()
    {
        errors.push(FieldError::required(&path.child("exec").child("command"), ""));
    }
    if let Some(http) = handler.http_get
        && first("httpGet", errors)
    {
        http_get(http, &path.child("httpGet"), errors);
    }
    if let Some(tcp) = handler.tcp_socket
        && first("tcpSocket", errors)
    {
        port(&tcp.port, &path.child("tcpSocket").child("port"), errors);
    }
    if let Some(grpc) = handler.grpc
        && first("grpc", errors)
    {
        validation::port(grpc.port, &path.child("grpc").child("port"), errors);
    }
    if let Some(sleep) = handler.sleep
        && first("sleep", errors)
        && sleep.seconds < 0
    {
        let why = "must be non-negative and not exceed the pod's terminationGracePeriodSeconds";
        errors.push(FieldError::invalid(&path.child("sleep").child("seconds"), sleep.seconds, why));
    }
    if count == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn http_get(http: &HTTPGetAction, path: &Path<'_>, errors: &mut ErrorList) {
    if text(&http.path).is_empty() {
        errors.push(FieldError::required(&path.child("path"), ""));
    }
    port(&http.port, &path.child("port"), errors);
    let scheme = text(&http.scheme);
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.push(FieldError::not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]));
    }
    for header in items(&http.http_headers) {
        validation::texts(names::http_header_name(&header.name), &header.name, &path.child("httpHeaders"), errors);
    }
}

/// A number, or the name of one of the container's ports.
fn port(value: &IntOrString, path: &Path<'_>, errors: &mut ErrorList) {
    match value {
        IntOrString::Int(number) => validation::port(*number, path, errors),
        IntOrString::String(name) => validation::texts(names::port_name(name), name, path, errors),
    }
}
