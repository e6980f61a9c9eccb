//! What the webhooks of both configurations have in common.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MutatingWebhook, RuleWithOperations, ValidatingWebhook, WebhookClientConfig};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use wheelhouse_meta::validation as names;

use super::{client_config, rules};
use crate::core::pod::defaults::or_text;
use crate::prelude::*;

/// The port of a Service that names none.
const PORT: i32 = 443;

/// How long a webhook may take, in seconds, by default and at most.
const TIMEOUT: i32 = 10;
const MAX_TIMEOUT: i32 = 30;

const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];

/// Versions of the review that is sent.
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

/// The fields that both sorts of webhook have.
pub struct Hook<'a> {
    pub name: &'a str,
    rules: &'a [RuleWithOperations],
    failure_policy: &'a Option<String>,
    match_policy: &'a Option<String>,
    side_effects: &'a str,
    timeout_seconds: Option<i32>,
    namespace_selector: &'a Option<LabelSelector>,
    object_selector: &'a Option<LabelSelector>,
    /// Only mutating webhooks have one.
    reinvocation_policy: Option<&'a Option<String>>,
    client_config: &'a WebhookClientConfig,
    match_conditions: &'a [MatchCondition],
    admission_review_versions: &'a [String],
}

/// Both structs have the same fields but for one, and no trait in common.
macro_rules! hook {
    ($hook:expr, $reinvocation:expr) => {
        Hook {
            name: &$hook.name,
            rules: items(&$hook.rules),
            failure_policy: &$hook.failure_policy,
            match_policy: &$hook.match_policy,
            side_effects: &$hook.side_effects,
            timeout_seconds: $hook.timeout_seconds,
            namespace_selector: &$hook.namespace_selector,
            object_selector: &$hook.object_selector,
            reinvocation_policy: $reinvocation,
            client_config: &$hook.client_config,
            match_conditions: items(&$hook.match_conditions),
            admission_review_versions: &$hook.admission_review_versions,
        }
    };
}

impl<'a> From<&'a ValidatingWebhook> for Hook<'a> {
    fn from(hook: &'a ValidatingWebhook) -> Self {
        hook!(hook, None)
    }
}

impl<'a> From<&'a MutatingWebhook> for Hook<'a> {
    fn from(hook: &'a MutatingWebhook) -> Self {
        hook!(hook, Some(&hook.reinvocation_policy))
    }
}

macro_rules! default_hook {
    ($hook:expr) => {
        or_text(&mut $hook.failure_policy, "Fail");
        or_text(&mut $hook.match_policy, "Equivalent");
        $hook.namespace_selector.get_or_insert_default();
        $hook.object_selector.get_or_insert_default();
        $hook.timeout_seconds.get_or_insert(TIMEOUT);
        rules::default_rules(&mut $hook.rules);
        if let Some(service) = $hook.client_config.service.as_mut() {
            service.port.get_or_insert(PORT);
        }
    };
}

pub fn default_validating(hook: &mut ValidatingWebhook) {
    default_hook!(hook);
}

pub fn default_mutating(hook: &mut MutatingWebhook) {
    default_hook!(hook);
    or_text(&mut hook.reinvocation_policy, "Never");
}

/// Every webhook of a configuration, no two of one name.
pub fn validate<'a>(hooks: impl Iterator<Item = Hook<'a>>) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("webhooks");
    let mut seen: Vec<&str> = Vec::new();
    for (at, hook) in hooks.enumerate() {
        let path = path.index(at);
        one(&hook, &path, &mut errors);
        review_versions(hook.admission_review_versions, &path.child("admissionReviewVersions"), &mut errors);
        if seen.contains(&hook.name) && !hook.name.is_empty() {
            errors.push(FieldError::duplicate(&path.child("name"), hook.name));
        }
        seen.push(hook.name);
    }
    errors
}

fn one(hook: &Hook<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    fully_qualified(hook.name, &path.child("name"), errors);
    let here = path.child("rules");
    for (at, rule) in hook.rules.iter().enumerate() {
        rules::rule(rule, &here.index(at), errors);
    }
    rules::policy(hook.failure_policy, rules::FAILURE_POLICIES, &path.child("failurePolicy"), errors);
    rules::policy(hook.match_policy, rules::MATCH_POLICIES, &path.child("matchPolicy"), errors);
    let here = path.child("sideEffects");
    if hook.side_effects.is_empty() {
        errors.push(FieldError::required(&here, format!("must specify one of {}", SIDE_EFFECTS.join(", "))));
    } else if !SIDE_EFFECTS.contains(&hook.side_effects) {
        errors.push(FieldError::not_supported(&here, hook.side_effects, SIDE_EFFECTS));
    }
    if let Some(seconds) = hook.timeout_seconds.filter(|s| !(1..=MAX_TIMEOUT).contains(s)) {
        let why = format!("the timeout value must be between 1 and {MAX_TIMEOUT} seconds");
        errors.push(FieldError::invalid(&path.child("timeoutSeconds"), seconds, why));
    }
    for (field, selector) in [("namespaceSelector", hook.namespace_selector), ("objectSelector", hook.object_selector)] {
        if let Some(selector) = selector {
            validation::label_selector(selector, &path.child(field), errors);
        }
    }
    if let Some(policy) = hook.reinvocation_policy {
        rules::policy(policy, rules::REINVOCATION_POLICIES, &path.child("reinvocationPolicy"), errors);
    }
    let here = path.child("clientConfig");
    match (&hook.client_config.url, &hook.client_config.service) {
        (Some(url), None) => client_config::url(url, &here.child("url"), errors),
        (None, Some(service)) => {
            let port = service.port.unwrap_or(PORT);
            client_config::service(&service.name, &service.namespace, service.path.as_deref(), port, &here.child("service"), errors);
        }
        _ => errors.push(FieldError::required(&here, "exactly one of url or service is required")),
    }
    rules::match_conditions(hook.match_conditions, &path.child("matchConditions"), errors);
}

/// A domain of at least three parts.
fn fully_qualified(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(path, name, problems.join(",")));
    } else if name.split('.').count() < 3 {
        errors.push(FieldError::invalid(path, name, "should be a domain with at least three segments separated by dots"));
    }
}

fn review_versions(versions: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        errors.push(FieldError::required(path, format!("must specify one of {known}")));
        return;
    }
    for (at, version) in versions.iter().enumerate() {
        if versions[..at].contains(version) {
            errors.push(FieldError::invalid(&path.index(at), version, "duplicate version"));
        } else {
            validation::texts(names::dns1035_label(version), version, &path.index(at), errors);
        }
    }
    if !versions.iter().any(|v| REVIEW_VERSIONS.contains(&v.as_str())) {
        errors.push(FieldError::invalid(path, BadValue::typed(&versions), format!("must include at least one of {known}")));
    }
}
