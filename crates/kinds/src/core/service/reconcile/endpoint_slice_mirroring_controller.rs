//! `endpointslice-mirroring-controller`: carries Endpoints that users write for services without a selector over to slices, which is all that
//! proxies read.
//!
//! Each set of ports and address family has one slice. The slices go when the Endpoints go, when the service does or gets a selector, and
//! when the Endpoints ask not to be mirrored.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use serde_json::{Value, json};

use super::backends::{self, SERVICES};
use super::slice_packing::{Identity, identity};
use super::slices::{self, MANAGED_BY, PortsKey, SERVICE_NAME, SLICES, deletion, family_of, ports_key};
use super::trigger_time;
use crate::owned::controller_reference;
use crate::plan::{EventNote, EventType, Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::{items, text};
use crate::view::{Key, ObjectChange, ResourceName, View};

const ENDPOINTS: ResourceName = ResourceName::new("", "endpoints");
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Locks of elections in the oldest style.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// `--mirroring-max-endpoints-per-subset`, which is also as much as one Endpoints object is meant to hold.
const MAX_ADDRESSES: usize = 1000;

pub struct EndpointSliceMirroringController;

type Group = (&'static str, PortsKey);

/// What the slices should hold, and what cannot be mirrored.
#[derive(Default)]
struct Wanted {
    groups: BTreeMap<Group, (Vec<EndpointPort>, BTreeMap<Identity, Endpoint>)>,
    invalid: usize,
    skipped: usize,
}

impl Reconciler for EndpointSliceMirroringController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "endpointslice-mirroring-controller"
    }

    fn service_account(&self) -> &'static str {
        "endpointslicemirroring-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let managed = Trigger { resource: SLICES, keys: |_, change: &ObjectChange| slices::services_named(change, MANAGER) };
        vec![Trigger::itself(ENDPOINTS), Trigger::itself(SERVICES), managed]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let existing: Vec<Arc<EndpointSlice>> = slices::managed(view, &key.namespace, &key.name, MANAGER).collect();
        let Some(endpoints) = mirrored(key, view) else {
            plan.operations.extend(existing.iter().map(|slice| deletion(slice)));
            return plan;
        };
        let wanted = Wanted::of(&endpoints);
        let mut by_group: BTreeMap<(String, PortsKey), Vec<Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in existing {
            by_group.entry((slice.address_type.clone(), ports_key(items(&slice.ports)))).or_default().push(slice);
        }
        let (mut create, mut surplus) = (Vec::new(), Vec::new());
        let meta = (labels(&endpoints), annotations(&endpoints));
        for ((family, ports_key), (ports, members)) in wanted.groups {
            let members: Vec<Endpoint> = members.into_values().take(MAX_ADDRESSES).collect();
            let mut slices = by_group.remove(&(family.to_owned(), ports_key)).unwrap_or_default().into_iter();
            match slices.next() {
                Some(slice) if is_right(&slice, &members, &meta) => {}
                Some(slice) => plan.operations.push(update(&slice, &ports, &members, &meta)),
                None => create.push((family, ports, members)),
            }
            surplus.extend(slices);
        }
        surplus.extend(by_group.into_values().flatten());
        let mut names = BTreeSet::new();
        let mut creations = Vec::new();
        for (family, ports, members) in create {
            // A slice that would go becomes one that would come.
            match surplus.iter().position(|slice| slice.address_type == family) {
                Some(at) => plan.operations.push(update(&surplus.remove(at), &ports, &members, &meta)),
                None => creations.push(creation(view, &endpoints, family, &ports, &members, &meta, &mut names)),
            }
        }
        if endpoints.metadata.deletion_timestamp.is_none() && backends::accepts_objects(view, &key.namespace) {
            plan.operations.splice(0..0, creations);
        }
        plan.operations.extend(surplus.iter().map(|slice| deletion(slice)));
        // Told when something is written: a look that finds all in order says nothing.
        if !plan.operations.is_empty() {
            plan.events.extend(complaints(key, &endpoints, wanted.invalid, wanted.skipped));
        }
        plan
    }
}

/// The Endpoints if they are to be mirrored.
fn mirrored(key: &Key, view: &View) -> Option<Arc<Endpoints>> {
    let endpoints = view.get::<Endpoints>(&key.namespace, &key.name)?;
    let service = view.get::<Service>(&key.namespace, &key.name)?;
    let has_selector = service.spec.as_ref()?.selector.as_ref().is_some_and(|selector| !selector.is_empty());
    let meta = &endpoints.metadata;
    let skip = meta.labels.as_ref().is_some_and(|labels| labels.get(SKIP).is_some_and(|value| value == "true"));
    let election = meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEADER));
    (!has_selector && !skip && !election).then_some(endpoints)
}

