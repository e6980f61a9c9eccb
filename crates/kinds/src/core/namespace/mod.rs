//! Namespace: a scope for names.
//!
//! It carries its own name as the label `kubernetes.io/metadata.name`, so that selectors can pick it, and the finalizer `kubernetes` in its
//! spec, which holds it back until everything inside is gone. That list changes only through `finalize`.

mod columns;
mod defaults;
pub mod reconcile;
mod strategy;
mod validate;

use k8s_openapi::api::core::v1::Namespace;
use serde_json::Value;
use wheelhouse_base::Timestamp;

use crate::kind::{Action, Column, KindInfo, NameRule, RequestContext, Subresource, TypedKind, Verb, Verdict};
use crate::{subresource, validation};

pub struct NamespaceKind;

/// The phases of `status.phase`.
pub const ACTIVE: &str = "Active";
pub const TERMINATING: &str = "Terminating";
/// The finalizer of namespace deletion.
pub const FINALIZER_KUBERNETES: &str = "kubernetes";

impl TypedKind for NamespaceKind {
    type Object = Namespace;

    const INFO: KindInfo = KindInfo {
        short_names: &["ns"],
        verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch],
        subresources: &[Subresource { name: "finalize", body: None, verbs: &[Verb::Update], action: Action::Part }, subresource::STATUS],
        ..KindInfo::cluster("", "v1", "Namespace", "namespaces", "namespace")
    };

    const NAME_RULE: NameRule = NameRule::Label;

    fn default(object: &mut Namespace) {
        defaults::apply(object);
    }

    fn prepare_create(object: &mut Namespace, _: &RequestContext<'_>) -> Verdict {
        strategy::create(object);
        validate::create(object).into()
    }

    fn prepare_update(new: &mut Namespace, old: &Namespace, cx: &RequestContext<'_>) -> Verdict {
        strategy::update(new, old, cx.subresource);
        validate::update(new, old, cx.subresource).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Namespace, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }

    const SELECTABLE: &'static [&'static str] = &["status.phase"];

    fn selectable_from_value(object: &Value) -> Option<Vec<(&'static str, String)>> {
        Some(vec![("status.phase", validation::text_at(object, "status.phase"))])
    }
}
