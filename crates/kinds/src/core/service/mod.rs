//! Service: one stable address and name for a changing set of pods.
//!
//! Cluster IPs, node ports and health-check ports are allocated in the request's own transaction, which is the API server's; here are the
//! rules of which may be asked for, and what is given back when the type changes.

mod columns;
mod defaults;
pub mod families;
pub mod reconcile;
mod strategy;
mod validate;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use crate::kind::Verb;
use crate::prelude::*;

pub struct ServiceKind;

/// The cluster IP of a headless service.
pub const HEADLESS: &str = "None";

/// Whether the type has a cluster IP at all.
pub fn needs_cluster_ip(spec: &ServiceSpec) -> bool {
    matches!(text(&spec.type_), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Whether the type has node ports; a load balancer may go without.
pub fn needs_node_port(spec: &ServiceSpec) -> bool {
    match text(&spec.type_) {
        "NodePort" => true,
        "LoadBalancer" => spec.allocate_load_balancer_node_ports != Some(false),
        _ => false,
    }
}

/// Whether a load balancer must be able to ask each node for local endpoints.
pub fn needs_health_check_port(spec: &ServiceSpec) -> bool {
    text(&spec.type_) == "LoadBalancer" && text(&spec.external_traffic_policy) == "Local"
}

/// Whether anything outside the cluster can reach it.
pub fn is_external(spec: &ServiceSpec) -> bool {
    match text(&spec.type_) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !items(&spec.external_ips).is_empty(),
        _ => false,
    }
}

pub fn is_headless(spec: &ServiceSpec) -> bool {
    matches!(items(&spec.cluster_ips), [only] if only == HEADLESS)
}

impl TypedKind for ServiceKind {
    type Object = Service;

    const INFO: KindInfo = KindInfo {
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[
            Subresource {
                name: "proxy",
                body: Some(("", "v1", "ServiceProxyOptions")),
                verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
                action: Action::Connect,
            },
            subresource::STATUS,
        ],
        create_on_update: true,
        ..KindInfo::namespaced("", "v1", "Service", "services", "service")
    };

    const NAME_RULE: NameRule = NameRule::Label;

    fn default(object: &mut Service) {
        defaults::apply(object);
    }

    fn prepare_create(object: &mut Service, _: &RequestContext<'_>) -> Verdict {
        strategy::create(object);
        Verdict { errors: validate::create(object), warnings: validate::warnings(object) }
    }

    fn prepare_update(new: &mut Service, old: &Service, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        strategy::update(new, old);
        Verdict { errors: validate::update(new, old), warnings: validate::warnings(new) }
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Service, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }

    const SELECTABLE: &'static [&'static str] = &["spec.clusterIP", "spec.type"];

    fn selectable_from_value(object: &Value) -> Option<Vec<(&'static str, String)>> {
        Some(Self::SELECTABLE.iter().map(|name| (*name, validation::text_at(object, name))).collect())
    }
}
