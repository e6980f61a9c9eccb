//! Which IP families a service gets of those that its cluster has.
//!
//! The API server calls this in the transaction that allocates, after validation: families hang on the cluster, not on the object alone.

use k8s_openapi::api::core::v1::Service;

use super::{HEADLESS, is_headless, needs_cluster_ip};
use crate::prelude::*;

/// Fills `ipFamilies` and `ipFamilyPolicy`, or says why the cluster cannot do what is asked. `cluster` holds the cluster's families in order
/// of preference, `IPv4` or `IPv6`, at least one.
pub fn assign(object: &mut Service, cluster: &[&str]) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(spec) = object.spec.as_mut().filter(|s| needs_cluster_ip(s)) else { return errors };
    let path = Path::new("spec");
    let families = path.child("ipFamilies");
    for (at, family) in items(&spec.ip_families).iter().enumerate() {
        if !cluster.contains(&family.as_str()) {
            errors.push(FieldError::invalid(&families.index(at), family, "not configured on this cluster"));
        }
    }
    let dual = cluster.len() > 1;
    if text(&spec.ip_family_policy) == "RequireDualStack" && !dual {
        // A headless service without a selector lists addresses of its owner's making, whatever the cluster's.
        let free = is_headless(spec) && spec.selector.as_ref().is_none_or(|s| s.is_empty());
        if !free {
            let why = "this cluster is not configured for dual-stack services";
            errors.push(FieldError::invalid(&path.child("ipFamilyPolicy"), "RequireDualStack", why));
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    let headless = text(&spec.cluster_ip) == HEADLESS;
    let selects_nothing = spec.selector.as_ref().is_none_or(|s| s.is_empty());
    if headless && selects_nothing && spec.ip_family_policy.is_none() && items(&spec.ip_families).is_empty() {
        spec.ip_family_policy = Some("RequireDualStack".to_owned());
    }
    let policy = spec.ip_family_policy.get_or_insert_with(|| "SingleStack".to_owned()).clone();
    let list = spec.ip_families.get_or_insert_default();
    if list.is_empty() {
        list.push(cluster[0].to_owned());
    }
    let want_two = match policy.as_str() {
        "RequireDualStack" => true,
        "PreferDualStack" => dual,
        _ => false,
    };
    if want_two && list.len() == 1 {
        list.push(if list[0] == "IPv4" { "IPv6" } else { "IPv4" }.to_owned());
    }
    errors
}
