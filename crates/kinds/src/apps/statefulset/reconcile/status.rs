//! The numbers in a set's status.

use k8s_openapi::api::apps::v1::StatefulSetStatus;
use wheelhouse_base::Timestamp;

use super::Sync;
use crate::apps::controllerrevision::history::{name, revision_of};
use crate::core::pod::state;
use crate::plan::{Operation, Plan};

pub fn write(sync: &Sync<'_>, now: Timestamp, plan: &mut Plan) {
    let old = sync.set.status.clone().unwrap_or_default();
    let mut status = StatefulSetStatus {
        collision_count: Some(old.collision_count.unwrap_or(0)),
        conditions: old.conditions.clone(),
        current_revision: Some(name(&sync.current).to_owned()),
        update_revision: Some(name(&sync.update).to_owned()),
        observed_generation: sync.set.metadata.generation,
        available_replicas: Some(0),
        ..StatefulSetStatus::default()
    };
    let (mut ready, mut available, mut current, mut updated) = (0, 0, 0, 0);
    for pod in &sync.pods {
        status.replicas += 1;
        if state::phase(pod) == "Running" && state::is_ready(pod) {
            ready += 1;
            match state::availability(pod, sync.min_ready(), now) {
                Ok(()) => available += 1,
                Err(Some(at)) => plan.requeue_no_later_than(at),
                Err(None) => {}
            }
        }
        if pod.metadata.deletion_timestamp.is_none() {
            current += i32::from(revision_of(&pod.metadata) == name(&sync.current));
            updated += i32::from(revision_of(&pod.metadata) == name(&sync.update));
        }
    }
    let rolling = sync.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate");
    let all = sync.replicas();
    if rolling && updated == all && ready == all && status.replicas == all {
        // The rollout is complete.
        current = updated;
        status.current_revision.clone_from(&status.update_revision);
    }
    let some = |n: i32| (n != 0).then_some(n);
    status.ready_replicas = some(ready);
    status.available_replicas = Some(available);
    status.current_replicas = some(current);
    status.updated_replicas = some(updated);
    if status != old {
        plan.operations.push(Operation::status(sync.set, &status));
    }
}
