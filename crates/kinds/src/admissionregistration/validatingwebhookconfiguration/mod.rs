//! ValidatingWebhookConfiguration: servers elsewhere that may refuse requests.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;

use super::{GROUP, webhook};
use crate::prelude::*;

pub struct ValidatingWebhookConfigurationKind;

impl TypedKind for ValidatingWebhookConfigurationKind {
    type Object = ValidatingWebhookConfiguration;

    const INFO: KindInfo = KindInfo {
        categories: &["api-extensions"],
        generation: true,
        unconditional_update: false,
        ..KindInfo::cluster(GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "validatingwebhookconfiguration")
    };

    fn default(object: &mut ValidatingWebhookConfiguration) {
        object.webhooks.iter_mut().flatten().for_each(webhook::default_validating);
    }

    fn prepare_create(object: &mut ValidatingWebhookConfiguration, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut ValidatingWebhookConfiguration, _: &ValidatingWebhookConfiguration, _: &RequestContext<'_>) -> Verdict {
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::integer("Webhooks", "How many webhooks it has."), table::AGE];

    fn row(object: &ValidatingWebhookConfiguration, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), items(&object.webhooks).len().into(), table::age(&object.metadata, now)]
    }
}

fn validate(object: &ValidatingWebhookConfiguration) -> ErrorList {
    webhook::validate(items(&object.webhooks).iter().map(Into::into))
}
