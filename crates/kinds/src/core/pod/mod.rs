//! Pod: containers that run together on one node.
//!
//! Its spec barely changes once it is made: images, the deadline, more tolerations, fewer scheduling gates. Some parts have subresources of
//! their own: `binding` picks the node, `ephemeralcontainers` adds containers for debugging, `resize` changes resources, `status` is the
//! kubelet's. The defaults and the validation of the spec are shared by every kind with a pod template ([`template`]).

mod columns;
pub mod defaults;
pub mod qos;
pub mod reconcile;
pub mod state;
mod strategy;
pub mod template;
#[cfg(test)]
mod tests;
mod update;
pub mod validate;

use k8s_openapi::api::core::v1::Pod;

use crate::kind::Verb;
use crate::prelude::*;

pub use columns::is_terminal;
pub use qos::qos_class;

pub struct PodKind;

const fn connect(name: &'static str, kind: Option<(&'static str, &'static str, &'static str)>, verbs: &'static [Verb]) -> Subresource {
    Subresource { name, body: kind, verbs, action: Action::Connect }
}

impl TypedKind for PodKind {
    type Object = Pod;

    const INFO: KindInfo = KindInfo {
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            connect("attach", Some(("", "v1", "PodAttachOptions")), &[Verb::Create, Verb::Get]),
            Subresource { name: "binding", body: Some(("", "v1", "Binding")), verbs: &[Verb::Create], action: Action::Bind },
            subresource::part("ephemeralcontainers"),
            Subresource { name: "eviction", body: Some(("policy", "v1", "Eviction")), verbs: &[Verb::Create], action: Action::Evict },
            connect("exec", Some(("", "v1", "PodExecOptions")), &[Verb::Create, Verb::Get]),
            connect("log", None, &[Verb::Get]),
            connect("portforward", Some(("", "v1", "PodPortForwardOptions")), &[Verb::Create, Verb::Get]),
            connect("proxy", Some(("", "v1", "PodProxyOptions")), &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update]),
            subresource::part("resize"),
            subresource::STATUS,
        ],
        generation: true,
        ..KindInfo::namespaced("", "v1", "Pod", "pods", "pod")
    };

    fn default(object: &mut Pod) {
        defaults::pod(object);
    }

    fn prepare_create(object: &mut Pod, cx: &RequestContext<'_>) -> Verdict {
        strategy::create(object, cx);
        let mut errors = ErrorList::new();
        validate::pod_create(object, &mut errors);
        errors.into()
    }

    fn prepare_update(new: &mut Pod, old: &Pod, cx: &RequestContext<'_>) -> Verdict {
        strategy::update(new, old, cx.subresource);
        match cx.subresource {
            "status" => update::status(new, old),
            "ephemeralcontainers" => update::ephemeral_containers(new, old),
            "resize" => update::resize(new, old),
            _ => update::pod(new, old),
        }
        .into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Pod, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }

    const SELECTABLE: &'static [&'static str] = columns::SELECTABLE;

    fn selectable_from_value(object: &Value) -> Option<Vec<(&'static str, String)>> {
        Some(columns::selectable_fields(object))
    }

    /// A pod that never reached a node, or is done, goes at once whatever is asked.
    fn grace_period(object: &Pod) -> Option<i64> {
        let spec = object.spec.as_ref()?;
        if text(&spec.node_name).is_empty() || is_terminal(object) {
            return None;
        }
        // Upstream takes a negative period for the shortest one.
        spec.termination_grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds })
    }
}
