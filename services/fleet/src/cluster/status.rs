//! A cluster's status: what its replicas report, and the proof that it answers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use wheelhouse_kinds::fleet::Cluster;
use wheelhouse_kinds::fleet::cluster::{ClusterStatus, MemberStatus};
use wheelhouse_kinds::fleet::conditions::{self, PLACED, PROGRESSING, READY, Reading, reason};
use wheelhouse_kinds::plan::{Effect, EffectKind, EventNote, EventType, Plan};
use wheelhouse_kinds::reconciler::Context;
use wheelhouse_kinds::view::Key;

use super::{Memory, RETRY, Subject, replicas};
use crate::placement::Placement;

/// Computes the status, asks for a proof where one is due, and writes the status if it changed.
pub(super) fn report(subject: &Subject<'_>, placement: &Placement, cx: &Context<'_>, memory: &mut Memory, plan: &mut Plan) {
    let old = subject.cluster.status.clone().unwrap_or_default();
    let leader = replicas::leader(&subject.replicas).filter(|r| subject.serves(r));
    let voters = leader.and_then(|r| r.status.as_ref()).map(|s| s.voters.clone()).unwrap_or_default();
    let members: Vec<MemberStatus> = subject
        .replicas
        .iter()
        .filter(|r| voters.contains(&r.spec.replica_id) || subject.cluster.spec.members.iter().any(|m| m.replica_id == r.spec.replica_id))
        .map(|r| MemberStatus {
            replica_id: r.spec.replica_id,
            host: r.spec.host.clone(),
            ready: subject.serves(r),
            voter: voters.contains(&r.spec.replica_id),
        })
        .collect();
    let mut status = ClusterStatus {
        cluster_id: subject.id.to_string(),
        leader: leader.map(|r| r.spec.host.to_string()).unwrap_or_default(),
        endpoint: subject.settings.endpoint.clone(),
        server_name: format!("{}.{}", subject.id, subject.settings.base_domain),
        members,
        observed_generation: subject.cluster.generation(),
        ..old.clone()
    };
    let term = leader.and_then(|r| r.status.as_ref()).map(|s| s.term);
    let readiness = readiness(subject, &mut status, term, cx, memory, plan);
    let (progressing, placed) = (progress(subject, &status), placed(placement));
    let mut conditions = old.conditions.clone();
    for reading in [placed, progressing, readiness] {
        conditions::set(&mut conditions, reading, subject.cluster.generation(), subject.now);
    }
    status.conditions = conditions;
    plan.events.extend(event(&subject.cluster, &old.conditions, &status.conditions));
    if status != old {
        // No resourceVersion: the status is this reconciler's alone, and the same plan may just have written the spec.
        let patch = json!({"metadata": {"uid": subject.cluster.uid()}, "status": with_nulls(&status)});
        plan.operations.push(subject.patch_cluster("status", patch));
    }
}

/// The status as a merge patch: what became empty is left out of the JSON and must be named to go.
fn with_nulls(status: &ClusterStatus) -> Value {
    let mut patch = json!({"members": null, "leader": null, "proven": null});
    if let (Some(patch), Ok(Value::Object(status))) = (patch.as_object_mut(), serde_json::to_value(status)) {
        patch.extend(status);
    }
    patch
}

fn placed(placement: &Placement) -> Reading<'static> {
    match &placement.missing {
        Some(missing) => Reading { kind: PLACED, status: Some(false), reason: reason::NO_HOST, message: missing.clone() },
        None => Reading { kind: PLACED, status: Some(true), reason: reason::PLACED, message: String::new() },
    }
}

