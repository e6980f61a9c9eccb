//! MutatingWebhookConfiguration: servers elsewhere that may change objects before they are stored.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

use super::{GROUP, webhook};
use crate::prelude::*;

pub struct MutatingWebhookConfigurationKind;

impl TypedKind for MutatingWebhookConfigurationKind {
    type Object = MutatingWebhookConfiguration;

    const INFO: KindInfo = KindInfo {
        categories: &["api-extensions"],
        generation: true,
        unconditional_update: false,
        ..KindInfo::cluster(GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration")
    };

    fn default(object: &mut MutatingWebhookConfiguration) {
        object.webhooks.iter_mut().flatten().for_each(webhook::default_mutating);
    }

    fn prepare_create(object: &mut MutatingWebhookConfiguration, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut MutatingWebhookConfiguration, _: &MutatingWebhookConfiguration, _: &RequestContext<'_>) -> Verdict {
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::integer("Webhooks", "How many webhooks it has."), table::AGE];

    fn row(object: &MutatingWebhookConfiguration, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), items(&object.webhooks).len().into(), table::age(&object.metadata, now)]
    }
}

fn validate(object: &MutatingWebhookConfiguration) -> ErrorList {
    webhook::validate(items(&object.webhooks).iter().map(Into::into))
}
