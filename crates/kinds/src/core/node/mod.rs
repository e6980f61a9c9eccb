//! Node: a machine that runs pods. Its kubelet registers it and keeps its status.

pub mod affinity;
mod columns;
pub mod reconcile;
mod validate;

use k8s_openapi::api::core::v1::Node;

use crate::kind::Verb;
use crate::prelude::*;

/// Set by a node that was taken off its machine: a node may not delete itself, so the control plane does.
pub const LEAVING: &str = "node.wheelhouse.dev/leaving";

pub struct NodeKind;

impl TypedKind for NodeKind {
    type Object = Node;

    const INFO: KindInfo = KindInfo {
        short_names: &["no"],
        subresources: &[
            Subresource {
                name: "proxy",
                body: Some(("", "v1", "NodeProxyOptions")),
                verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
                action: Action::Connect,
            },
            subresource::STATUS,
        ],
        ..KindInfo::cluster("", "v1", "Node", "nodes", "node")
    };

    fn default(object: &mut Node) {
        if let Some(status) = object.status.as_mut()
            && status.allocatable.is_none()
        {
            status.allocatable.clone_from(&status.capacity);
        }
        // The single range and the list are one field in two shapes; the single one wins.
        if let Some(spec) = object.spec.as_mut() {
            let single = text(&spec.pod_cidr).to_owned();
            match items(&spec.pod_cidrs).first() {
                Some(first) if single.is_empty() => spec.pod_cidr = Some(first.clone()),
                Some(first) if *first == single => {}
                _ if !single.is_empty() => spec.pod_cidrs = Some(vec![single]),
                _ => {}
            }
        }
    }

    fn prepare_create(object: &mut Node, _: &RequestContext<'_>) -> Verdict {
        validate::create(object).into()
    }

    fn prepare_update(new: &mut Node, old: &Node, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
        } else {
            new.status.clone_from(&old.status);
        }
        validate::update(new, old).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Node, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }

    const SELECTABLE: &'static [&'static str] = &["spec.unschedulable"];

    fn selectable_fields(object: &Node) -> Vec<(&'static str, String)> {
        let unschedulable = object.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or_default();
        vec![("spec.unschedulable", unschedulable.to_string())]
    }
}
