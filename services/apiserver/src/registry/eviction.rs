//! `POST pods/eviction`: deletes a pod if its disruption budget allows it.
//!
//! The budget is compared and lowered in the transaction that deletes the pod, so two evictions can never spend one disruption.

use serde_json::{Value, json};
use wheelhouse_access::admission::Operation;
use wheelhouse_meta::object::Object;
use wheelhouse_meta::selector::LabelSelector;
use wheelhouse_meta::status::StatusCause;
use wheelhouse_meta::{Status, time};
use wheelhouse_mvcc::{Compare, CompareTarget, Comparison, KeyRange, Op, Put, Snapshot, command::prefix_end};

use super::binding::{created, set_condition};
use super::delete::{DeleteOptions, decide};
use super::options::{OptionsKind, WriteOptions};
use super::write::{Also, Current, Step, Writer};
use super::{Call, fields};
use crate::encode::{Item, read};
use crate::request::{Answer, decode, media};
use crate::resource::Resource;
use crate::respond::Reply;
use crate::stored;

/// Pods that a budget remembers as going; upstream's bound, so that a budget object cannot grow without limit.
const MAX_DISRUPTED_PODS: usize = 2000;

/// Seconds after which to try again when the budget's controller has not looked yet.
const RETRY_UNOBSERVED: u32 = 10;

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// 429 where the budget has no disruption left.
pub async fn evict(call: &Call<'_>) -> Answer<Reply> {
    let media = media::negotiate(call.headers, false)?;
    let options = WriteOptions::parse(call, OptionsKind::Create)?;
    let eviction = read_eviction(call, &options)?;
    if eviction.name() != call.name() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object").into());
    }
    let mut delete = DeleteOptions::from_object(eviction.get("deleteOptions"))?;
    delete.dry_run |= options.dry_run;
    let pods = call.resource();
    let mut writer = Writer::begin(call, pods, call.key(), delete.dry_run);
    loop {
        let current = writer.current()?;
        let decided = match &current {
            Some(current) => remove(call, current, &delete, writer.snapshot()).await,
            None => Err(Status::not_found(&pods.group_resource, call.name()).into()),
        };
        if writer.conclude(current, decided).await?.is_some() {
            return Ok(created(media.encoding));
        }
    }
}

fn read_eviction(call: &Call<'_>, options: &WriteOptions) -> Answer<Value> {
    let schema = wheelhouse_schema::catalog().kind("policy", "v1", "Eviction").map_or(wheelhouse_schema::Schema::Any, |kind| kind.schema.clone());
    let encoding = media::body_encoding(call.headers)?;
    // The beta version has the same fields and is still sent.
    let beta = encoding == media::Encoding::Json
        && serde_json::from_slice::<Value>(call.body).is_ok_and(|body| body.get("apiVersion").is_some_and(|version| version == "policy/v1beta1"));
    let api_version = if beta { "policy/v1beta1" } else { "policy/v1" };
    let expected = decode::Expected { api_version, kind: "Eviction", schema: &schema, custom: false };
    let decoded = decode::body(call.body, encoding, expected, options.validation)?;
    call.warn(decoded.warnings);
    Ok(decoded.object)
}

async fn remove(call: &Call<'_>, current: &Current, options: &DeleteOptions, snapshot: &Snapshot) -> Answer<Step> {
    let pod = &current.object;
    call.admit_validating(Operation::Create, Some(pod), None, options.dry_run).await?;
    let mut step = decide(call, current, options, snapshot).await?;
    if !needs_budget(pod) {
        return Ok(step);
    }
    let Some(budgets) = call.server.catalogue.stored("policy", "poddisruptionbudgets") else { return Ok(step) };
    let matching = matching(budgets, pod, snapshot)?;
    let budget = match matching.as_slice() {
        [] => return Ok(step),
        [one] => one,
        _ => {
            let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::plain(text).into());
        }
    };
    let healthy = is_ready(pod);
    // A pod that is not ready serves nobody: it may go while the application as a whole is healthy enough, or always if the budget says so.
    if !healthy {
        let always = budget.object["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        let number = |field: &str| budget.object["status"][field].as_i64().unwrap_or(0);
        if always || (number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0) {
            return Ok(step);
        }
    }
    let also = spend(call, budgets, budget, pod)?;
    match &mut step {
        Step::Put { also: with, .. } | Step::Remove { also: with, .. } => with.extend(also),
        Step::Unchanged => {}
    }
    Ok(step)
}