impl Wanted {
    fn of(endpoints: &Endpoints) -> Self {
        let mut wanted = Self::default();
        for subset in items(&endpoints.subsets) {
            let ports = ports(subset);
            let key = ports_key(&ports);
            let (mut added, mut total) = (0, 0);
            let ready = items(&subset.addresses).iter().map(|address| (address, true));
            let not_ready = items(&subset.not_ready_addresses).iter().map(|address| (address, false));
            for (address, ready) in ready.chain(not_ready) {
                total += 1;
                if added >= MAX_ADDRESSES {
                    continue;
                }
                let Ok(ip) = address.ip.parse::<IpAddr>() else {
                    wanted.invalid += 1;
                    continue;
                };
                added += 1;
                let endpoint = endpoint(address, &ip, ready);
                let group = wanted.groups.entry((family_of(&ip), key.clone())).or_insert_with(|| (ports.clone(), BTreeMap::new()));
                group.1.insert(identity(&endpoint), endpoint);
            }
            wanted.skipped += total - added;
        }
        wanted
    }
}

fn ports(subset: &EndpointSubset) -> Vec<EndpointPort> {
    let ports = items(&subset.ports).iter().map(|port| EndpointPort {
        name: Some(text(&port.name).to_owned()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    ports.collect()
}

fn endpoint(address: &EndpointAddress, ip: &IpAddr, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|hostname| !hostname.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

type Texts = BTreeMap<String, String>;

fn labels(endpoints: &Endpoints) -> Texts {
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), text(&endpoints.metadata.name).to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn annotations(endpoints: &Endpoints) -> Texts {
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| name != trigger_time::ANNOTATION && name != LAST_APPLIED);
    annotations
}

fn is_right(slice: &EndpointSlice, members: &[Endpoint], (labels, annotations): &(Texts, Texts)) -> bool {
    let of = |endpoints: &[Endpoint]| endpoints.iter().map(|endpoint| (identity(endpoint), endpoint.clone())).collect::<BTreeMap<_, _>>();
    slice.metadata.labels.as_ref() == Some(labels)
        && slice.metadata.annotations.clone().unwrap_or_default() == *annotations
        && items(&slice.endpoints).len() == members.len()
        && of(items(&slice.endpoints)) == of(members)
}

fn update(slice: &EndpointSlice, ports: &[EndpointPort], members: &[Endpoint], (labels, annotations): &(Texts, Texts)) -> Operation {
    let mut object = serde_json::to_value(slice).expect("a slice is plain data");
    object["ports"] = json!(ports);
    object["endpoints"] = json!(members);
    object["metadata"]["labels"] = json!(labels);
    object["metadata"]["annotations"] = if annotations.is_empty() { Value::Null } else { json!(annotations) };
    Operation::Update { resource: SLICES, subresource: "", object }
}

fn creation(
    view: &View,
    endpoints: &Endpoints,
    family: &str,
    ports: &[EndpointPort],
    members: &[Endpoint],
    (labels, annotations): &(Texts, Texts),
    names: &mut BTreeSet<String>,
) -> Operation {
    let meta = &endpoints.metadata;
    let namespace = text(&meta.namespace);
    let base = format!("{}-", text(&meta.name));
    let name = slices::free_name(view, namespace, &base, &[text(&meta.uid), family], names);
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "generateName": base, "namespace": namespace, "labels": labels, "annotations": annotations,
            "ownerReferences": [controller_reference("v1", "Endpoints", meta)],
        },
        "addressType": family, "ports": ports, "endpoints": members,
    });
    Operation::Create { resource: SLICES, namespace: namespace.to_owned(), object }
}

