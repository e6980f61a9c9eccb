//! NetworkPolicy: who may talk to some pods, and whom they may talk to. A pod that no policy selects is open.

mod validate;

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPort};

use crate::apps::workload;
use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub struct NetworkPolicyKind;

impl TypedKind for NetworkPolicyKind {
    type Object = NetworkPolicy;

    const INFO: KindInfo = KindInfo {
        short_names: &["netpol"],
        generation: true,
        ..KindInfo::namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "networkpolicy")
    };

    fn default(object: &mut NetworkPolicy) {
        let spec = object.spec.get_or_insert_default();
        // Egress is restricted only where it is spoken of.
        if items(&spec.policy_types).is_empty() {
            let mut types = vec!["Ingress".to_owned()];
            if !items(&spec.egress).is_empty() {
                types.push("Egress".to_owned());
            }
            spec.policy_types = Some(types);
        }
        let tcp = |port: &mut NetworkPolicyPort| or_text(&mut port.protocol, "TCP");
        spec.ingress.iter_mut().flatten().flat_map(|r| r.ports.iter_mut().flatten()).for_each(tcp);
        spec.egress.iter_mut().flatten().flat_map(|r| r.ports.iter_mut().flatten()).for_each(tcp);
    }

    fn prepare_create(object: &mut NetworkPolicy, _: &RequestContext<'_>) -> Verdict {
        validate::policy(object).into()
    }

    fn prepare_update(new: &mut NetworkPolicy, _: &NetworkPolicy, _: &RequestContext<'_>) -> Verdict {
        validate::policy(new).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::text("Pod-Selector", "Which pods it is about."), table::AGE];

    fn row(object: &NetworkPolicy, now: Timestamp) -> Vec<Value> {
        let selector = object.spec.as_ref().and_then(|s| s.pod_selector.clone()).unwrap_or_default();
        vec![table::name(&object.metadata), workload::selector_cell(Some(&selector)), table::age(&object.metadata, now)]
    }
}
