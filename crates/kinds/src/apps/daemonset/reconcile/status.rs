//! The numbers in a set's status.

use k8s_openapi::api::apps::v1::DaemonSetStatus;

use super::Sync;
use super::placement::Placement;
use crate::core::pod::state;
use crate::plan::{Operation, Plan};
use crate::validation::text;

pub fn write(sync: &Sync<'_>, plan: &mut Plan) {
    let old = sync.set.status.clone().unwrap_or_default();
    let mut status = DaemonSetStatus {
        collision_count: old.collision_count,
        conditions: old.conditions.clone(),
        observed_generation: sync.set.metadata.generation,
        ..DaemonSetStatus::default()
    };
    let (mut updated, mut available) = (0, 0);
    for (node, placement) in &sync.nodes {
        let pods = sync.on(text(&node.metadata.name));
        if *placement != Placement::Run {
            status.number_misscheduled += i32::from(!pods.is_empty());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = pods.first() else { continue };
        status.current_number_scheduled += 1;
        if state::is_ready(pod) {
            status.number_ready += 1;
            available += i32::from(sync.is_available(pod, plan));
        }
        updated += i32::from(sync.is_updated(pod));
    }
    let some = |n: i32| (n != 0).then_some(n);
    status.number_available = some(available);
    status.number_unavailable = some(status.desired_number_scheduled - available);
    status.updated_number_scheduled = some(updated);
    if status != old {
        plan.operations.push(Operation::status(sync.set, &status));
    }
}
