//! What a failed pod, or a set of succeeded indexes, means for its job: `spec.podFailurePolicy` and `spec.successPolicy`.
//!
//! Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy>.

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule, SuccessPolicy};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::indexes::Indexes;
use crate::core::pod::state;
use crate::validation::{items, text};

/// What the first matching rule says.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Ignore,
    Count,
    FailIndex,
    /// With the reason, as the job's condition tells it.
    FailJob(String),
}

/// `None` if no rule matches: the failure counts like any other.
pub fn on_failure(job: &Job, pod: &Pod) -> Option<Verdict> {
    let policy = job.spec.as_ref()?.pod_failure_policy.as_ref()?;
    policy.rules.iter().enumerate().find_map(|(at, rule)| matched(rule, pod).map(|what| verdict(rule, at, &what)))
}

pub fn counts(job: &Job, pod: &Pod) -> bool {
    on_failure(job, pod) != Some(Verdict::Ignore)
}

/// What about the pod a rule matched, in the words of the message.
fn matched(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let name = format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name));
    if let Some(codes) = &rule.on_exit_codes {
        let (container, code) = exit_code(codes, pod)?;
        return Some(format!("Container {container} for pod {name} failed with exit code {code}"));
    }
    let condition = items(&rule.on_pod_conditions).iter().find(|pattern| {
        let present = state::condition(pod, &pattern.type_);
        present.is_some_and(|condition| condition.status == pattern.status.as_deref().unwrap_or("True"))
    })?;
    Some(format!("Pod {name} has condition {}", condition.type_))
}

fn verdict(rule: &PodFailurePolicyRule, at: usize, what: &str) -> Verdict {
    match rule.action.as_str() {
        "Ignore" => Verdict::Ignore,
        "FailIndex" => Verdict::FailIndex,
        "FailJob" => Verdict::FailJob(format!("{what} matching {} rule at index {at}", rule.action)),
        _ => Verdict::Count,
    }
}

fn exit_code(codes: &PodFailurePolicyOnExitCodesRequirement, pod: &Pod) -> Option<(String, i32)> {
    let status = pod.status.as_ref()?;
    let statuses = items(&status.container_statuses).iter().chain(items(&status.init_container_statuses));
    let ended = |container: &ContainerStatus| {
        let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
        (code != 0).then(|| (container.name.clone(), code))
    };
    let named = statuses.filter(|container| codes.container_name.as_ref().is_none_or(|name| *name == container.name));
    named.filter_map(ended).find(|(_, code)| match codes.operator.as_str() {
        "In" => codes.values.contains(code),
        "NotIn" => !codes.values.contains(code),
        _ => false,
    })
}

/// The message if a rule is met.
pub fn success(policy: &SuccessPolicy, completions: u32, succeeded: &Indexes) -> Option<String> {
    let met = policy.rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(text) => {
            let required = Indexes::parse(text, completions);
            succeeded.common(&required) >= rule.succeeded_count.unwrap_or_else(|| required.total())
        }
        None => rule.succeeded_count.is_some_and(|count| succeeded.total() >= count),
    });
    met.map(|at| format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdict_of(rules: serde_json::Value, status: serde_json::Value) -> Option<Verdict> {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"template": {}, "podFailurePolicy": {"rules": rules}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"}, "status": status});
        on_failure(&serde_json::from_value(job).unwrap(), &serde_json::from_value(pod).unwrap())
    }

    fn exited(name: &str, code: i32) -> serde_json::Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code}}})
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let rules = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1]}},
        ]);
        let of = |status| verdict_of(rules.clone(), status);
        let disrupted = json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}], "containerStatuses": [exited("main", 42)]});
        assert_eq!(of(disrupted), Some(Verdict::Ignore));
        let message = "Container main for pod a/p failed with exit code 42 matching FailJob rule at index 1";
        assert_eq!(of(json!({"containerStatuses": [exited("main", 42)]})), Some(Verdict::FailJob(message.into())));
        assert_eq!(of(json!({"containerStatuses": [exited("other", 42)]})), Some(Verdict::FailIndex));
        assert_eq!(of(json!({"containerStatuses": [exited("other", 1), exited("main", 0)]})), None);
        let condition = json!([{"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]}]);
        let message = "Pod a/p has condition ConfigIssue matching FailJob rule at index 0";
        assert_eq!(verdict_of(condition, json!({"conditions": [{"type": "ConfigIssue", "status": "True"}]})), Some(Verdict::FailJob(message.into())));
    }

    #[test]
    fn success_needs_indexes_a_count_or_both() {
        let met = |rules: serde_json::Value, succeeded: &str| {
            success(&serde_json::from_value(json!({"rules": rules})).unwrap(), 10, &Indexes::parse(succeeded, 10))
        };
        assert_eq!(met(json!([{"succeededIndexes": "0-2"}]), "0,1"), None);
        assert_eq!(met(json!([{"succeededIndexes": "0-2"}]), "0-3").as_deref(), Some("Matched rules at index 0"));
        assert_eq!(
            met(json!([{"succeededIndexes": "9"}, {"succeededIndexes": "0-2", "succeededCount": 1}]), "1").as_deref(),
            Some("Matched rules at index 1")
        );
        assert_eq!(met(json!([{"succeededCount": 2}]), "1"), None);
    }
}
