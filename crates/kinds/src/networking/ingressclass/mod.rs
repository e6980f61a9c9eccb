//! IngressClass: which controller makes ingresses work, and how it is set up.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::api::networking::v1::IngressClass;
use wheelhouse_meta::validation as names;

use super::ingress::reference;
use crate::core::pod::defaults::or_text;
use crate::core::pod::validate::one_of;
use crate::prelude::*;

pub struct IngressClassKind;

/// In bytes.
const MAX_CONTROLLER: usize = 250;

impl TypedKind for IngressClassKind {
    type Object = IngressClass;

    const INFO: KindInfo =
        KindInfo { generation: true, ..KindInfo::cluster("networking.k8s.io", "v1", "IngressClass", "ingressclasses", "ingressclass") };

    fn default(object: &mut IngressClass) {
        if let Some(parameters) = object.spec.as_mut().and_then(|s| s.parameters.as_mut()) {
            or_text(&mut parameters.scope, "Cluster");
        }
    }

    fn prepare_create(object: &mut IngressClass, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut IngressClass, old: &IngressClass, _: &RequestContext<'_>) -> Verdict {
        let mut errors = validate(new);
        let controller = |object: &IngressClass| object.spec.as_ref().and_then(|s| s.controller.clone());
        if controller(new) != controller(old) {
            errors.push(FieldError::immutable(&Path::new("spec").child("controller"), controller(new)));
        }
        errors.into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Controller", "Who makes its ingresses work."),
        table::text("Parameters", "What sets the controller up."),
        table::AGE,
    ];

    fn row(object: &IngressClass, now: Timestamp) -> Vec<Value> {
        let spec = object.spec.clone().unwrap_or_default();
        let parameters = spec.parameters.map_or_else(
            || "<none>".to_owned(),
            |p| match text(&p.api_group) {
                "" => format!("{}/{}", p.kind, p.name),
                group => format!("{}.{group}/{}", p.kind, p.name),
            },
        );
        vec![table::name(&object.metadata), text(&spec.controller).into(), parameters.into(), table::age(&object.metadata, now)]
    }
}

fn validate(object: &IngressClass) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    let (controller, here) = (text(&spec.controller), path.child("controller"));
    let prefixed = controller.split_once('/').is_some_and(|(domain, rest)| names::dns1123_subdomain(domain).is_empty() && !rest.is_empty());
    if controller.is_empty() {
        errors.push(FieldError::required(&here, ""));
    } else if controller.len() > MAX_CONTROLLER {
        errors.push(FieldError::too_long(&here, MAX_CONTROLLER));
    } else if !prefixed {
        errors.push(FieldError::invalid(&here, controller, "must be a domain-prefixed path (such as \"acme.io/foo\")"));
    }
    let Some(parameters) = &spec.parameters else { return errors };
    let here = path.child("parameters");
    let target = TypedLocalObjectReference { api_group: parameters.api_group.clone(), kind: parameters.kind.clone(), name: parameters.name.clone() };
    reference(&target, &here, &mut errors);
    let namespace = here.child("namespace");
    match (text(&parameters.scope), &parameters.namespace) {
        ("Namespace", None) => errors.push(FieldError::required(&namespace, "`parameters.scope` is set to 'Namespace'")),
        ("Namespace", Some(name)) => validation::texts(names::dns1123_label(name), name, &namespace, &mut errors),
        ("Cluster", Some(_)) => errors.push(FieldError::forbidden(&namespace, "`parameters.scope` is set to 'Cluster'")),
        ("Cluster", None) => {}
        (other, _) => one_of(other, &["Cluster", "Namespace"], &here.child("scope"), &mut errors),
    }
    errors
}
