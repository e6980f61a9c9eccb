//! What a claim asks for. Claims have it, and templates of claims.

use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceClaimConfiguration, DeviceConstraint, DeviceRequest, DeviceSelector, DeviceSubRequest, ExactDeviceRequest,
    OpaqueDeviceConfiguration,
};
use wheelhouse_meta::validation as meta;

use super::{lists, names, taints};
use crate::core::pod::defaults::or_text;
use crate::prelude::*;

/// Lengths of lists.
const MAX_REQUESTS: usize = 32;
const MAX_SUBREQUESTS: usize = 8;
const MAX_CONSTRAINTS: usize = 32;
pub const MAX_SELECTORS: usize = 32;
pub const MAX_CONFIGURATIONS: usize = 32;

/// In bytes.
const MAX_EXPRESSION: usize = 10 * 1024;
const MAX_PARAMETERS: usize = 10 * 1024;

pub fn apply_defaults(claim: &mut DeviceClaim) {
    let mode = |mode: &mut Option<String>, count: &mut Option<i64>| {
        or_text(mode, "ExactCount");
        if mode.as_deref() == Some("ExactCount") && count.unwrap_or_default() == 0 {
            *count = Some(1);
        }
    };
    for request in claim.requests.iter_mut().flatten() {
        if let Some(exactly) = request.exactly.as_mut() {
            mode(&mut exactly.allocation_mode, &mut exactly.count);
        }
        for sub in request.first_available.iter_mut().flatten() {
            mode(&mut sub.allocation_mode, &mut sub.count);
        }
        let exactly = request.exactly.iter_mut().filter_map(|e| e.tolerations.as_mut());
        let subs = request.first_available.iter_mut().flatten().filter_map(|s| s.tolerations.as_mut());
        for toleration in exactly.chain(subs).flatten() {
            or_text(&mut toleration.operator, "Equal");
        }
    }
}

pub fn validate(claim: &DeviceClaim, path: &Path<'_>, errors: &mut ErrorList) {
    let requests = items(&claim.requests);
    lists::set(requests, MAX_REQUESTS, |r| r.name.clone(), &path.child("requests"), errors, request);
    lists::list(items(&claim.constraints), MAX_CONSTRAINTS, &path.child("constraints"), errors, |one, path, errors| {
        constraint(one, requests, path, errors);
    });
    lists::list(items(&claim.config), MAX_CONFIGURATIONS, &path.child("config"), errors, |one, path, errors| {
        claim_configuration(one, requests, path, errors);
    });
}

fn request(request: &DeviceRequest, path: &Path<'_>, errors: &mut ErrorList) {
    names::label(&request.name, &path.child("name"), errors);
    let subs = items(&request.first_available);
    match (&request.exactly, subs.is_empty()) {
        (None, true) => errors.push(FieldError::required(path, "exactly one of `exactly` or `firstAvailable` is required")),
        (Some(_), false) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(FieldError::invalid(path, BadValue::Null, why));
        }
        (Some(exactly), true) => exact(exactly, &path.child("exactly"), errors),
        (None, false) => lists::set(subs, MAX_SUBREQUESTS, |s| s.name.clone(), &path.child("firstAvailable"), errors, sub_request),
    }
}

fn exact(request: &ExactDeviceRequest, path: &Path<'_>, errors: &mut ErrorList) {
    class(&request.device_class_name, &path.child("deviceClassName"), errors);
    selectors(items(&request.selectors), &path.child("selectors"), errors);
    amount(text(&request.allocation_mode), request.count.unwrap_or_default(), path, errors);
    taints::tolerations(items(&request.tolerations), &path.child("tolerations"), errors);
}

fn sub_request(request: &DeviceSubRequest, path: &Path<'_>, errors: &mut ErrorList) {
    names::label(&request.name, &path.child("name"), errors);
    class(&request.device_class_name, &path.child("deviceClassName"), errors);
    selectors(items(&request.selectors), &path.child("selectors"), errors);
    amount(text(&request.allocation_mode), request.count.unwrap_or_default(), path, errors);
    taints::tolerations(items(&request.tolerations), &path.child("tolerations"), errors);
}

fn class(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        validation::texts(meta::dns1123_subdomain(name), name, path, errors);
    }
}

fn amount(mode: &str, count: i64, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("count");
    match mode {
        "All" if count != 0 => {
            errors.push(FieldError::invalid(&here, count, "must not be specified when allocationMode is 'All'"));
        }
        "All" => {}
        "ExactCount" if count <= 0 => errors.push(FieldError::invalid(&here, count, "must be greater than zero")),
        "ExactCount" => {}
        other => errors.push(FieldError::not_supported(&path.child("allocationMode"), other, &["All", "ExactCount"])),
    }
}

/// Expressions that a device must satisfy.
pub fn selectors(selectors: &[DeviceSelector], path: &Path<'_>, errors: &mut ErrorList) {
    lists::list(selectors, MAX_SELECTORS, path, errors, |selector, path, errors| match &selector.cel {
        None => errors.push(FieldError::required(&path.child("cel"), "")),
        Some(cel) if cel.expression.len() > MAX_EXPRESSION => {
            errors.push(FieldError::too_long(&path.child("cel").child("expression"), MAX_EXPRESSION));
        }
        Some(_) => {}
    });
}

fn constraint(constraint: &DeviceConstraint, requests: &[DeviceRequest], path: &Path<'_>, errors: &mut ErrorList) {
    references(items(&constraint.requests), requests, &path.child("requests"), errors);
    match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(name), _) => names::fully_qualified(name, &path.child("matchAttribute"), errors),
        (None, Some(name)) => names::fully_qualified(name, &path.child("distinctAttribute"), errors),
        (None, None) => {
            let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
            errors.push(FieldError::required(path, why));
        }
    }
}

fn claim_configuration(configuration: &DeviceClaimConfiguration, requests: &[DeviceRequest], path: &Path<'_>, errors: &mut ErrorList) {
    references(items(&configuration.requests), requests, &path.child("requests"), errors);
    opaque(&configuration.opaque, &path.child("opaque"), errors);
}

pub fn opaque(opaque: &Option<OpaqueDeviceConfiguration>, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(opaque) = opaque else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    names::driver(&opaque.driver, &path.child("driver"), errors);
    lists::raw(&opaque.parameters.0, MAX_PARAMETERS, &path.child("parameters"), errors);
}

/// Each names a request of the claim, or one of its alternatives: `request/alternative`.
pub fn references(list: &[String], requests: &[DeviceRequest], path: &Path<'_>, errors: &mut ErrorList) {
    lists::set(list, MAX_REQUESTS, Clone::clone, path, errors, |name, path, errors| reference(name, requests, path, errors));
}

pub fn reference(name: &str, requests: &[DeviceRequest], path: &Path<'_>, errors: &mut ErrorList) {
    const WHY: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let parts: Vec<&str> = name.split('/').collect();
    let found = match parts.as_slice() {
        [request] => requests.iter().any(|r| r.name == *request),
        [request, sub] => requests.iter().any(|r| r.name == *request && items(&r.first_available).iter().any(|s| s.name == *sub)),
        _ => {
            errors.push(FieldError::invalid(path, name, WHY));
            return;
        }
    };
    for part in parts {
        names::label(part, path, errors);
    }
    if !found {
        errors.push(FieldError::invalid(path, name, WHY));
    }
}
