//! What requests may leave out of a Service, and what a change of type gives back.

use k8s_openapi::api::core::v1::{Service, ServiceSpec, ServiceStatus};

use super::{is_external, needs_cluster_ip, needs_health_check_port, needs_node_port};
use crate::prelude::*;

pub fn create(object: &mut Service) {
    object.status = Some(ServiceStatus::default());
    if let Some(spec) = object.spec.as_mut() {
        mirror_cluster_ip(spec, None);
    }
}

pub fn update(new: &mut Service, old: &Service) {
    new.status.clone_from(&old.status);
    let (Some(new), Some(old)) = (new.spec.as_mut(), old.spec.as_ref()) else { return };
    mirror_cluster_ip(new, Some(old));
    keep_allocated(new, old);
    drop_what_the_type_lacks(new, old);
}

/// A client that knows only the single address leaves the list alone, so the list follows.
fn mirror_cluster_ip(new: &mut ServiceSpec, old: Option<&ServiceSpec>) {
    let single = text(&new.cluster_ip).to_owned();
    let Some(old) = old else {
        if !single.is_empty() && items(&new.cluster_ips).is_empty() {
            new.cluster_ips = Some(vec![single]);
        }
        return;
    };
    let was = text(&old.cluster_ip);
    let list_follows = items(&new.cluster_ips) == items(&old.cluster_ips);
    if list_follows && was != single {
        new.cluster_ips = if single.is_empty() { None } else { Some(vec![single]) };
    }
}

/// What was allocated and is left out of an update stays.
fn keep_allocated(new: &mut ServiceSpec, old: &ServiceSpec) {
    if needs_cluster_ip(old) && needs_cluster_ip(new) {
        if text(&new.cluster_ip).is_empty() {
            new.cluster_ip.clone_from(&old.cluster_ip);
        }
        if items(&new.cluster_ips).is_empty() && new.cluster_ip == old.cluster_ip {
            new.cluster_ips.clone_from(&old.cluster_ips);
        }
        if new.ip_families.is_none() {
            new.ip_families.clone_from(&old.ip_families);
        }
        if new.ip_family_policy.is_none() {
            new.ip_family_policy.clone_from(&old.ip_family_policy);
        }
    }
    if needs_node_port(old) && needs_node_port(new) {
        let mut taken: Vec<i32> = items(&new.ports).iter().filter_map(|p| p.node_port).collect();
        for port in new.ports.iter_mut().flatten().filter(|p| p.node_port.unwrap_or_default() == 0) {
            let same = items(&old.ports).iter().find(|o| o.port == port.port && o.protocol == port.protocol);
            if let Some(number) = same.and_then(|o| o.node_port).filter(|n| !taken.contains(n)) {
                port.node_port = Some(number);
                taken.push(number);
            }
        }
    }
    if needs_health_check_port(old) && needs_health_check_port(new) && new.health_check_node_port.unwrap_or_default() == 0 {
        new.health_check_node_port = old.health_check_node_port;
    }
}

/// A client that changes only the type need not know which fields went with the old one.
fn drop_what_the_type_lacks(new: &mut ServiceSpec, old: &ServiceSpec) {
    if needs_cluster_ip(old) && !needs_cluster_ip(new) {
        if items(&new.cluster_ips) == items(&old.cluster_ips) {
            (new.cluster_ip, new.cluster_ips) = (None, None);
        }
        if new.ip_families == old.ip_families {
            new.ip_families = None;
        }
        if new.ip_family_policy == old.ip_family_policy {
            new.ip_family_policy = None;
        }
    }
    let node_ports = |spec: &ServiceSpec| -> Vec<Option<i32>> { items(&spec.ports).iter().map(|p| p.node_port).collect() };
    if needs_node_port(old) && !needs_node_port(new) && node_ports(new) == node_ports(old) {
        new.ports.iter_mut().flatten().for_each(|p| p.node_port = None);
    }
    if needs_health_check_port(old) && !needs_health_check_port(new) && new.health_check_node_port == old.health_check_node_port {
        new.health_check_node_port = None;
    }
    let balancer = |spec: &ServiceSpec| text(&spec.type_) == "LoadBalancer";
    if balancer(old) && !balancer(new) {
        if new.allocate_load_balancer_node_ports == old.allocate_load_balancer_node_ports {
            new.allocate_load_balancer_node_ports = None;
        }
        if new.load_balancer_class == old.load_balancer_class {
            new.load_balancer_class = None;
        }
    }
    if is_external(old) && !is_external(new) && new.external_traffic_policy == old.external_traffic_policy {
        new.external_traffic_policy = None;
    }
}
