//! EndpointSlices as their controllers look at them: found by labels, grouped by ports, named by their owners.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};

use crate::owned::generated_name;
use crate::plan::{DeleteOptions, Operation};
use crate::validation::text;
use crate::view::{Key, ObjectChange, ResourceName, View};

pub const SLICES: ResourceName = ResourceName::new("discovery.k8s.io", "endpointslices");
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// Name, protocol, number and application protocol of each port, sorted: endpoints with the same ports share slices.
pub type PortsKey = Vec<(String, String, Option<i32>, String)>;

pub fn ports_key(ports: &[EndpointPort]) -> PortsKey {
    let owned = |value: &Option<String>| text(value).to_owned();
    let mut key: PortsKey = ports.iter().map(|port| (owned(&port.name), owned(&port.protocol), port.port, owned(&port.app_protocol))).collect();
    key.sort();
    key
}

pub fn family_of(ip: &IpAddr) -> &'static str {
    if ip.is_ipv6() { "IPv6" } else { "IPv4" }
}

/// The service's slices that `manager` looks after and that are not on their way out.
pub fn managed<'a>(view: &'a View, namespace: &str, service: &'a str, manager: &'a str) -> impl Iterator<Item = Arc<EndpointSlice>> + use<'a> {
    let records = view.records(&SLICES, Some(namespace));
    let ours =
        records.filter(move |slice| !slice.deleting() && slice.label(MANAGED_BY) == Some(manager) && slice.label(SERVICE_NAME) == Some(service));
    ours.filter_map(|record| record.typed::<EndpointSlice>())
}

/// The services whose slices of `manager` the change touches.
pub fn services_named(change: &ObjectChange, manager: &str) -> Vec<Key> {
    let sides = [&change.old, &change.new].into_iter().flatten().filter(|slice| slice.label(MANAGED_BY) == Some(manager));
    let mut keys: Vec<Key> = sides.filter_map(|slice| Some(Key::new(slice.key.namespace.clone(), slice.label(SERVICE_NAME)?))).collect();
    keys.dedup();
    keys
}

pub fn deletion(slice: &EndpointSlice) -> Operation {
    let key = Key::new(text(&slice.metadata.namespace), text(&slice.metadata.name));
    let options = DeleteOptions { uid: slice.metadata.uid.clone(), ..DeleteOptions::default() };
    Operation::Delete { resource: SLICES, key, options }
}

/// The first of the owner's own sequence of names that nobody has, neither in the view nor in `names`, which it joins.
pub fn free_name(view: &View, namespace: &str, base: &str, seed: &[&str; 2], names: &mut BTreeSet<String>) -> String {
    let mut number = 0usize;
    loop {
        let name = generated_name(base, &[seed[0], seed[1], &number.to_string()]);
        let taken = view.record(&SLICES, &Key::new(namespace, name.as_str())).is_some();
        if !taken && names.insert(name.clone()) {
            return name;
        }
        number += 1;
    }
}
