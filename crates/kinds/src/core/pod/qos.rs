//! The quality-of-service class: how a node treats a pod when it runs short.

use k8s_openapi::api::core::v1::PodSpec;
use wheelhouse_meta::Quantity;

use super::validate::quantity;
use crate::validation::items;

/// Only these two decide.
const COMPUTE: [&str; 2] = ["cpu", "memory"];

type Sums = Vec<(&'static str, Quantity)>;

/// `Guaranteed` when every container limits CPU and memory and requests as much, `BestEffort` when nothing is said, else `Burstable`.
pub fn qos_class(spec: &PodSpec) -> &'static str {
    let containers = || spec.containers.iter().chain(items(&spec.init_containers)).map(|c| c.resources.as_ref());
    let pod_level = spec.resources.as_ref().filter(|r| r.limits.is_some() || r.requests.is_some());
    let all: Vec<_> = if let Some(resources) = pod_level { vec![Some(resources)] } else { containers().collect() };
    let amount = |at: Option<&std::collections::BTreeMap<String, _>>, name: &str| at.and_then(|m| m.get(name)).map(quantity).filter(|q| q.sign() > 0);
    let (mut anything, mut guaranteed) = (false, true);
    let (mut requests, mut limits) = (Sums::new(), Sums::new());
    let add = |sums: &mut Sums, name: &'static str, amount: &Quantity| match sums.iter_mut().find(|s| s.0 == name) {
        Some((_, sum)) => sum.add(amount),
        None => sums.push((name, amount.clone())),
    };
    for resources in all {
        for name in COMPUTE {
            let request = amount(resources.and_then(|r| r.requests.as_ref()), name);
            let limit = amount(resources.and_then(|r| r.limits.as_ref()), name);
            anything |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some();
            request.iter().for_each(|r| add(&mut requests, name, r));
            limit.iter().for_each(|l| add(&mut limits, name, l));
        }
    }
    if !anything {
        return "BestEffort";
    }
    if guaranteed && requests.iter().all(|r| limits.contains(r)) && requests.len() == limits.len() { "Guaranteed" } else { "Burstable" }
}
