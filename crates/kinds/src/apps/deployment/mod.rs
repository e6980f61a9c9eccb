//! Deployment: a number of interchangeable pods, replaced gradually when their template changes. It works through ReplicaSets.

mod columns;
mod defaults;
mod validate;

pub mod reconcile;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};

use super::workload;
use crate::prelude::*;

pub struct DeploymentKind;

impl TypedKind for DeploymentKind {
    type Object = Deployment;

    const INFO: KindInfo = KindInfo {
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &[subresource::SCALE, subresource::STATUS],
        generation: true,
        ..KindInfo::namespaced("apps", "v1", "Deployment", "deployments", "deployment")
    };

    const NULLABLE: &'static [&'static str] = &[workload::SELECTOR];

    fn default(object: &mut Deployment) {
        defaults::apply(object);
    }

    fn prepare_create(object: &mut Deployment, cx: &RequestContext<'_>) -> Verdict {
        object.status = Some(DeploymentStatus::default());
        validate::create(object, cx).into()
    }

    fn prepare_update(new: &mut Deployment, old: &Deployment, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            new.metadata.labels.clone_from(&old.metadata.labels);
            return validate::status(new, old).into();
        }
        new.status.clone_from(&old.status);
        validate::update(new, old, cx).into()
    }

    /// Annotations count too: the rollback annotation is an order.
    fn spec_changed(new: &Deployment, old: &Deployment) -> Option<bool> {
        Some(new.spec != old.spec || !validation::same(&new.metadata.annotations, &old.metadata.annotations))
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Deployment, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
