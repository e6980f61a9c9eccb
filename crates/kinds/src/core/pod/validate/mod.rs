//! What a pod's spec must be, for pods and for the templates of every workload.

pub mod containers;
mod env;
mod hosts;
mod probes;
pub mod resources;
pub mod scheduling;
mod security;
pub mod volumes;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as TypedQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use wheelhouse_meta::Quantity;
use wheelhouse_meta::validation as names;

use crate::prelude::*;

/// The amount behind a quantity's text. The schema has refused texts that are none.
pub fn quantity(text: &TypedQuantity) -> Quantity {
    Quantity::parse(&text.0).unwrap_or_default()
}

/// Everything that pods and templates must be alike. `metadata` is the pod's own, and unset where a template will be given a name later.
pub fn pod_spec(spec: &PodSpec, metadata: Option<&ObjectMeta>, path: &Path<'_>, errors: &mut ErrorList) {
    let volumes = volumes::validate(items(&spec.volumes), metadata, &path.child("volumes"), errors);
    let claims: Vec<&str> = items(&spec.resource_claims).iter().map(|c| c.name.as_str()).collect();
    resource_claims(spec, &path.child("resourceClaims"), errors);
    let around = containers::Around { volumes: &volumes, claims: &claims };
    containers::regular(&spec.containers, &around, &path.child("containers"), errors);
    containers::init(spec, &around, &path.child("initContainers"), errors);
    containers::ephemeral(spec, &around, &path.child("ephemeralContainers"), errors);
    if let Some(resources) = &spec.resources {
        resources::validate(resources, &claims, &path.child("resources"), errors);
    }
    hosts::network_ports(spec, &path.child("containers"), errors);
    let restart = ["Always", "OnFailure", "Never"];
    one_of(text(&spec.restart_policy), &restart, &path.child("restartPolicy"), errors);
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(text(&spec.dns_policy), &dns, &path.child("dnsPolicy"), errors);
    validation::labels(&spec.node_selector, &path.child("nodeSelector"), errors);
    security::pod(spec, path, errors);
    for (at, secret) in items(&spec.image_pull_secrets).iter().enumerate() {
        if secret.name.is_empty() {
            errors.push(FieldError::required(&path.child("imagePullSecrets").index(at).child("name"), ""));
        }
    }
    if let Some(affinity) = &spec.affinity {
        scheduling::affinity(affinity, &path.child("affinity"), errors);
    }
    hosts::dns_config(spec, &path.child("dnsConfig"), errors);
    for (at, gate) in items(&spec.readiness_gates).iter().enumerate() {
        let path = path.child("readinessGates");
        let path = path.index(at);
        validation::texts(names::qualified_name(&gate.condition_type), &gate.condition_type, &path.child("conditionType"), errors);
    }
    scheduling::gates(spec, &path.child("schedulingGates"), errors);
    scheduling::topology_spread(items(&spec.topology_spread_constraints), &path.child("topologySpreadConstraints"), errors);
    let name = text(&spec.service_account_name);
    optional_name(name, names::dns1123_subdomain, &path.child("serviceAccountName"), errors);
    optional_name(text(&spec.node_name), names::dns1123_subdomain, &path.child("nodeName"), errors);
    if let Some(seconds) = spec.active_deadline_seconds.filter(|s| !(1..=i64::from(i32::MAX)).contains(s)) {
        let why = names::range_error(1, i64::from(i32::MAX));
        errors.push(FieldError::invalid(&path.child("activeDeadlineSeconds"), seconds, why));
    }
    optional_name(text(&spec.hostname), names::dns1123_label, &path.child("hostname"), errors);
    optional_name(text(&spec.subdomain), names::dns1123_label, &path.child("subdomain"), errors);
    scheduling::tolerations(items(&spec.tolerations), &path.child("tolerations"), errors);
    hosts::aliases(items(&spec.host_aliases), &path.child("hostAliases"), errors);
    optional_name(text(&spec.priority_class_name), names::dns1123_subdomain, &path.child("priorityClassName"), errors);
    if let Some(class) = &spec.runtime_class_name {
        validation::texts(names::dns1123_subdomain(class), class, &path.child("runtimeClassName"), errors);
    }
    if let Some(policy) = &spec.preemption_policy {
        one_of(policy, &["PreemptLowerPriority", "Never"], &path.child("preemptionPolicy"), errors);
    }
    for (name, amount) in spec.overhead.iter().flatten() {
        let path = path.child("overhead");
        let path = path.key(name);
        resources::name_is_sound(name, &path, errors);
        resources::value_is_sound(name, amount, &path, errors);
    }
    if let Some(os) = &spec.os {
        one_of(&os.name, &["linux", "windows"], &path.child("os").child("name"), errors);
    }
}

