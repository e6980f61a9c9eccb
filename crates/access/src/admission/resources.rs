//! Resource lists and what a whole pod asks for.

use std::collections::BTreeMap;

use serde_json::Value;
use wheelhouse_meta::quantity::Quantity;

use super::pod::{containers, text};

/// A resource list: name to quantity.
pub type Resources = BTreeMap<String, Quantity>;

/// Reads a resource list. Entries that are no quantities are validation's to refuse.
pub fn read(list: &Value) -> Resources {
    list.as_object().into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), Quantity::from_json(value).ok()?))).collect()
}

pub fn add(sum: &mut Resources, more: &Resources) {
    for (name, value) in more {
        match sum.get_mut(name) {
            Some(total) => total.add(value),
            None => {
                sum.insert(name.clone(), value.clone());
            }
        }
    }
}

fn raise(top: &mut Resources, other: &Resources) {
    for (name, value) in other {
        if top.get(name).is_none_or(|known| known < value) {
            top.insert(name.clone(), value.clone());
        }
    }
}

/// What a pod asks for: `part` is `requests` or `limits`. Containers run together; init containers run one after another, those that
/// restart always run on beside everything that starts later (KEP-753). What the pod itself states replaces the sum (KEP-2837).
/// Overhead is not included.
pub fn of_pod(pod: &Value, part: &str) -> Resources {
    let of = |container: &Value| read(&container["resources"][part]);
    let mut total = Resources::new();
    for container in containers(pod, "containers") {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut peak) = (Resources::new(), Resources::new());
    for container in containers(pod, "initContainers") {
        let mut during = of(container);
        if text(container, "restartPolicy") == "Always" {
            add(&mut total, &during);
            add(&mut sidecars, &during);
            during = sidecars.clone();
        } else {
            add(&mut during, &sidecars);
        }
        raise(&mut peak, &during);
    }
    raise(&mut total, &peak);
    total.extend(read(&pod["spec"]["resources"][part]));
    total
}