fn progress(subject: &Subject<'_>, status: &ClusterStatus) -> Reading<'static> {
    let reading = |on, reason, message: &str| Reading { kind: PROGRESSING, status: Some(on), reason, message: message.to_owned() };
    let ordered = &subject.cluster.spec.members;
    if ordered.is_empty() {
        return reading(true, reason::NO_HOST, "waiting for hosts");
    }
    let voting = |m: &&MemberStatus| m.voter;
    let settled = ordered.iter().all(|o| status.members.iter().filter(voting).any(|m| m.replica_id == o.replica_id))
        && status.members.iter().filter(voting).count() == ordered.len();
    match (settled, status.proven.is_empty()) {
        (true, _) => reading(false, reason::SETTLED, ""),
        (false, true) => reading(true, reason::STARTING, "replicas are being started"),
        (false, false) => reading(true, reason::MEMBERS_CHANGING, "members are being added or removed"),
    }
}

/// Ready, and the proof it rests on. A proof holds for one membership and one leadership; while a new one is under way the old answer stands.
fn readiness(
    subject: &Subject<'_>,
    status: &mut ClusterStatus,
    term: Option<u64>,
    cx: &Context<'_>,
    memory: &mut Memory,
    plan: &mut Plan,
) -> Reading<'static> {
    let reading = |status, reason, message: String| Reading { kind: READY, status: Some(status), reason, message };
    if subject.is_suspended() {
        status.proven.clear();
        return reading(false, reason::SUSPENDED, "suspended; the data is kept".to_owned());
    }
    let ready = status.members.iter().filter(|m| m.ready).count();
    let voters = status.members.iter().filter(|m| m.voter).count();
    let (Some(term), true) = (term, voters > 0 && ready > voters / 2) else {
        let (reason, message) = match status.proven.is_empty() {
            true => (reason::NOT_PROVEN, format!("{ready} of {} replicas serve", subject.cluster.spec.replicas)),
            false if term.is_none() => (reason::NO_QUORUM, "no replica leads".to_owned()),
            false => (reason::NO_QUORUM, format!("{ready} of {voters} voters serve")),
        };
        return reading(false, reason, message);
    };
    let subject_of_proof = format!("{}/{term}", subject.cluster.generation());
    if status.proven == subject_of_proof {
        return reading(true, reason::PROVEN, String::new());
    }
    let id = format!("{subject_of_proof}#{}", memory.attempts);
    match cx.effects.get(&(EffectKind::ProveReady, id.clone())) {
        Some(Ok(_)) => {
            status.proven = subject_of_proof;
            memory.retry_at = None;
            reading(true, reason::PROVEN, String::new())
        }
        Some(Err(error)) => {
            memory.attempts += 1;
            let at = subject.now.plus(RETRY);
            memory.retry_at = Some(at);
            plan.requeue_no_later_than(at);
            reading(false, reason::PROBE_FAILED, error.clone())
        }
        None if memory.retry_at.is_some_and(|at| at > subject.now) => {
            plan.requeue_at = memory.retry_at.min(plan.requeue_at).or(memory.retry_at);
            kept(status)
        }
        None => {
            let input = json!({"clusterID": subject.id, "serverName": status.server_name, "endpoint": status.endpoint});
            plan.effects.push(Effect { kind: EffectKind::ProveReady, id, input });
            kept(status)
        }
    }
}

/// What the condition says now.
fn kept(status: &ClusterStatus) -> Reading<'static> {
    match conditions::find(&status.conditions, READY) {
        Some(c) if c.status == "True" => Reading { kind: READY, status: Some(true), reason: reason::PROVEN, message: String::new() },
        Some(c) if c.reason == reason::PROBE_FAILED => {
            Reading { kind: READY, status: Some(false), reason: reason::PROBE_FAILED, message: c.message.clone() }
        }
        _ => Reading {
            kind: READY,
            status: Some(false),
            reason: reason::NOT_PROVEN,
            message: "waiting for a write and a read through the endpoint".to_owned(),
        },
    }
}

/// One event when Ready turns, and one when placement fails.
fn event(cluster: &Cluster, old: &[Condition], new: &[Condition]) -> Option<EventNote> {
    let turned = |kind: &str| {
        let (before, after) = (conditions::find(old, kind), conditions::find(new, kind)?);
        (before.map(|c| (&c.status, &c.reason)) != Some((&after.status, &after.reason))).then_some(after)
    };
    if let Some(placed) = turned(PLACED).filter(|c| c.status == "False") {
        return Some(warning(cluster, &placed.reason, &placed.message));
    }
    let ready = turned(READY)?;
    match ready.status.as_str() {
        "True" => Some(note(cluster, EventType::Normal, "Ready", "a write and a read through the endpoint passed")),
        _ if ready.reason == reason::NOT_PROVEN => None,
        _ => Some(warning(cluster, &ready.reason, &ready.message)),
    }
}

pub(super) fn warning(cluster: &Cluster, reason: &str, message: &str) -> EventNote {
    note(cluster, EventType::Warning, reason, message)
}

fn note(cluster: &Cluster, kind: EventType, reason: &str, message: &str) -> EventNote {
    EventNote {
        api_version: wheelhouse_kinds::fleet::API_VERSION.to_owned(),
        kind: "Cluster".to_owned(),
        key: Key::new(cluster.namespace(), cluster.name()),
        uid: cluster.uid().to_owned(),
        kind_of_event: kind,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}
