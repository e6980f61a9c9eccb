//! PriorityLevelConfiguration: a share of the server for some requests, and what becomes of those above it.

mod columns;
mod validate;

use k8s_openapi::api::flowcontrol::v1::{PriorityLevelConfiguration, PriorityLevelConfigurationStatus};

use super::conditions;
use crate::prelude::*;

pub struct PriorityLevelConfigurationKind;

/// Defaults, the same in every version: shares of a limited level, and the shape of its queues.
const SHARES: i32 = 30;
const QUEUES: i32 = 64;
const HAND_SIZE: i32 = 8;
const QUEUE_LENGTH: i32 = 50;

impl TypedKind for PriorityLevelConfigurationKind {
    type Object = PriorityLevelConfiguration;

    const INFO: KindInfo = KindInfo {
        subresources: &[subresource::STATUS],
        generation: true,
        ..KindInfo::cluster(
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            "prioritylevelconfiguration",
        )
    };

    fn default(object: &mut PriorityLevelConfiguration) {
        let spec = object.spec.get_or_insert_default();
        if let Some(exempt) = spec.exempt.as_mut() {
            exempt.nominal_concurrency_shares.get_or_insert(0);
            exempt.lendable_percent.get_or_insert(0);
        }
        let Some(limited) = spec.limited.as_mut() else { return };
        limited.nominal_concurrency_shares.get_or_insert(SHARES);
        limited.lendable_percent.get_or_insert(0);
        if let Some(queuing) = limited.limit_response.as_mut().and_then(|r| r.queuing.as_mut()) {
            for (field, default) in
                [(&mut queuing.queues, QUEUES), (&mut queuing.hand_size, HAND_SIZE), (&mut queuing.queue_length_limit, QUEUE_LENGTH)]
            {
                if field.unwrap_or_default() == 0 {
                    *field = Some(default);
                }
            }
        }
    }

    fn prepare_create(object: &mut PriorityLevelConfiguration, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(PriorityLevelConfigurationStatus::default());
        validate::level(object).into()
    }

    fn prepare_update(new: &mut PriorityLevelConfiguration, old: &PriorityLevelConfiguration, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return conditions::validate(new.status.iter().flat_map(|s| items(&s.conditions)).map(|c| text(&c.type_))).into();
        }
        new.status.clone_from(&old.status);
        validate::level(new).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &PriorityLevelConfiguration, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }
}
