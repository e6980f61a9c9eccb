//! Priority: a pod's priority is its class's, and only one class is the default.

use serde_json::Value;

use super::pod::text;
use super::{Operation, Request};
use crate::lookups::{Answer, Lookups};

const GROUP: &str = "scheduling.k8s.io";
const DEFAULT_POLICY: &str = "PreemptLowerPriority";

pub(super) fn mutate(request: &Request<'_>, pod: &mut Value, lookups: &dyn Lookups) -> Answer<()> {
    if !request.is("", "pods") {
        return Ok(());
    }
    match request.operation {
        Operation::Create => create(request, pod, lookups),
        Operation::Update => {
            // An update that leaves the fields out keeps them; changes are refused by validation.
            for key in ["priority", "preemptionPolicy"] {
                if pod["spec"][key].is_null()
                    && let Some(old) = request.old.map(|old| &old["spec"][key]).filter(|v| !v.is_null())
                {
                    pod["spec"][key] = old.clone();
                }
            }
            Ok(())
        }
        Operation::Delete | Operation::Connect => Ok(()),
    }
}

fn create(request: &Request<'_>, pod: &mut Value, lookups: &dyn Lookups) -> Answer<()> {
    let name = text(&pod["spec"], "priorityClassName").to_owned();
    let (value, policy) = if name.is_empty() {
        match default_class(lookups) {
            Some(class) => {
                pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
                of_class(&class)
            }
            None => (0, Some(DEFAULT_POLICY.to_owned())),
        }
    } else {
        let class = lookups.get(GROUP, "priorityclasses", "", &name);
        let class = class.ok_or_else(|| request.forbidden(Some(pod), format!("no PriorityClass with name {name} was found")))?;
        of_class(&class)
    };
    if let Some(given) = pod["spec"]["priority"].as_i64().filter(|given| *given != value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(request.forbidden(Some(pod), why));
    }
    pod["spec"]["priority"] = value.into();
    let Some(policy) = policy else { return Ok(()) };
    if let Some(given) = pod["spec"]["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(request.forbidden(Some(pod), why));
    }
    pod["spec"]["preemptionPolicy"] = policy.into();
    Ok(())
}

pub(super) fn validate(request: &Request<'_>, class: &Value, lookups: &dyn Lookups) -> Answer<()> {
    let writes = matches!(request.operation, Operation::Create | Operation::Update);
    if !writes || !request.is(GROUP, "priorityclasses") || class["globalDefault"] != true {
        return Ok(());
    }
    let Some(default) = default_class(lookups) else { return Ok(()) };
    let default = text(&default["metadata"], "name");
    if request.operation == Operation::Update && default == text(&class["metadata"], "name") {
        return Ok(());
    }
    Err(request.forbidden(Some(class), format!("PriorityClass {default} is already marked as default. Only one default can exist")))
}

fn of_class(class: &Value) -> (i64, Option<String>) {
    (class["value"].as_i64().unwrap_or_default(), class["preemptionPolicy"].as_str().map(str::to_owned))
}

/// The default class; of several (two may be created at once) the one with the lowest value.
fn default_class(lookups: &dyn Lookups) -> Option<Value> {
    let defaults = lookups.list(GROUP, "priorityclasses", "").into_iter().filter(|class| class["globalDefault"] == true);
    defaults.min_by_key(|class| class["value"].as_i64().unwrap_or_default())
}
