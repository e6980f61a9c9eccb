//! What a Service must be.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use wheelhouse_meta::validation as names;

use super::{HEADLESS, is_external, is_headless, needs_cluster_ip, needs_health_check_port};
use crate::core::endpoints::validate::{ordinary_ip, protocol};
use crate::core::pod::validate::one_of;
use crate::prelude::*;

/// The kubelet's own port on every node.
const KUBELET_PORT: i32 = 10_250;
/// The longest session affinity in seconds.
const CLIENT_SECONDS_MAX: i32 = 86_400;
const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

pub fn create(object: &Service) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.spec.clone().unwrap_or_default();
    let path = Path::new("spec");
    let type_ = text(&spec.type_);
    let ports = items(&spec.ports);
    let ports_path = path.child("ports");
    if ports.is_empty() && !is_headless(&spec) && type_ != "ExternalName" {
        errors.push(FieldError::required(&ports_path, ""));
    }
    by_type(&spec, &path, &mut errors);
    let mut taken: Vec<&str> = Vec::new();
    for (at, port_) in ports.iter().enumerate() {
        port(port_, ports.len() > 1, &mut taken, &ports_path.index(at), &mut errors);
    }
    validation::labels(&spec.selector, &path.child("selector"), &mut errors);
    session_affinity(&spec, &path, &mut errors);
    cluster_ips(&spec, &path, &mut errors);
    let external = path.child("externalIPs");
    for (at, ip) in items(&spec.external_ips).iter().enumerate() {
        let path = external.index(at);
        let problems = names::ip(ip, &path);
        if problems.is_empty() {
            ordinary_ip(ip, &path, &mut errors);
        } else {
            errors.extend(problems);
        }
    }
    one_of(type_, TYPES, &path.child("type"), &mut errors);
    distinct_ports(&spec, &ports_path, &mut errors);
    load_balancer(&spec, &path, &mut errors);
    traffic(&spec, &path, &mut errors);
    errors
}

fn by_type(spec: &ServiceSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let type_ = text(&spec.type_);
    let ips = path.child("clusterIPs");
    if type_ == "LoadBalancer" {
        for (at, port) in items(&spec.ports).iter().enumerate().filter(|(_, p)| p.port == KUBELET_PORT) {
            let why = format!("may not expose port {KUBELET_PORT} externally since it is used by kubelet");
            errors.push(FieldError::invalid(&path.child("ports").index(at), port.port, why));
        }
    }
    match type_ {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let why = format!("may not be set to 'None' for {type_} services");
            errors.push(FieldError::invalid(&ips.index(0), HEADLESS, why));
        }
        "ExternalName" => {
            let mut unset = |field: &str, is_set: bool| {
                if is_set {
                    errors.push(FieldError::forbidden(&path.child(field), "may not be set for ExternalName services"));
                }
            };
            unset("clusterIPs", !items(&spec.cluster_ips).is_empty());
            unset("ipFamilies", !items(&spec.ip_families).is_empty());
            unset("ipFamilyPolicy", spec.ip_family_policy.is_some());
            let name = text(&spec.external_name);
            let bare = name.strip_suffix('.').unwrap_or(name);
            if bare.is_empty() {
                errors.push(FieldError::required(&path.child("externalName"), ""));
            } else {
                validation::texts(names::dns1123_subdomain(bare), bare, &path.child("externalName"), errors);
            }
        }
        _ => {}
    }
}