fn complaints(key: &Key, endpoints: &Endpoints, invalid: usize, skipped: usize) -> Vec<EventNote> {
    let note = |reason: &str, message: String| EventNote {
        api_version: "v1".into(),
        kind: "Endpoints".into(),
        key: key.clone(),
        uid: text(&endpoints.metadata.uid).to_owned(),
        kind_of_event: EventType::Warning,
        reason: reason.into(),
        message,
    };
    let mut notes = Vec::new();
    if invalid > 0 {
        notes.push(note("InvalidIPAddress", format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices")));
    }
    if skipped > invalid {
        let limit = format!("A max of {MAX_ADDRESSES} addresses can be mirrored to EndpointSlices per Endpoints subset.");
        notes.push(note("TooManyAddressesToMirror", format!("{limit} {skipped} addresses were skipped")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    const SERVICE: &str =
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"db","namespace":"a","uid":"s"},"spec":{"clusterIP":"10.96.0.9"}}"#;

    fn endpoints(meta: &str, subsets: &str) -> String {
        format!(r#"{{"apiVersion":"v1","kind":"Endpoints","metadata":{{"name":"db","namespace":"a","uid":"e"{meta}}},"subsets":[{subsets}]}}"#)
    }

    const SUBSET: &str = r#"{"addresses":[{"ip":"192.0.2.1"},{"ip":"2001:db8::1"}],"notReadyAddresses":[{"ip":"192.0.2.2","hostname":"h"}],
        "ports":[{"name":"sql","port":5432,"protocol":"TCP"}]}"#;

    fn plan(world: &World) -> Plan {
        EndpointSliceMirroringController.reconcile(&Key::new("a", "db"), world.view(), &context(), &mut ())
    }

    fn carried_out(mut world: World, plan: &Plan) -> World {
        for operation in &plan.operations {
            let (Operation::Create { object, .. } | Operation::Update { object, .. }) = operation else { panic!("{operation:?}") };
            let mut object = object.clone();
            object["metadata"]["uid"] = object["metadata"]["name"].clone();
            world.put(object);
        }
        world
    }

    #[test]
    fn each_family_is_mirrored_into_one_slice() {
        let noted = r#","labels":{"team":"x"},"annotations":{"mine":"1","kubectl.kubernetes.io/last-applied-configuration":"{}"}"#;
        let world = World::new().with(SERVICE).with(&endpoints(noted, SUBSET));
        let first = plan(&world);
        let [Operation::Create { object: four, .. }, Operation::Create { object: six, .. }] = &first.operations[..] else { panic!("{first:?}") };
        assert_eq!(
            four["endpoints"],
            json!([
                {"addresses": ["192.0.2.1"], "conditions": {"ready": true}},
                {"addresses": ["192.0.2.2"], "conditions": {"ready": false}, "hostname": "h"},
            ])
        );
        assert_eq!((&six["addressType"], &six["endpoints"][0]["addresses"][0]), (&json!("IPv6"), &json!("2001:db8::1")));
        assert_eq!(four["metadata"]["annotations"], json!({"mine": "1"}));
        assert_eq!(four["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"], MANAGER);
        assert_eq!(four["metadata"]["ownerReferences"][0]["kind"], "Endpoints");
        let world = carried_out(world, &first);
        assert!(plan(&world).is_empty());
        let world = world.with(&endpoints(noted, &SUBSET.replace("5432", "3306")));
        let moved = plan(&world);
        assert!(moved.operations.iter().all(|operation| matches!(operation, Operation::Update { .. })), "slices are used again: {moved:?}");
        assert!(plan(&carried_out(world, &moved)).is_empty());
    }

    #[test]
    fn what_is_not_to_be_mirrored_is_cleaned_up() {
        let world = World::new().with(SERVICE).with(&endpoints("", SUBSET));
        let first = plan(&world);
        let world = carried_out(world, &first);
        let selecting = SERVICE.replace(r#""spec":{"#, r#""spec":{"selector":{"app":"db"},"#);
        let gone = plan(&world.with(&selecting));
        assert!(gone.operations.len() == 2 && gone.operations.iter().all(|operation| matches!(operation, Operation::Delete { .. })));
        let skipped = endpoints(r#","labels":{"endpointslice.kubernetes.io/skip-mirror":"true"}"#, SUBSET);
        assert!(plan(&World::new().with(SERVICE).with(&skipped)).is_empty());
        assert!(plan(&World::new().with(&endpoints("", SUBSET))).is_empty(), "without a service there is nothing to reach");
    }

    #[test]
    fn addresses_over_the_limit_are_told_of() {
        let addresses: Vec<String> = (0..1002).map(|n| format!(r#"{{"ip":"10.0.{}.{}"}}"#, n / 250, n % 250)).collect();
        let subset = format!(r#"{{"addresses":[{{"ip":"nonsense"}},{}],"ports":[{{"port":1}}]}}"#, addresses.join(","));
        let plan = plan(&World::new().with(SERVICE).with(&endpoints("", &subset)));
        let [Operation::Create { object, .. }] = &plan.operations[..] else { panic!("one slice") };
        assert_eq!(object["endpoints"].as_array().unwrap().len(), 1000);
        assert_eq!(plan.events.iter().map(|event| event.reason.as_str()).collect::<Vec<_>>(), ["InvalidIPAddress", "TooManyAddressesToMirror"]);
    }
}