/// Pods that are over, not begun or going already cost no disruption.
fn needs_budget(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or("");
    let deleting = pod.metadata().is_some_and(|m| m.get("deletionTimestamp").is_some_and(|at| !at.is_null()));
    !matches!(phase, "Succeeded" | "Failed" | "Pending") && !deleting
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|c| c["type"] == "Ready").any(|c| c["status"] == "True")
}

/// The budgets of the pod's namespace that select it.
fn matching(budgets: &Resource, pod: &Value, snapshot: &Snapshot) -> Answer<Vec<Current>> {
    let prefix = budgets.key_prefix(pod.namespace());
    let end = prefix_end(prefix.as_bytes());
    let labels = pod.metadata().and_then(|m| m.get("labels")).and_then(Value::as_object);
    let mut found = Vec::new();
    for record in snapshot.range(prefix.as_bytes(), Some(&end)) {
        let object = read(budgets, Item { revision: record.mod_revision, value: &record.value })?;
        // A selector that cannot be read selects nothing.
        let selects = LabelSelector::from_object(object["spec"].get("selector")).is_ok_and(|selector| selector.matches(labels));
        if selects {
            found.push(Current { object, record: std::sync::Arc::clone(record) });
        }
    }
    Ok(found)
}

/// Takes one disruption from the budget, or says why there is none.
fn spend(call: &Call<'_>, budgets: &Resource, budget: &Current, pod: &Value) -> Answer<Also> {
    let mut object = budget.object.clone();
    let name = object.name().to_owned();
    let generation = object.metadata().and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or(0);
    let number = |field: &str| budget.object["status"][field].as_i64().unwrap_or(0);
    if number("observedGeneration") < generation {
        let text = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refused(RETRY_UNOBSERVED, text));
    }
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return Err(Status::forbidden(&budgets.group_resource, &name, "pdb disruptions allowed is negative").into());
    }
    let disrupted = budget.object["status"]["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
    if disrupted > MAX_DISRUPTED_PODS {
        return Err(Status::forbidden(
            &budgets.group_resource,
            &name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        )
        .into());
    }
    if allowed == 0 {
        let text =
            format!("The disruption budget {name} needs {} healthy pods and has {} currently", number("desiredHealthy"), number("currentHealthy"));
        return Err(refused(0, text));
    }
    let before = object.clone();
    object["status"]["disruptionsAllowed"] = json!(allowed - 1);
    let now = time::rfc3339(call.now);
    object["status"]["disruptedPods"][pod.name()] = now.clone().into();
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": number("observedGeneration"),
            "lastTransitionTime": now, "reason": "InsufficientPods", "message": "",
        });
        set_condition(&mut object, condition);
    }
    fields::record(call, budgets, &before, &mut object, "status");
    let key = budget.record.key.clone();
    let target = CompareTarget::ModRevision(budget.record.mod_revision);
    Ok(Also {
        compare: vec![Compare { range: KeyRange::key(key.clone()), comparison: Comparison::Equal, target }],
        operations: vec![Op::Put(Put { key, value: stored::encode(&object), lease: 0, prev_kv: false, ignore_value: false, ignore_lease: false })],
    })
}

fn refused(retry_after: u32, why: String) -> Box<Status> {
    let mut status = Status::too_many_requests(REFUSED, retry_after);
    status.details.get_or_insert_default().causes.push(StatusCause { reason: "DisruptionBudget".into(), message: why, field: String::new() });
    status.into()
}
