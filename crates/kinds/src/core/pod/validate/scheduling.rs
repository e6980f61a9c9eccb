//! Where a pod may run: affinity, tolerations, spread, gates.

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodSpec, Toleration, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};
use wheelhouse_meta::validation as names;

use crate::prelude::*;

fn label_name(value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    validation::texts(names::qualified_name(value), value, path, errors);
}

pub fn affinity(affinity: &Affinity, path: &Path<'_>, errors: &mut ErrorList) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    if let Some(node) = &affinity.node_affinity {
        let path = path.child("nodeAffinity");
        if let Some(required) = &node.required_during_scheduling_ignored_during_execution {
            node_selector(required, &path.child(REQUIRED), errors);
        }
        let path = path.child(PREFERRED);
        for (at, term) in items(&node.preferred_during_scheduling_ignored_during_execution).iter().enumerate() {
            let path = path.index(at);
            weight(term.weight, &path, errors);
            node_selector_term(&term.preference, &path.child("preference"), errors);
        }
    }
    let mut pods = |field: &str, required: &[PodAffinityTerm], preferred: &[WeightedPodAffinityTerm]| {
        let path = path.child(field);
        let here = path.child(REQUIRED);
        for (at, term) in required.iter().enumerate() {
            pod_affinity_term(term, &here.index(at), errors);
        }
        let here = path.child(PREFERRED);
        for (at, term) in preferred.iter().enumerate() {
            let path = here.index(at);
            weight(term.weight, &path, errors);
            pod_affinity_term(&term.pod_affinity_term, &path.child("podAffinityTerm"), errors);
        }
    };
    if let Some(near) = &affinity.pod_affinity {
        let required = items(&near.required_during_scheduling_ignored_during_execution);
        pods("podAffinity", required, items(&near.preferred_during_scheduling_ignored_during_execution));
    }
    if let Some(far) = &affinity.pod_anti_affinity {
        let required = items(&far.required_during_scheduling_ignored_during_execution);
        pods("podAntiAffinity", required, items(&far.preferred_during_scheduling_ignored_during_execution));
    }
}

fn weight(weight: i32, path: &Path<'_>, errors: &mut ErrorList) {
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(&path.child("weight"), weight, "must be in the range 1-100"));
    }
}

pub fn node_selector(selector: &NodeSelector, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("nodeSelectorTerms");
    if selector.node_selector_terms.is_empty() {
        errors.push(FieldError::required(&path, "must have at least one node selector term"));
    }
    for (at, term) in selector.node_selector_terms.iter().enumerate() {
        node_selector_term(term, &path.index(at), errors);
    }
}

pub fn node_selector_term(term: &NodeSelectorTerm, path: &Path<'_>, errors: &mut ErrorList) {
    let expressions = path.child("matchExpressions");
    for (at, requirement) in items(&term.match_expressions).iter().enumerate() {
        node_requirement(requirement, &expressions.index(at), errors);
    }
    let fields = path.child("matchFields");
    for (at, requirement) in items(&term.match_fields).iter().enumerate() {
        node_field_requirement(requirement, &fields.index(at), errors);
    }
}

