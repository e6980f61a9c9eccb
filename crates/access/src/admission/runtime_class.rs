//! RuntimeClass: overhead and scheduling of a pod's runtime.

use serde_json::Value;

use super::pod::{list_mut, text};
use super::{Operation, Request};
use crate::lookups::{Answer, Lookups};

pub(super) fn mutate(request: &Request<'_>, pod: &mut Value, lookups: &dyn Lookups) -> Answer<()> {
    if !request.is("", "pods") || request.operation != Operation::Create {
        return Ok(());
    }
    let Some(class) = find(request, pod, lookups)? else { return Ok(()) };
    let overhead = &class["overhead"]["podFixed"];
    if overhead.is_object() {
        if let Some(given) = pod["spec"]["overhead"].as_object().filter(|o| !o.is_empty())
            && !same_quantities(given, overhead)
        {
            return Err(request.forbidden(Some(pod), "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"));
        }
        pod["spec"]["overhead"] = overhead.clone();
    }
    let scheduling = &class["scheduling"];
    for (key, wanted) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let given = &pod["spec"]["nodeSelector"][key];
        if let Some(given) = given.as_str().filter(|given| Some(*given) != wanted.as_str()) {
            let wanted = wanted.as_str().unwrap_or_default();
            let why = format!("conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}");
            return Err(request.forbidden(Some(pod), why));
        }
        pod["spec"]["nodeSelector"][key] = wanted.clone();
    }
    for toleration in scheduling["tolerations"].as_array().into_iter().flatten() {
        let list = list_mut(&mut pod["spec"], "tolerations");
        if !list.contains(toleration) {
            list.push(toleration.clone());
        }
    }
    Ok(())
}

pub(super) fn validate(request: &Request<'_>, pod: &Value, lookups: &dyn Lookups) -> Answer<()> {
    if !request.is("", "pods") || request.operation != Operation::Create {
        return Ok(());
    }
    let class = find(request, pod, lookups)?;
    let given = pod["spec"]["overhead"].as_object().filter(|o| !o.is_empty());
    let defined = class.as_ref().map(|c| &c["overhead"]["podFixed"]).filter(|o| o.is_object());
    match (given, defined) {
        (Some(_), None) => Err(request.forbidden(Some(pod), "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")),
        (Some(given), Some(defined)) if !same_quantities(given, defined) => {
            Err(request.forbidden(Some(pod), "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
        }
        _ => Ok(()),
    }
}

fn find(request: &Request<'_>, pod: &Value, lookups: &dyn Lookups) -> Answer<Option<Value>> {
    let name = text(&pod["spec"], "runtimeClassName");
    if name.is_empty() {
        return Ok(None);
    }
    let class = lookups.get("node.k8s.io", "runtimeclasses", "", name);
    class.map(Some).ok_or_else(|| {
        let name = wheelhouse_meta::gotext::quote(name);
        request.forbidden(Some(pod), format!("pod rejected: RuntimeClass {name} not found"))
    })
}

fn same_quantities(a: &serde_json::Map<String, Value>, b: &Value) -> bool {
    let quantity = |v: &Value| wheelhouse_meta::quantity::Quantity::from_json(v).ok();
    b.as_object()
        .is_some_and(|b| a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| quantity(value) == quantity(other))))
}
