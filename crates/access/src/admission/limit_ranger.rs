//! LimitRanger: defaults and bounds on what containers, pods and claims of a namespace may ask for.

use serde_json::{Value, json};
use wheelhouse_meta::quantity::Quantity;

use super::pod::{containers, text};
use super::resources::{self, Resources};
use super::{Operation, Request};
use crate::lookups::{Answer, Lookups};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Above this a quantity cannot be counted in thousandths.
const MAX_MILLI: i64 = i64::MAX / 1000;

pub(super) fn mutate(request: &Request<'_>, object: &mut Value, lookups: &dyn Lookups) {
    if !request.is("", "pods") || request.operation != Operation::Create {
        return;
    }
    for range in ranges(request, lookups) {
        let (mut requests, mut limits) = (Resources::new(), Resources::new());
        for limit in limits_of(&range, "Container") {
            requests.extend(resources::read(&limit["defaultRequest"]));
            limits.extend(resources::read(&limit["default"]));
        }
        set_defaults(object, &requests, &limits);
    }
}

pub(super) fn validate(request: &Request<'_>, object: &Value, lookups: &dyn Lookups) -> Answer<()> {
    let pods = request.group().is_empty() && request.resource() == "pods";
    let applies = match request.operation {
        Operation::Create => request.is("", "pods") || request.is("", "persistentvolumeclaims"),
        Operation::Update => (pods && request.subresource() == "resize") || request.is("", "persistentvolumeclaims"),
        Operation::Delete | Operation::Connect => false,
    };
    let going = request.old.is_some_and(|old| !old["metadata"]["deletionTimestamp"].is_null());
    if !applies || going {
        return Ok(());
    }
    for range in ranges(request, lookups) {
        let errors = if pods { pod_errors(&range, object) } else { claim_errors(&range, object) };
        if !errors.is_empty() {
            let why = if errors.len() == 1 { errors[0].clone() } else { format!("[{}]", errors.join(", ")) };
            return Err(request.forbidden(Some(object), why));
        }
    }
    Ok(())
}

fn ranges(request: &Request<'_>, lookups: &dyn Lookups) -> Vec<Value> {
    lookups.list("", "limitranges", request.attributes.namespace())
}

fn limits_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |l| text(l, "type") == kind)
}

fn set_defaults(pod: &mut Value, requests: &Resources, limits: &Resources) {
    let mut notes = Vec::new();
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            for (part, defaults, what) in [("requests", requests, "request"), ("limits", limits, "limit")] {
                let mut set = Vec::new();
                for (name, value) in defaults {
                    if container["resources"][part][name].is_null() {
                        container["resources"][part][name] = value.to_string().into();
                        set.push(name.as_str());
                    }
                }
                if !set.is_empty() {
                    notes.push(format!("{} {what} for {word} {}", set.join(", "), text(container, "name")));
                }
            }
        }
    }
    if !notes.is_empty() {
        if !pod["metadata"]["annotations"].is_object() {
            pod["metadata"]["annotations"] = json!({});
        }
        pod["metadata"]["annotations"][ANNOTATION] = format!("LimitRanger plugin set: {}", notes.join("; ")).into();
    }
}

/// The bounds of one entry of a LimitRange.
struct Bounds<'a> {
    kind: &'a str,
    min: Resources,
    max: Resources,
    ratio: Resources,
}

impl<'a> Bounds<'a> {
    fn of(limit: &'a Value) -> Self {
        Self {
            kind: text(limit, "type"),
            min: resources::read(&limit["min"]),
            max: resources::read(&limit["max"]),
            ratio: resources::read(&limit["maxLimitRequestRatio"]),
        }
    }

    fn check(&self, requests: &Resources, limits: &Resources, errors: &mut Vec<String>) {
        let kind = self.kind;
        for (name, bound) in &self.min {
            let place = format!("minimum {name} usage per {kind} is {bound}");
            match (requests.get(name), limits.get(name)) {
                (None, _) => errors.push(format!("{place}.  No request is specified")),
                (Some(request), _) if request < bound => errors.push(format!("{place}, but request is {request}")),
                (Some(_), Some(limit)) if limit < bound => errors.push(format!("{place}, but limit is {limit}")),
                _ => {}
            }
        }
        for (name, bound) in &self.max {
            let place = format!("maximum {name} usage per {kind} is {bound}");
            match (limits.get(name), requests.get(name)) {
                (None, _) => errors.push(format!("{place}.  No limit is specified")),
                (Some(limit), _) if limit > bound => errors.push(format!("{place}, but limit is {limit}")),
                (Some(_), Some(request)) if request > bound => errors.push(format!("{place}, but request is {request}")),
                _ => {}
            }
        }
        for (name, bound) in &self.ratio {
            errors.extend(self.ratio_error(name, bound, requests.get(name), limits.get(name)));
        }
    }

    fn ratio_error(&self, name: &str, bound: &Quantity, request: Option<&Quantity>, limit: Option<&Quantity>) -> Option<String> {
        let place = format!("{name} max limit to request ratio per {} is {bound}", self.kind);
        let Some(request) = request.filter(|q| !q.is_zero()) else {
            return Some(format!("{place}, but no request is specified or request is 0"));
        };
        let Some(limit) = limit.filter(|q| !q.is_zero()) else {
            return Some(format!("{place}, but no limit is specified or limit is 0"));
        };
        let fine = [request, limit, bound].iter().all(|q| q.value() <= MAX_MILLI);
        let number = |q: &Quantity| (if fine { q.milli_value() } else { q.value() }) as f64;
        let observed = number(limit) / number(request);
        let over = if bound.value() <= MAX_MILLI { observed * 1000.0 > bound.milli_value() as f64 } else { observed > bound.value() as f64 };
        over.then(|| format!("{place}, but provided ratio is {observed:.6}"))
    }
}

fn pod_errors(range: &Value, pod: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        let bounds = Bounds::of(limit);
        match bounds.kind {
            "Container" => {
                for container in ["containers", "initContainers"].into_iter().flat_map(|list| containers(pod, list)) {
                    bounds.check(
                        &resources::read(&container["resources"]["requests"]),
                        &resources::read(&container["resources"]["limits"]),
                        &mut errors,
                    );
                }
            }
            "Pod" => bounds.check(&resources::of_pod(pod, "requests"), &resources::of_pod(pod, "limits"), &mut errors),
            _ => {}
        }
    }
    errors
}

/// Claims have requests only.
fn claim_errors(range: &Value, claim: &Value) -> Vec<String> {
    let requests = resources::read(&claim["spec"]["resources"]["requests"]);
    let mut errors = Vec::new();
    for limit in limits_of(range, "PersistentVolumeClaim") {
        let bounds = Bounds::of(limit);
        let mut check = |word: &str, side: &Resources, beyond: &dyn Fn(&Quantity, &Quantity) -> bool| {
            for (name, bound) in side {
                let place = format!("{word} {name} usage per PersistentVolumeClaim is {bound}");
                match requests.get(name) {
                    None => errors.push(format!("{place}.  No request is specified")),
                    Some(request) if beyond(request, bound) => errors.push(format!("{place}, but request is {request}")),
                    Some(_) => {}
                }
            }
        };
        check("minimum", &bounds.min, &|request, bound| request < bound);
        check("maximum", &bounds.max, &|request, bound| request > bound);
    }
    errors
}
