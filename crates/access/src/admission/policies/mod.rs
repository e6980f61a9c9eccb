//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: a cluster's own rules as CEL expressions in objects.
//!
//! ```text
//! policies, bindings -> matches the request? -> parameters -> match conditions -> validations -> refusal | warning | audit annotation
//!                                                                            `-> mutations   -> changed object
//! ```
//!
//! Policies and bindings are read from the same state as everything else that a decision looks up, so one that was just written counts at once.
//! Expressions that cost too much, or fail, are treated as the policy's `failurePolicy` says. `authorizer` is not among the names that they may use.
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>.

mod environment;
mod matching;
mod mutating;
mod parameters;
mod validating;

use serde_json::Value;
use wheelhouse_cel::{Bindings, Budget, EvalError, Program, Value as Cel};

use super::Request;
use super::pod::text;
use crate::lookups::Lookups;
use environment::Environment;

pub(super) use mutating::mutate;
pub(super) use validating::validate;

const GROUP: &str = "admissionregistration.k8s.io";

/// What all evaluations of one policy for one request may cost together; upstream's limit.
const POLICY_BUDGET: u64 = 10 * Budget::EXPRESSION;

/// A policy's expressions that hold for every parameter.
struct Rules {
    variables: Vec<(String, Program)>,
    conditions: Vec<(String, Program)>,
}

/// Why an expression gave no answer, in the words that refuse the request.
struct Failure(String);

impl Failure {
    fn of(expression: &str, error: &EvalError) -> Self {
        Self(format!("expression '{expression}' resulted in error: {error}"))
    }
}

/// Whether a policy's own failures refuse the request.
fn fails_closed(policy: &Value) -> bool {
    policy["spec"]["failurePolicy"] != "Ignore"
}

fn each<'a>(value: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    value[list].as_array().into_iter().flatten()
}

fn compile(expression: &str) -> Result<Program, Failure> {
    Program::compile(expression).map_err(|error| Failure(format!("compilation error: {error}")))
}

impl Rules {
    fn read(policy: &Value) -> Result<Self, Failure> {
        let named = |list: &str| -> Result<Vec<(String, Program)>, Failure> {
            each(&policy["spec"], list).map(|entry| Ok((text(entry, "name").to_owned(), compile(text(entry, "expression"))?))).collect()
        };
        Ok(Self { variables: named("variables")?, conditions: named("matchConditions")? })
    }

    fn bindings<'a>(&'a self, environment: &'a Environment, object: &'a Value, params: &'a Value) -> Bindings<'a> {
        let bindings = environment.bindings(object).with("params", Cel::json(params));
        self.variables.iter().fold(bindings, |bindings, (name, program)| bindings.with_variable(name, program))
    }

    /// Whether every match condition holds. One that does not hold wins over one that fails.
    fn hold(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<bool, Failure> {
        let mut failure = None;
        for (name, program) in &self.conditions {
            match program.run(bindings, budget).map(|value| value.as_bool()) {
                Ok(Some(true)) => {}
                Ok(_) => return Ok(false),
                Err(error) => failure = failure.or(Some(Failure(format!("match condition {name:?} resulted in error: {error}")))),
            }
        }
        failure.map_or(Ok(true), Err)
    }
}

/// The policies of a kind that concern the request, each with its bindings that do.
fn concerned(request: &Request<'_>, object: Option<&Value>, lookups: &dyn Lookups, plural: &str) -> Vec<(Value, Vec<Value>)> {
    // A policy about policies could lock everybody out.
    if request.group() == GROUP || request.subresource() == "token" || request.resource().ends_with("reviews") {
        return Vec::new();
    }
    let policies = lookups.list(GROUP, plural, "");
    if policies.is_empty() {
        return Vec::new();
    }
    let singular = plural.trim_end_matches("policies");
    let bindings = lookups.list(GROUP, &format!("{singular}policybindings"), "");
    let matching = policies.into_iter().filter(|policy| matching::matches(&policy["spec"]["matchConstraints"], request, object, lookups));
    matching
        .map(|policy| {
            let name = text(&policy["metadata"], "name").to_owned();
            let of_it = |binding: &&Value| {
                let resources = &binding["spec"]["matchResources"];
                text(&binding["spec"], "policyName") == name && (resources.is_null() || matching::matches(resources, request, object, lookups))
            };
            let own: Vec<Value> = bindings.iter().filter(of_it).cloned().collect();
            (policy, own)
        })
        .filter(|(_, bindings)| !bindings.is_empty())
        .collect()
}

#[cfg(test)]
mod tests;
