//! What the status of a ResourceClaim must be.

use k8s_openapi::api::resource::v1::{
    AllocatedDeviceStatus, AllocationResult, DeviceAllocationConfiguration, DeviceRequest, DeviceRequestAllocationResult, NetworkDeviceData,
    ResourceClaim, ResourceClaimConsumerReference,
};

use crate::core::pod::validate::scheduling;
use crate::prelude::*;
use crate::resource::{claim, lists, names, taints};

const ALLOCATION: &str = "io.k8s.api.resource.v1.AllocationResult";

/// Lengths of lists. Configurations come from the class and from the claim.
const MAX_RESERVED: usize = 256;
const MAX_RESULTS: usize = 32;
const MAX_CONFIGURATIONS: usize = 2 * claim::MAX_CONFIGURATIONS;
const MAX_CONDITIONS: usize = 8;
const MAX_ADDRESSES: usize = 16;

/// In bytes.
const MAX_DATA: usize = 10 * 1024;
const MAX_INTERFACE: usize = 256;
const MAX_HARDWARE_ADDRESS: usize = 128;

pub fn status(new: &ResourceClaim, old: &ResourceClaim) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let (status, before) = (new.status.clone().unwrap_or_default(), old.status.clone().unwrap_or_default());
    let devices = new.spec.devices.clone().unwrap_or_default();
    let (reserved, here) = (items(&status.reserved_for), path.child("reservedFor"));
    lists::set(reserved, MAX_RESERVED, |r| r.uid.clone(), &here, &mut errors, consumer);
    let results = status.allocation.as_ref().and_then(|a| a.devices.as_ref()).map(|d| items(&d.results)).unwrap_or_default();
    let given: Vec<String> = results.iter().map(|r| device_id(&r.driver, &r.pool, &r.device, &r.share_id)).collect();
    let key = |d: &AllocatedDeviceStatus| device_id(&d.driver, &d.pool, &d.device, &d.share_id);
    lists::set(items(&status.devices), usize::MAX, key, &path.child("devices"), &mut errors, |one, path, errors| {
        device(one, &given, path, errors);
    });
    if !reserved.is_empty() {
        if status.allocation.is_none() {
            errors.push(FieldError::forbidden(&here, "may not be specified when `allocated` is not set"));
        } else if new.metadata.deletion_timestamp.is_some() && reserved.iter().any(|r| !items(&before.reserved_for).contains(r)) {
            let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(FieldError::forbidden(&here, why));
        }
    }
    let here = path.child("allocation");
    match (&status.allocation, &before.allocation) {
        (Some(is), Some(was)) if is != was => errors.push(FieldError::immutable(&here, validation::untagged(is, ALLOCATION))),
        (Some(is), None) => allocation(is, items(&devices.requests), &here, &mut errors),
        _ => {}
    }
    errors
}

fn device_id(driver: &str, pool: &str, device: &str, share: &Option<String>) -> String {
    match share {
        Some(share) => format!("{driver}/{pool}/{device}/{share}"),
        None => format!("{driver}/{pool}/{device}"),
    }
}

fn consumer(consumer: &ResourceClaimConsumerReference, path: &Path<'_>, errors: &mut ErrorList) {
    for (field, value) in [("resource", &consumer.resource), ("name", &consumer.name), ("uid", &consumer.uid)] {
        if value.is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        }
    }
}

fn allocation(allocation: &AllocationResult, requests: &[DeviceRequest], path: &Path<'_>, errors: &mut ErrorList) {
    let (devices, here) = (allocation.devices.clone().unwrap_or_default(), path.child("devices"));
    lists::list(items(&devices.results), MAX_RESULTS, &here.child("results"), errors, |one, path, errors| result(one, requests, path, errors));
    lists::list(items(&devices.config), MAX_CONFIGURATIONS, &here.child("config"), errors, |one, path, errors| {
        configuration(one, requests, path, errors);
    });
    if let Some(selector) = &allocation.node_selector {
        scheduling::node_selector(selector, &path.child("nodeSelector"), errors);
    }
}

fn result(result: &DeviceRequestAllocationResult, requests: &[DeviceRequest], path: &Path<'_>, errors: &mut ErrorList) {
    claim::reference(&result.request, requests, &path.child("request"), errors);
    names::driver(&result.driver, &path.child("driver"), errors);
    names::pool(&result.pool, &path.child("pool"), errors);
    names::label(&result.device, &path.child("device"), errors);
    taints::binding_conditions(&result.binding_conditions, &result.binding_failure_conditions, path, errors);
    taints::tolerations(items(&result.tolerations), &path.child("tolerations"), errors);
    if let Some(share) = &result.share_id {
        names::uuid(share, &path.child("shareID"), errors);
    }
}

fn configuration(configuration: &DeviceAllocationConfiguration, requests: &[DeviceRequest], path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("source");
    match configuration.source.as_str() {
        "" => errors.push(FieldError::required(&here, "")),
        "FromClaim" | "FromClass" => {}
        other => errors.push(FieldError::not_supported(&here, other, &["FromClaim", "FromClass"])),
    }
    claim::references(items(&configuration.requests), requests, &path.child("requests"), errors);
    claim::opaque(&configuration.opaque, &path.child("opaque"), errors);
}

/// What a driver reports about a device that was given.
fn device(device: &AllocatedDeviceStatus, given: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    names::driver(&device.driver, &path.child("driver"), errors);
    names::pool(&device.pool, &path.child("pool"), errors);
    names::label(&device.device, &path.child("device"), errors);
    if let Some(share) = &device.share_id {
        names::uuid(share, &path.child("shareID"), errors);
    }
    let id = device_id(&device.driver, &device.pool, &device.device, &device.share_id);
    if !given.contains(&id) {
        errors.push(FieldError::invalid(path, id, "must be an allocated device in the claim"));
    }
    let conditions = items(&device.conditions).len();
    if conditions > MAX_CONDITIONS {
        errors.push(FieldError::too_many(&path.child("conditions"), conditions, MAX_CONDITIONS));
    }
    if let Some(data) = device.data.as_ref().filter(|d| !d.0.is_null()) {
        lists::raw(&data.0, MAX_DATA, &path.child("data"), errors);
    }
    if let Some(network) = &device.network_data {
        self::network(network, &path.child("networkData"), errors);
    }
}

fn network(network: &NetworkDeviceData, path: &Path<'_>, errors: &mut ErrorList) {
    for (field, value, max) in
        [("interfaceName", &network.interface_name, MAX_INTERFACE), ("hardwareAddress", &network.hardware_address, MAX_HARDWARE_ADDRESS)]
    {
        if text(value).len() > max {
            errors.push(FieldError::too_long(&path.child(field), max));
        }
    }
    lists::set(items(&network.ips), MAX_ADDRESSES, Clone::clone, &path.child("ips"), errors, |address, path, errors| {
        let parsed = address.split_once('/').and_then(|(ip, length)| {
            let ip: std::net::IpAddr = ip.parse().ok()?;
            let max = if ip.is_ipv4() { 32 } else { 128 };
            length.parse::<u8>().ok().filter(|l| *l <= max)
        });
        if parsed.is_none() {
            let why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
            errors.push(FieldError::invalid(path, address, why));
        }
    });
}
