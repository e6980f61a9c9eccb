//! The steps of a rolling update: old pods away within `maxUnavailable`, or new ones beside them within `maxSurge`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::placement::Placement;
use super::{Changes, Sync};
use crate::apps::workload::resolve;
use crate::plan::Plan;
use crate::validation::text;

fn bounds(sync: &Sync<'_>) -> Option<(usize, usize)> {
    let strategy = sync.spec.update_strategy.as_ref()?;
    if strategy.type_.as_deref() != Some("RollingUpdate") {
        return None;
    }
    let wanted = i32::try_from(sync.nodes.iter().filter(|(_, placement)| *placement == Placement::Run).count()).unwrap_or(i32::MAX);
    let rolling = strategy.rolling_update.clone().unwrap_or_default();
    let number = |n: i32| usize::try_from(n).unwrap_or(0);
    let surge = number(resolve(rolling.max_surge.as_ref(), wanted, true));
    let unavailable = number(resolve(rolling.max_unavailable.as_ref(), wanted, true));
    // Both zero would never move.
    Some(if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) })
}

pub fn max_surge(sync: &Sync<'_>) -> usize {
    bounds(sync).map_or(0, |(surge, _)| surge)
}

/// The pods of a node that are not on their way out, of the present template and of another. `None` when there are more than one of either, which
/// is not an update's business.
type Pair<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

fn pair<'a>(sync: &'a Sync<'_>, pods: &'a [Arc<Pod>]) -> Option<Pair<'a>> {
    let staying = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let (new, old): (Vec<_>, Vec<_>) = staying.partition(|pod| sync.is_updated(pod));
    (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
}

pub fn step(sync: &Sync<'_>, plan: &mut Plan) -> Changes {
    match bounds(sync) {
        None => Changes::default(),
        Some((0, unavailable)) => replace(sync, unavailable, plan),
        Some((surge, _)) => surge_step(sync, surge, plan),
    }
}

fn replace(sync: &Sync<'_>, most: usize, plan: &mut Plan) -> Changes {
    let (mut unavailable, mut free, mut costly) = (0, Vec::new(), Vec::new());
    for pods in sync.pods.values() {
        match pair(sync, pods) {
            Some((Some(new), None)) => unavailable += usize::from(!sync.is_available(new, plan)),
            Some((None, Some(old))) => {
                if sync.is_available(old, plan) {
                    costly.push(old.clone());
                } else {
                    // It serves nobody, so that replacing it costs nothing.
                    unavailable += 1;
                    free.push(old.clone());
                }
            }
            // What is missing or double is put right first.
            _ => unavailable += 1,
        }
    }
    free.extend(costly.into_iter().take(most.saturating_sub(unavailable)));
    Changes { delete: free, ..Changes::default() }
}

fn surge_step(sync: &Sync<'_>, most: usize, plan: &mut Plan) -> Changes {
    let mut changes = Changes::default();
    let (mut surging, mut costly) = (0, Vec::new());
    for (node, pods) in &sync.pods {
        let placement = sync.nodes.iter().find(|(known, _)| text(&known.metadata.name) == node).map(|(_, placement)| *placement);
        match pair(sync, pods) {
            None => surging += 1,
            Some((_, None)) => {}
            Some((None, Some(old))) => match placement {
                Some(Placement::Run) if sync.is_available(old, plan) => costly.push(node.clone()),
                Some(Placement::Run) => changes.create.push(node.clone()),
                // No second pod may be begun there, so that the old one goes first.
                Some(Placement::Stay) => changes.delete.push(old.clone()),
                _ => {}
            },
            Some((Some(new), Some(old))) => {
                if sync.is_available(new, plan) {
                    changes.delete.push(old.clone());
                } else {
                    surging += 1;
                }
            }
        }
    }
    changes.create.extend(costly.into_iter().take(most.saturating_sub(surging)));
    changes
}
