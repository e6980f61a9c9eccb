//! What a ServiceCIDR must be.

use k8s_openapi::api::networking::v1::ServiceCIDR;
use wheelhouse_meta::validation as names;

use crate::prelude::*;

/// One range of each family.
const MAX_RANGES: usize = 2;

const ONE_OF_EACH: &str = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";

pub fn ranges(object: &ServiceCIDR) -> &[String] {
    object.spec.as_ref().map(|s| items(&s.cidrs)).unwrap_or_default()
}

pub fn create(object: &ServiceCIDR) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    let path = spec.child("cidrs");
    let ranges = ranges(object);
    let shown = || BadValue::typed(&ranges);
    if ranges.is_empty() {
        errors.push(FieldError::required(&path, "at least one CIDR required"));
    } else if ranges.len() > MAX_RANGES {
        errors.push(FieldError::invalid(&path, shown(), format!("may only hold up to {MAX_RANGES} values")));
    } else if ranges.len() == MAX_RANGES && !are_dual_stack(ranges) {
        errors.push(FieldError::invalid(&path, shown(), ONE_OF_EACH));
    } else {
        for (at, range) in ranges.iter().enumerate() {
            errors.extend(names::cidr_strict(range, &path.index(at)));
        }
    }
    errors
}

fn are_dual_stack(ranges: &[String]) -> bool {
    let is_v4: Vec<Option<bool>> = ranges.iter().map(|range| names::parse_cidr(range).map(|(address, _)| address.is_ipv4())).collect();
    is_v4.iter().all(Option::is_some) && is_v4.contains(&Some(true)) && is_v4.contains(&Some(false))
}

/// The only change is a second family.
pub fn update(new: &ServiceCIDR, old: &ServiceCIDR) -> ErrorList {
    let (is, was) = (ranges(new), ranges(old));
    if is == was {
        return ErrorList::new();
    }
    if was.len() == 1 && is.len() == MAX_RANGES && is[0] == was[0] {
        return create(new);
    }
    let spec = Path::new("spec");
    vec![FieldError::immutable(&spec.child("cidrs"), BadValue::typed(&is))].into()
}
