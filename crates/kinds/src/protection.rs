//! What the protection controllers share: one finalizer that keeps an object which is in use from going.

use std::sync::Arc;

use serde_json::Value;

use crate::plan::{Operation, Plan};
use crate::view::Record;

/// Adds the finalizer to a living object that lacks it, and takes it off a deleted one that nobody uses.
pub fn plan(record: &Arc<Record>, finalizer: &str, is_used: impl FnOnce() -> bool) -> Plan {
    let mut plan = Plan::default();
    let has = record.finalizers().iter().any(|f| f == finalizer);
    let mut finalizers = record.finalizers().to_vec();
    match (record.deleting(), has) {
        (false, false) => finalizers.push(finalizer.to_owned()),
        (true, true) if !is_used() => finalizers.retain(|f| f != finalizer),
        _ => return plan,
    }
    let mut object = record.value();
    object["metadata"]["finalizers"] = Value::from(finalizers);
    plan.operations.push(Operation::Update { resource: record.resource.clone(), subresource: "", object });
    plan
}
