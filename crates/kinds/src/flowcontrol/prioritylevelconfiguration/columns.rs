//! `kubectl get prioritylevelconfigurations`.

use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Type", "Whether its requests are limited."),
    table::text("NominalConcurrencyShares", "Its share of the server."),
    table::text("Queues", "How many queues it has."),
    table::text("HandSize", "How many of them a flow is dealt."),
    table::text("QueueLengthLimit", "How many requests a queue holds."),
    table::AGE,
];

/// Numbers stay numbers although the columns are text, as upstream has it.
pub fn row(object: &PriorityLevelConfiguration, now: Timestamp) -> Vec<Value> {
    let spec = object.spec.clone().unwrap_or_default();
    let shown = |number: Option<i32>| number.map_or_else(|| "<none>".into(), Value::from);
    let exempt = spec.exempt.as_ref().and_then(|e| e.nominal_concurrency_shares);
    let shares = spec.limited.as_ref().map_or(exempt, |l| l.nominal_concurrency_shares);
    let queuing = spec.limited.as_ref().and_then(|l| l.limit_response.as_ref()?.queuing.clone());
    let number = |of: fn(&k8s_openapi::api::flowcontrol::v1::QueuingConfiguration) -> Option<i32>| shown(queuing.as_ref().and_then(of));
    vec![
        table::name(&object.metadata),
        spec.type_.as_str().into(),
        shown(shares),
        number(|q| q.queues),
        number(|q| q.hand_size),
        number(|q| q.queue_length_limit),
        table::age(&object.metadata, now),
    ]
}
