//! The rules of a Role or ClusterRole.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::prelude::*;

pub fn validate(rules: &Option<Vec<PolicyRule>>, namespaced: bool, errors: &mut ErrorList) {
    let path = Path::new("rules");
    for (at, rule) in items(rules).iter().enumerate() {
        rule_is_sound(rule, namespaced, &path.index(at), errors);
    }
}

fn rule_is_sound(rule: &PolicyRule, namespaced: bool, path: &Path<'_>, errors: &mut ErrorList) {
    if rule.verbs.is_empty() {
        errors.push(FieldError::required(&path.child("verbs"), "verbs must contain at least one value"));
    }
    let (groups, resources) = (items(&rule.api_groups), items(&rule.resources));
    let urls = items(&rule.non_resource_urls);
    if !urls.is_empty() {
        let mut refuse = |why: &str| errors.push(FieldError::invalid(&path.child("nonResourceURLs"), BadValue::typed(&urls), why));
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if !groups.is_empty() || !resources.is_empty() || !items(&rule.resource_names).is_empty() {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if groups.is_empty() {
        errors.push(FieldError::required(&path.child("apiGroups"), "resource rules must supply at least one api group"));
    }
    if resources.is_empty() {
        errors.push(FieldError::required(&path.child("resources"), "resource rules must supply at least one resource"));
    }
}
