//! DaemonSet: one pod of a template on every node that fits.
//!
//! The generation of the template alone is kept in an annotation, as the first version of this API had it in a field.

mod columns;
mod defaults;
mod validate;

pub mod reconcile;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};

use super::workload;
use crate::prelude::*;

pub struct DaemonSetKind;

/// Counts the changes of the template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

impl TypedKind for DaemonSetKind {
    type Object = DaemonSet;

    const INFO: KindInfo = KindInfo {
        short_names: &["ds"],
        categories: &["all"],
        subresources: &[subresource::STATUS],
        generation: true,
        ..KindInfo::namespaced("apps", "v1", "DaemonSet", "daemonsets", "daemonset")
    };

    const NULLABLE: &'static [&'static str] = &[workload::SELECTOR];

    const ANNOTATIONS_FROM_FIELDS: &'static [&'static str] = &[TEMPLATE_GENERATION];

    fn default(object: &mut DaemonSet) {
        defaults::apply(object);
        // Upstream's conversion writes the annotation into every object, which makes whoever sent the object its owner.
        object.metadata.annotations.get_or_insert_default().entry(TEMPLATE_GENERATION.to_owned()).or_insert_with(|| "0".to_owned());
    }

    fn prepare_create(object: &mut DaemonSet, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(DaemonSetStatus::default());
        set_template_generation(object, 1);
        validate::create(object).into()
    }

    fn prepare_update(new: &mut DaemonSet, old: &DaemonSet, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        let template = |object: &DaemonSet| object.spec.as_ref().map(|s| s.template.clone());
        let annotation = old.metadata.annotations.as_ref().and_then(|a| a.get(TEMPLATE_GENERATION));
        let generation: i64 = annotation.and_then(|g| g.parse().ok()).unwrap_or_default();
        set_template_generation(new, generation + i64::from(template(new) != template(old)));
        validate::update(new, old, cx).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &DaemonSet, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}

fn set_template_generation(object: &mut DaemonSet, generation: i64) {
    object.metadata.annotations.get_or_insert_default().insert(TEMPLATE_GENERATION.to_owned(), generation.to_string());
}
