//! ValidatingAdmissionPolicy.

use serde_json::{Value, json};
use wheelhouse_cel::{Bindings, Budget};
use wheelhouse_meta::Status;
use wheelhouse_meta::status::StatusCause;

use super::{Environment, Failure, POLICY_BUDGET, Rules, compile, concerned, each, fails_closed, parameters};
use crate::admission::pod::text;
use crate::admission::{Notes, Request};
use crate::lookups::{Answer, Lookups};

/// Where violations that are only noted go.
const AUDIT_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// What a binding makes of a violation.
struct Violation {
    policy: String,
    binding: String,
    message: String,
    /// A status reason; empty for the default.
    reason: String,
    expression: usize,
    actions: Vec<String>,
}

pub fn validate(request: &Request<'_>, object: Option<&Value>, lookups: &dyn Lookups, notes: &mut Notes) -> Answer<()> {
    let policies = concerned(request, object, lookups, "validatingadmissionpolicies");
    if policies.is_empty() {
        return Ok(());
    }
    let environment = Environment::new(request, object, lookups);
    let mut violations = Vec::new();
    for (policy, bindings) in &policies {
        for binding in bindings {
            if let Err(Failure(message)) = evaluate(policy, binding, request, object, &environment, lookups, &mut violations, notes)
                && fails_closed(policy)
            {
                violations.push(Violation::new(policy, binding, message, String::new(), 0));
            }
        }
    }
    let audited: Vec<Value> = violations.iter().filter(|violation| violation.is("Audit")).map(Violation::note).collect();
    if !audited.is_empty() {
        notes.annotate(AUDIT_KEY, Value::from(audited).to_string());
    }
    for violation in violations.iter().filter(|violation| violation.is("Warn")) {
        let Violation { policy, binding, message, .. } = violation;
        notes.warnings.push(format!("Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"));
    }
    match violations.into_iter().find(|violation| violation.is("Deny")) {
        Some(violation) => Err(violation.refusal(request, object)),
        None => Ok(()),
    }
}

#[allow(clippy::too_many_arguments, reason = "one policy's evaluation needs the request, the world and where its findings go")]
fn evaluate(
    policy: &Value,
    binding: &Value,
    request: &Request<'_>,
    object: Option<&Value>,
    environment: &Environment,
    lookups: &dyn Lookups,
    violations: &mut Vec<Violation>,
    notes: &mut Notes,
) -> Result<(), Failure> {
    let rules = Rules::read(policy)?;
    let mut budget = Budget::new(POLICY_BUDGET);
    for params in parameters::of(policy, binding, request, lookups)? {
        let bindings = rules.bindings(environment, object.unwrap_or(&Value::Null), &params);
        if !rules.hold(&bindings, &mut budget)? {
            continue;
        }
        for (at, validation) in each(&policy["spec"], "validations").enumerate() {
            let (message, reason) = match check(validation, &bindings, &mut budget) {
                Ok(None) => continue,
                Ok(Some(message)) => (message, text(validation, "reason")),
                Err(_) if !fails_closed(policy) => continue,
                Err(Failure(message)) => (message, ""),
            };
            violations.push(Violation::new(policy, binding, message, reason.to_owned(), at));
        }
        for annotation in each(&policy["spec"], "auditAnnotations") {
            let value = compile(text(annotation, "valueExpression"))?;
            let failed = |error| Failure::of(text(annotation, "valueExpression"), &error);
            if let Some(note) = value.run(&bindings, &mut budget).map_err(failed)?.as_str() {
                notes.annotate(format!("{}/{}", text(&policy["metadata"], "name"), text(annotation, "key")), note);
            }
        }
    }
    Ok(())
}

/// The message of a validation that does not hold.
fn check(validation: &Value, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<Option<String>, Failure> {
    let expression = text(validation, "expression").trim();
    let program = compile(expression)?;
    let holds = program.run(bindings, budget).map_err(|error| Failure::of(expression, &error))?.as_bool();
    if holds == Some(true) {
        return Ok(None);
    }
    let composed = match text(validation, "messageExpression") {
        "" => None,
        expression => {
            let program = compile(expression)?;
            // A message that cannot be composed falls back to the fixed one.
            program.run(bindings, budget).ok().and_then(|value| value.as_str().map(|text| text.trim().to_owned()))
        }
    };
    let composed = composed.filter(|message| !message.is_empty() && !message.contains('\n'));
    let fixed = text(validation, "message").trim();
    Ok(Some(composed.unwrap_or_else(|| if fixed.is_empty() { format!("failed expression: {expression}") } else { fixed.to_owned() })))
}

impl Violation {
    fn new(policy: &Value, binding: &Value, message: String, reason: String, expression: usize) -> Self {
        let name = |object: &Value| text(&object["metadata"], "name").to_owned();
        let actions = each(&binding["spec"], "validationActions").filter_map(Value::as_str).map(str::to_owned).collect();
        Self { policy: name(policy), binding: name(binding), message, reason, expression, actions }
    }

    fn is(&self, action: &str) -> bool {
        self.actions.iter().any(|known| known == action)
    }

    fn note(&self) -> Value {
        json!({
            "message": self.message, "policy": self.policy, "binding": self.binding, "expressionIndex": self.expression,
            "validationActions": self.actions,
        })
    }

    fn refusal(&self, request: &Request<'_>, object: Option<&Value>) -> Box<Status> {
        let why = format!("ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {}", self.policy, self.binding, self.message);
        let mut status = request.forbidden(object, &why);
        let (reason, code) = match self.reason.as_str() {
            "Unauthorized" => ("Unauthorized", 401),
            "Forbidden" => ("Forbidden", 403),
            "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
            _ => ("Invalid", 422),
        };
        (status.reason, status.code) = (reason.to_owned(), code);
        status.details.get_or_insert_default().causes.push(StatusCause { message: why, ..StatusCause::default() });
        status
    }
}