fn port<'a>(port: &'a ServicePort, name_required: bool, taken: &mut Vec<&'a str>, path: &Path<'_>, errors: &mut ErrorList) {
    let name = text(&port.name);
    if name.is_empty() {
        if name_required {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
    } else {
        validation::texts(names::dns1123_label(name), name, &path.child("name"), errors);
        if taken.contains(&name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        taken.push(name);
    }
    validation::port(port.port, &path.child("port"), errors);
    protocol(text(&port.protocol), &path.child("protocol"), errors);
    let target = path.child("targetPort");
    match &port.target_port {
        Some(IntOrString::String(name)) => validation::texts(names::port_name(name), name, &target, errors),
        Some(IntOrString::Int(number)) => validation::port(*number, &target, errors),
        None => validation::port(0, &target, errors),
    }
    if let Some(protocol) = &port.app_protocol {
        validation::texts(names::qualified_name(protocol), protocol, &path.child("appProtocol"), errors);
    }
}

fn session_affinity(spec: &ServiceSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let affinity = text(&spec.session_affinity);
    one_of(affinity, &["ClientIP", "None"], &path.child("sessionAffinity"), errors);
    let path = path.child("sessionAffinityConfig");
    match (affinity, &spec.session_affinity_config) {
        ("None", Some(_)) => errors.push(FieldError::forbidden(&path, "must not be set when session affinity is None")),
        ("ClientIP", config) => {
            let seconds = config.as_ref().and_then(|c| c.client_ip.as_ref()).and_then(|c| c.timeout_seconds);
            match seconds {
                None => errors.push(FieldError::required(&path, "when session affinity type is ClientIP")),
                Some(seconds) if !(1..=CLIENT_SECONDS_MAX).contains(&seconds) => {
                    let why = format!("must be greater than 0 and less than {CLIENT_SECONDS_MAX}");
                    errors.push(FieldError::invalid(&path.child("clientIP").child("timeoutSeconds"), seconds, why));
                }
                Some(_) => {}
            }
        }
        _ => {}
    }
}

/// Addresses, families and policy, as far as they are asked for.
fn cluster_ips(spec: &ServiceSpec, path: &Path<'_>, errors: &mut ErrorList) {
    if text(&spec.type_) == "ExternalName" {
        return;
    }
    let before = errors.len();
    let (single, list) = (text(&spec.cluster_ip), items(&spec.cluster_ips));
    let ips = path.child("clusterIPs");
    let shown = || BadValue::typed(&list);
    if single.is_empty() && !list.is_empty() {
        errors.push(FieldError::invalid(&ips, shown(), "must be empty when `clusterIP` is not specified"));
    }
    if !single.is_empty() {
        match list.first() {
            None => errors.push(FieldError::required(&ips, "")),
            Some(first) if first != single => errors.push(FieldError::invalid(&ips, shown(), "first value must match `clusterIP`")),
            Some(_) => {}
        }
    }
    let families = items(&spec.ip_families);
    let families_path = path.child("ipFamilies");
    for (at, family) in families.iter().enumerate() {
        if !matches!(family.as_str(), "IPv4" | "IPv6") {
            errors.push(FieldError::not_supported(&families_path.index(at), family, &["IPv4", "IPv6"]));
        }
        if families[..at].contains(family) {
            errors.push(FieldError::duplicate(&families_path.index(at), family));
        }
    }
    if let Some(policy) = &spec.ip_family_policy {
        one_of(policy, &["PreferDualStack", "RequireDualStack", "SingleStack"], &path.child("ipFamilyPolicy"), errors);
    }
    let mut sound = true;
    for (at, ip) in list.iter().enumerate() {
        if at == 0 && ip == HEADLESS {
            if list.len() > 1 {
                errors.push(FieldError::invalid(&ips, shown(), "'None' must be the first and only value"));
                sound = false;
            }
            continue;
        }
        let problems = names::ip(ip, &ips.index(at));
        sound &= problems.is_empty();
        errors.extend(problems);
    }
    if list.len() > 2 {
        errors.push(FieldError::invalid(&ips, shown(), "may only hold up to 2 values"));
    }
    if !sound {
        return;
    }
    let is_four = |ip: &String| matches!(names::parse_ip(ip), Some(IpAddr::V4(_)));
    if list.len() > 1 && list.iter().all(is_four) | list.iter().all(|ip| !is_four(ip)) {
        errors.push(FieldError::invalid(&ips, shown(), "may specify no more than one IP for each IP family"));
    }
    if is_headless(spec) || errors.len() != before {
        return;
    }
    for (at, (ip, family)) in list.iter().zip(families).enumerate() {
        if is_four(ip) != (family == "IPv4") {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{at}]`");
            errors.push(FieldError::invalid(&ips.index(at), ip, why));
        }
    }
}

fn distinct_ports(spec: &ServiceSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let ports = items(&spec.ports);
    let number = |port: &ServicePort| port.node_port.unwrap_or_default();
    if text(&spec.type_) == "ClusterIP" {
        for (at, _) in ports.iter().enumerate().filter(|(_, p)| number(p) != 0) {
            errors.push(FieldError::forbidden(&path.index(at).child("nodePort"), "may not be used when `type` is 'ClusterIP'"));
        }
    }
    for (at, port) in ports.iter().enumerate().filter(|(_, p)| number(p) != 0) {
        if ports[..at].iter().any(|o| number(o) == number(port) && o.protocol == port.protocol) {
            errors.push(FieldError::duplicate(&path.index(at).child("nodePort"), number(port)));
        }
    }
    for (at, port) in ports.iter().enumerate() {
        if ports[..at].iter().any(|o| o.port == port.port && o.protocol == port.protocol) {
            let key = ServicePort { port: port.port, protocol: port.protocol.clone(), ..ServicePort::default() };
            errors.push(FieldError::duplicate(&path.index(at), validation::untagged(&key, "io.k8s.api.core.v1.ServicePort")));
        }
    }
}

fn load_balancer(spec: &ServiceSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let is_balancer = text(&spec.type_) == "LoadBalancer";
    let ranges = items(&spec.load_balancer_source_ranges);
    // Upstream names the Go field here.
    let ranges_path = path.child("LoadBalancerSourceRanges");
    if !ranges.is_empty() && !is_balancer {
        errors.push(FieldError::forbidden(&ranges_path, ONLY_LOAD_BALANCER));
    }
    for (at, range) in ranges.iter().enumerate() {
        errors.extend(names::cidr(range.trim(), &ranges_path.index(at)));
    }
    let allocate = path.child("allocateLoadBalancerNodePorts");
    match spec.allocate_load_balancer_node_ports {
        Some(_) if !is_balancer => errors.push(FieldError::forbidden(&allocate, ONLY_LOAD_BALANCER)),
        None if is_balancer => errors.push(FieldError::required(&allocate, "")),
        _ => {}
    }
    if let Some(class) = &spec.load_balancer_class {
        let path = path.child("loadBalancerClass");
        if is_balancer {
            validation::texts(names::qualified_name(class), class, &path, errors);
        } else {
            errors.push(FieldError::forbidden(&path, ONLY_LOAD_BALANCER));
        }
    }
}

fn traffic(spec: &ServiceSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let policy = text(&spec.external_traffic_policy);
    let external = path.child("externalTrafficPolicy");
    if is_external(spec) {
        one_of(policy, &["Cluster", "Local"], &external, errors);
    } else if !policy.is_empty() {
        errors.push(FieldError::invalid(&external, policy, "may only be set for externally-accessible services"));
    }
    let health = path.child("healthCheckNodePort");
    match spec.health_check_node_port.unwrap_or_default() {
        0 => {}
        port if needs_health_check_port(spec) => validation::port(port, &health, errors),
        port => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid(&health, port, why));
        }
    }
    if needs_cluster_ip(spec) || spec.internal_traffic_policy.is_some() {
        one_of(text(&spec.internal_traffic_policy), &["Cluster", "Local"], &path.child("internalTrafficPolicy"), errors);
    }
    if let Some(distribution) = &spec.traffic_distribution {
        one_of(distribution, &["PreferClose", "PreferSameZone", "PreferSameNode"], &path.child("trafficDistribution"), errors);
    }
}

pub fn update(new: &Service, old: &Service) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    if let (Some(new), Some(old)) = (&new.spec, &old.spec)
        && needs_cluster_ip(new)
        && needs_cluster_ip(old)
    {
        // The first address and the first family are for life; a second of each may come and go.
        let (was, is) = (items(&old.cluster_ips).first(), items(&new.cluster_ips).first());
        if let (Some(was), Some(is)) = (was, is)
            && was != is
        {
            errors.push(FieldError::invalid(&path.child("clusterIPs").index(0), is, "may not change once set"));
        }
        if let (Some(was), Some(is)) = (items(&old.ip_families).first(), items(&new.ip_families).first())
            && was != is
        {
            errors.push(FieldError::invalid(&path.child("ipFamilies").index(0), is, "may not change once set"));
        }
        let health = (new.health_check_node_port, old.health_check_node_port);
        if needs_health_check_port(new) && needs_health_check_port(old) && health.0 != health.1 {
            let port = health.0.unwrap_or_default();
            errors.push(FieldError::immutable(&path.child("healthCheckNodePort"), port));
        }
        if text(&old.type_) == "LoadBalancer" && text(&new.type_) == "LoadBalancer" && new.load_balancer_class != old.load_balancer_class {
            errors.push(FieldError::invalid(&path.child("loadBalancerClass"), new.load_balancer_class.clone(), "may not change once set"));
        }
    }
    errors.extend(create(new));
    errors
}

pub fn status(object: &Service) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let path = path.child("loadBalancer");
    let path = path.child("ingress");
    let balancer = object.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    for (at, ingress) in balancer.map(|b| items(&b.ingress)).unwrap_or_default().iter().enumerate() {
        let path = path.index(at);
        if let Some(ip) = ingress.ip.as_ref().filter(|i| !i.is_empty()) {
            errors.extend(names::ip(ip, &path.child("ip")));
        }
        if let Some(name) = ingress.hostname.as_ref().filter(|h| !h.is_empty()) {
            validation::texts(names::dns1123_subdomain(name), name, &path.child("hostname"), &mut errors);
        }
    }
    errors
}

pub fn warnings(object: &Service) -> Vec<String> {
    let Some(spec) = &object.spec else { return Vec::new() };
    let mut out = Vec::new();
    if text(&spec.type_) == "ExternalName" && !items(&spec.external_ips).is_empty() {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if is_headless(spec) {
        if !items(&spec.external_ips).is_empty() {
            out.push("spec.externalIPs is ignored when spec.clusterIP is \"None\"".to_owned());
        }
        if text(&spec.session_affinity) != "None" {
            out.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    } else if !items(&spec.external_ips).is_empty() {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if spec.traffic_distribution.as_deref() == Some("PreferClose") {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    out
}
