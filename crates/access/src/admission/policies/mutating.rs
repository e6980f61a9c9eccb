//! MutatingAdmissionPolicy.

use serde_json::Value;
use wheelhouse_cel::Budget;
use wheelhouse_meta::patch::{json_patch, strategic_merge_patch};
use wheelhouse_schema::Schema;

use super::{Environment, Failure, POLICY_BUDGET, Rules, compile, concerned, each, fails_closed, parameters};
use crate::admission::Request;
use crate::admission::pod::text;
use crate::attributes::Target;
use crate::lookups::{Answer, Lookups};

/// Applies the mutations of every policy, in the order of their names. Each sees what those before it have done.
pub fn mutate(request: &Request<'_>, object: &mut Value, lookups: &dyn Lookups) -> Answer<()> {
    let policies = concerned(request, Some(object), lookups, "mutatingadmissionpolicies");
    if policies.is_empty() {
        return Ok(());
    }
    let environment = Environment::new(request, Some(object), lookups);
    for (policy, bindings) in &policies {
        for binding in bindings {
            match apply(policy, binding, request, object, &environment, lookups) {
                Ok(changed) => *object = changed,
                Err(Failure(message)) if fails_closed(policy) => {
                    let name = |object: &Value| text(&object["metadata"], "name").to_owned();
                    let why = format!("policy '{}' with binding '{}' denied request: {message}", name(policy), name(binding));
                    return Err(request.forbidden(Some(object), why));
                }
                Err(_) => {}
            }
        }
    }
    Ok(())
}

fn apply(
    policy: &Value,
    binding: &Value,
    request: &Request<'_>,
    object: &Value,
    environment: &Environment,
    lookups: &dyn Lookups,
) -> Result<Value, Failure> {
    let rules = Rules::read(policy)?;
    let mut budget = Budget::new(POLICY_BUDGET);
    let mut object = object.clone();
    for params in parameters::of(policy, binding, request, lookups)? {
        if !rules.hold(&rules.bindings(environment, &object, &params), &mut budget)? {
            continue;
        }
        for mutation in each(&policy["spec"], "mutations") {
            let is_patch = mutation["patchType"] == "JSONPatch";
            let expression = text(&mutation[if is_patch { "jsonPatch" } else { "applyConfiguration" }], "expression");
            let program = compile(expression)?;
            let bindings = rules.bindings(environment, &object, &params);
            let value = program.run(&bindings, &mut budget).map_err(|error| Failure::of(expression, &error))?;
            let patch = value.to_json().ok_or_else(|| Failure(format!("expression '{expression}' made no object")))?.to_string();
            let changed = if is_patch {
                json_patch(&object, patch.as_bytes())
            } else {
                strategic_merge_patch(&object, patch.as_bytes(), &schema(request, &object))
            };
            object = changed.map_err(|error| Failure(error.to_string()))?;
        }
    }
    Ok(object)
}

/// How lists of the object merge.
fn schema(request: &Request<'_>, object: &Value) -> Schema {
    let Target::Resource { group, version, .. } = request.attributes.target else { return Schema::Any };
    let kind = wheelhouse_schema::catalog().kind(group, version, object["kind"].as_str().unwrap_or_default());
    kind.map_or(Schema::Any, |kind| kind.schema.clone())
}
