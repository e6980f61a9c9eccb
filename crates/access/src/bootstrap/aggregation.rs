//! ClusterRole aggregation: a role whose rules are those of all roles that its selectors find.

use serde_json::Value;
use wheelhouse_meta::selector::LabelSelector;

use super::rules_of;
use crate::rbac::Rule;

/// The rules that an aggregated role should have, if it has others now. `None` also for roles that do not aggregate.
///
/// `roles` are all ClusterRoles. Those that a selector finds are taken in name order, selector by selector; a rule that is there already
/// is not repeated. A selector that cannot be read finds nothing.
pub fn plan(role: &Value, roles: &[Value]) -> Option<Vec<Rule>> {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array()?;
    let name = |role: &Value| role["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let own = name(role);
    let mut wanted: Vec<Rule> = Vec::new();
    for selector in selectors {
        let Ok(selector) = LabelSelector::from_object(Some(selector)) else { continue };
        let mut found: Vec<&Value> = roles.iter().filter(|r| name(r) != own && selector.matches(r["metadata"]["labels"].as_object())).collect();
        found.sort_by_key(|r| name(r));
        for rule in found.into_iter().flat_map(rules_of) {
            if !wanted.contains(&rule) {
                wanted.push(rule);
            }
        }
    }
    (wanted != rules_of(role)).then_some(wanted)
}