fn node_requirement(requirement: &NodeSelectorRequirement, path: &Path<'_>, errors: &mut ErrorList) {
    let values = items(&requirement.values);
    let here = path.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(&here, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.push(FieldError::forbidden(&here, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.push(FieldError::required(&here, "must be specified single value when `operator` is 'Lt' or 'Gt'"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        operator => errors.push(FieldError::invalid(&path.child("operator"), operator, "not a valid selector operator")),
    }
    label_name(&requirement.key, &path.child("key"), errors);
    for (at, value) in values.iter().enumerate() {
        validation::texts(names::label_value(value), value, &here.index(at), errors);
    }
}

fn node_field_requirement(requirement: &NodeSelectorRequirement, path: &Path<'_>, errors: &mut ErrorList) {
    let values = items(&requirement.values);
    let here = path.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.len() != 1 => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required(&here, why));
        }
        "In" | "NotIn" => {}
        operator => errors.push(FieldError::invalid(&path.child("operator"), operator, "not a valid selector operator")),
    }
    if requirement.key == "metadata.name" {
        for (at, value) in values.iter().enumerate() {
            validation::texts(names::dns1123_subdomain(value), value, &here.index(at), errors);
        }
    } else {
        errors.push(FieldError::invalid(&path.child("key"), &requirement.key, "not a valid field selector key"));
    }
}

fn pod_affinity_term(term: &PodAffinityTerm, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(selector) = &term.label_selector {
        validation::label_selector(selector, &path.child("labelSelector"), errors);
    }
    if let Some(selector) = &term.namespace_selector {
        validation::label_selector(selector, &path.child("namespaceSelector"), errors);
    }
    for namespace in items(&term.namespaces) {
        validation::texts(names::dns1123_label(namespace), namespace, &path.child("namespace"), errors);
    }
    let topology = path.child("topologyKey");
    if term.topology_key.is_empty() {
        errors.push(FieldError::required(&topology, "can not be empty"));
    }
    label_name(&term.topology_key, &topology, errors);
}

pub fn gates(spec: &PodSpec, path: &Path<'_>, errors: &mut ErrorList) {
    let mut taken: Vec<&str> = Vec::new();
    for (at, gate) in items(&spec.scheduling_gates).iter().enumerate() {
        let path = path.index(at);
        label_name(&gate.name, &path, errors);
        if taken.contains(&gate.name.as_str()) {
            errors.push(FieldError::duplicate(&path, &gate.name));
        }
        taken.push(&gate.name);
    }
}

pub fn topology_spread(list: &[TopologySpreadConstraint], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, constraint) in list.iter().enumerate() {
        let path = path.index(at);
        if constraint.max_skew <= 0 {
            errors.push(FieldError::invalid(&path.child("maxSkew"), constraint.max_skew, "must be greater than zero"));
        }
        if constraint.topology_key.is_empty() {
            errors.push(FieldError::required(&path.child("topologyKey"), "can not be empty"));
        } else {
            label_name(&constraint.topology_key, &path.child("topologyKey"), errors);
        }
        let action = constraint.when_unsatisfiable.as_str();
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            errors.push(FieldError::not_supported(&path.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]));
        }
        let same = |other: &TopologySpreadConstraint| other.topology_key == constraint.topology_key && other.when_unsatisfiable == action;
        if list[at + 1..].iter().any(same) {
            let pair = format!("{{{}, {action}}}", constraint.topology_key);
            errors.push(FieldError::duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), pair));
        }
        if let Some(domains) = constraint.min_domains {
            let path = path.child("minDomains");
            if domains <= 0 {
                errors.push(FieldError::invalid(&path, domains, "must be greater than 0"));
            }
            if action == "ScheduleAnyway" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(FieldError::invalid(&path, domains, why));
            }
        }
        for (field, policy) in [("nodeAffinityPolicy", &constraint.node_affinity_policy), ("nodeTaintsPolicy", &constraint.node_taints_policy)] {
            if let Some(policy) = policy
                && !matches!(policy.as_str(), "Honor" | "Ignore")
            {
                errors.push(FieldError::not_supported(&path.child(field), policy, &["Honor", "Ignore"]));
            }
        }
        let keys = path.child("matchLabelKeys");
        if constraint.label_selector.is_none() && !items(&constraint.match_label_keys).is_empty() {
            errors.push(FieldError::forbidden(&keys, "must not be specified when labelSelector is not set"));
        }
        for (at, key) in items(&constraint.match_label_keys).iter().enumerate() {
            label_name(key, &keys.index(at), errors);
        }
        if let Some(selector) = &constraint.label_selector {
            validation::label_selector(selector, &path.child("labelSelector"), errors);
        }
    }
}

/// Effects of taints, in the order that messages list them.
pub const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub fn tolerations(list: &[Toleration], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, toleration) in list.iter().enumerate() {
        let path = path.index(at);
        let (key, value, effect) = (text(&toleration.key), text(&toleration.value), text(&toleration.effect));
        let operator_path = path.child("operator");
        let operator = text(&toleration.operator);
        if !key.is_empty() {
            label_name(key, &path.child("key"), errors);
        }
        if key.is_empty() && operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(&operator_path, operator, why));
        }
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(&path.child("effect"), effect, why));
        }
        match operator {
            "" | "Equal" => {
                let problems = names::label_value(value);
                if !problems.is_empty() {
                    errors.push(FieldError::invalid(&operator_path, value, problems.join(";")));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.push(FieldError::invalid(&operator_path, value, "value must be empty when `operator` is 'Exists'"));
            }
            "Exists" => {}
            _ => errors.push(FieldError::not_supported(&operator_path, operator, &["Equal", "Exists"])),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(&path.child("effect"), effect, EFFECTS));
        }
    }
}