/// What only a pod must be, when it is made: upstream lets templates pass with it.
pub fn pod_create(object: &Pod, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let Some(spec) = &object.spec else { return };
    pod(object, errors);
    if !items(&spec.ephemeral_containers).is_empty() {
        errors.push(FieldError::forbidden(&path.child("ephemeralContainers"), "cannot be set on create"));
    }
    if !text(&spec.node_name).is_empty() && !items(&spec.scheduling_gates).is_empty() {
        errors.push(FieldError::forbidden(&path.child("nodeName"), "cannot be set until all schedulingGates have been cleared"));
    }
}

/// What a pod must be at any time.
pub fn pod(object: &Pod, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let Some(spec) = &object.spec else { return };
    pod_spec(spec, Some(&object.metadata), &path, errors);
    if text(&spec.service_account_name).is_empty() {
        token_needs_account(spec, &path, errors);
    }
    let (regular, init) = (path.child("containers"), path.child("initContainers"));
    let images = |list: &Path<'_>, images: &mut dyn Iterator<Item = &Option<String>>, errors: &mut ErrorList| {
        for (at, image) in images.enumerate() {
            let image = text(image);
            if image.trim() != image {
                errors.push(FieldError::invalid(&list.index(at).child("image"), image, "must not have leading or trailing whitespace"));
            }
        }
    };
    images(&regular, &mut spec.containers.iter().map(|c| &c.image), errors);
    images(&init, &mut items(&spec.init_containers).iter().map(|c| &c.image), errors);
}

fn token_needs_account(spec: &PodSpec, path: &Path<'_>, errors: &mut ErrorList) {
    for (at, volume) in items(&spec.volumes).iter().enumerate() {
        let sources = volume.projected.as_ref().map(|p| items(&p.sources)).unwrap_or_default();
        for (source_at, source) in sources.iter().enumerate() {
            if source.service_account_token.is_some() {
                let path = path.child("volumes");
                let path = path.index(at);
                let path = path.child("projected");
                let path = path.child("sources");
                let path = path.index(source_at);
                let why = "must not be specified when serviceAccountName is not set";
                errors.push(FieldError::forbidden(&path.child("serviceAccountToken"), why));
            }
        }
    }
}

fn resource_claims(spec: &PodSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let mut taken: Vec<&str> = Vec::new();
    for (at, claim) in items(&spec.resource_claims).iter().enumerate() {
        let path = path.index(at);
        let name = claim.name.as_str();
        if taken.contains(&name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        } else {
            taken.push(name);
        }
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        } else {
            validation::texts(names::dns1123_label(name), name, &path.child("name"), errors);
        }
        match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
            (Some(_), Some(_)) => {
                let why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.push(FieldError::invalid(&path, BadValue::typed(claim), why));
            }
            (None, None) => {
                let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.push(FieldError::invalid(&path, BadValue::typed(claim), why));
            }
            (Some(claim), None) => validation::texts(names::dns1123_subdomain(claim), claim, &path.child("resourceClaimName"), errors),
            (None, Some(template)) => {
                validation::texts(names::dns1123_subdomain(template), template, &path.child("resourceClaimTemplateName"), errors);
            }
        }
    }
}

/// Required, and one of a closed set, which the message lists in the order given.
pub fn one_of(value: &str, allowed: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    if value.is_empty() && !allowed.contains(&"") {
        errors.push(FieldError::required(path, ""));
    } else if !allowed.contains(&value) {
        errors.push(FieldError::not_supported(path, value, allowed));
    }
}

fn optional_name(value: &str, check: fn(&str) -> Vec<String>, path: &Path<'_>, errors: &mut ErrorList) {
    if !value.is_empty() {
        validation::texts(check(value), value, path, errors);
    }
}
