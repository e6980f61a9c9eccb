//! Defaults of a Service.

use k8s_openapi::api::core::v1::{ClientIPConfig, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::core::pod::defaults::or_text;
use crate::validation::text;

/// How long a client keeps its pod, in seconds.
const CLIENT_SECONDS: i32 = 3 * 60 * 60;

pub fn apply(object: &mut Service) {
    let spec = object.spec.get_or_insert_default();
    or_text(&mut spec.session_affinity, "None");
    match text(&spec.session_affinity) {
        "None" => spec.session_affinity_config = None,
        "ClientIP" if spec.session_affinity_config.as_ref().is_none_or(|c| c.client_ip.as_ref().is_none_or(|c| c.timeout_seconds.is_none())) => {
            let config = spec.session_affinity_config.get_or_insert_default();
            config.client_ip = Some(ClientIPConfig { timeout_seconds: Some(CLIENT_SECONDS) });
        }
        _ => {}
    }
    or_text(&mut spec.type_, "ClusterIP");
    for port in spec.ports.iter_mut().flatten() {
        or_text(&mut port.protocol, "TCP");
        let unset = match &port.target_port {
            None => true,
            Some(IntOrString::Int(number)) => *number == 0,
            Some(IntOrString::String(name)) => name.is_empty(),
        };
        if unset {
            port.target_port = Some(IntOrString::Int(port.port));
        }
    }
    let type_ = text(&spec.type_).to_owned();
    if super::is_external(spec) {
        or_text(&mut spec.external_traffic_policy, "Cluster");
    }
    if matches!(type_.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        spec.internal_traffic_policy.get_or_insert_with(|| "Cluster".to_owned());
    }
    if type_ == "LoadBalancer" {
        spec.allocate_load_balancer_node_ports.get_or_insert(true);
        let balancer = object.status.as_mut().and_then(|s| s.load_balancer.as_mut());
        for ingress in balancer.into_iter().flat_map(|b| b.ingress.iter_mut().flatten()) {
            if ingress.ip.is_some() {
                ingress.ip_mode.get_or_insert_with(|| "VIP".to_owned());
            }
        }
    }
}
