//! What a LimitRange must be.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use wheelhouse_meta::Quantity;
use wheelhouse_meta::validation as names;

use crate::core::pod::validate::{quantity, resources};
use crate::prelude::*;

type Amounts = Option<BTreeMap<String, Text>>;

pub fn limits(object: &LimitRange) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    let path = spec.child("limits");
    let limits = object.spec.as_ref().map(|s| s.limits.as_slice()).unwrap_or_default();
    for (at, limit) in limits.iter().enumerate() {
        let path = path.index(at);
        limit_type(limit, &path.child("type"), &mut errors);
        if limits[..at].iter().any(|l| l.type_ == limit.type_) {
            errors.push(FieldError::duplicate(&path.child("type"), &limit.type_));
        }
        item(limit, &path, &mut errors);
    }
    errors
}

fn limit_type(limit: &LimitRangeItem, path: &Path<'_>, errors: &mut ErrorList) {
    let before = errors.len();
    validation::texts(names::qualified_name(&limit.type_), &limit.type_, path, errors);
    let known = matches!(limit.type_.as_str(), "Pod" | "Container" | "PersistentVolumeClaim");
    if errors.len() == before && !limit.type_.contains('/') && !known {
        errors.push(FieldError::invalid(path, &limit.type_, "must be a standard limit type or fully qualified"));
    }
}

fn item(limit: &LimitRangeItem, path: &Path<'_>, errors: &mut ErrorList) {
    let mut check = |field: &str, amounts: &Amounts| {
        let path = path.child(field);
        for (name, _) in amounts.iter().flatten() {
            match limit.type_.as_str() {
                "Pod" | "Container" => resources::container_resource_name(name, &path.key(name), errors),
                _ => resources::name_is_sound(name, &path.key(name), errors),
            }
        }
    };
    check("max", &limit.max);
    check("min", &limit.min);
    if limit.type_ == "Pod" {
        for (field, amounts) in [("default", &limit.default), ("defaultRequest", &limit.default_request)] {
            if amounts.as_ref().is_some_and(|a| !a.is_empty()) {
                errors.push(FieldError::forbidden(&path.child(field), "may not be specified when `type` is 'Pod'"));
            }
        }
    } else {
        check("default", &limit.default);
        check("defaultRequest", &limit.default_request);
    }
    if limit.type_ == "PersistentVolumeClaim" && get(&limit.min, "storage").is_none() && get(&limit.max, "storage").is_none() {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(&path.child("limits"), why));
    }
    for (name, _) in limit.max_limit_request_ratio.iter().flatten() {
        let path = path.child("maxLimitRequestRatio");
        match limit.type_.as_str() {
            "Pod" | "Container" => resources::container_resource_name(name, &path.key(name), errors),
            _ => resources::name_is_sound(name, &path.key(name), errors),
        }
    }
    let all = [&limit.max, &limit.min, &limit.default, &limit.default_request, &limit.max_limit_request_ratio];
    let keys: BTreeSet<&String> = all.into_iter().flat_map(|a| a.iter().flatten()).map(|(name, _)| name).collect();
    for key in keys {
        bounds(limit, key, path, errors);
    }
}

fn get<'a>(amounts: &'a Amounts, name: &str) -> Option<(Quantity, &'a str)> {
    amounts.as_ref()?.get(name).map(|text| (quantity(text), text.0.as_str()))
}

/// The bounds of one resource against one another.
fn bounds(limit: &LimitRangeItem, key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let (min, max) = (get(&limit.min, key), get(&limit.max, key));
    let is_pod = limit.type_ == "Pod";
    let default = get(&limit.default, key).filter(|_| !is_pod);
    let request = get(&limit.default_request, key).filter(|_| !is_pod);
    let ratio = get(&limit.max_limit_request_ratio, key);
    let mut ordered = |low: &Option<(Quantity, &str)>, high: &Option<(Quantity, &str)>, field: &str, shown_low: bool, words: (&str, &str)| {
        let (Some((low, low_text)), Some((high, high_text))) = (low, high) else { return };
        if low > high {
            let why = format!("{} {low_text} is greater than {} {high_text}", words.0, words.1);
            let shown = if shown_low { *low_text } else { *high_text };
            errors.push(FieldError::invalid(&path.child(field).key(key), shown, why));
        }
    };
    ordered(&min, &max, "min", true, ("min value", "max value"));
    ordered(&min, &request, "defaultRequest", false, ("min value", "default request value"));
    ordered(&request, &max, "defaultRequest", true, ("default request value", "max value"));
    ordered(&request, &default, "defaultRequest", true, ("default request value", "default limit value"));
    ordered(&min, &default, "default", true, ("min value", "default value"));
    ordered(&default, &max, "default", false, ("default value", "max value"));
    let Some((ratio, text)) = ratio else { return };
    let here = path.child("maxLimitRequestRatio");
    let here = here.key(key);
    if ratio.cmp_i64(1).is_lt() {
        errors.push(FieldError::invalid(&here, text, format!("ratio {text} is less than 1")));
    }
    if let (Some((min, _)), Some((max, _))) = (min, max) {
        let most = max.as_f64() / min.as_f64();
        if ratio.as_f64() > most {
            errors.push(FieldError::invalid(&here, text, format!("ratio {text} is greater than max/min = {most:.6}")));
        }
    }
}
