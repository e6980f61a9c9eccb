//! One policy rule: what it allows and what it covers.

use serde::{Deserialize, Serialize};
use wheelhouse_meta::gotext::quote;

use crate::attributes::{Attributes, Target};

/// `rbac.authorization.k8s.io/v1 PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    #[serde(deserialize_with = "nullable")]
    pub verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub non_resource_urls: Vec<String>,
}

/// JSON `null` is an empty list, as Go decodes it.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|i| i == item)
}

fn has_all(list: &[String], items: &[String]) -> bool {
    has(list, "*") || items.iter().all(|i| has(list, i))
}

/// A rule's URL ends in `*` to mean every path that begins so.
fn url_matches(pattern: &str, path: &str) -> bool {
    pattern == "*" || pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

impl Rule {
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has(&self.verbs, "*") && !has(&self.verbs, attributes.verb) {
            return false;
        }
        match attributes.target {
            Target::Path(path) => self.non_resource_urls.iter().any(|pattern| url_matches(pattern, path)),
            Target::Resource { group, resource, subresource, name, .. } => {
                (has(&self.api_groups, "*") || has(&self.api_groups, group))
                    && self.resources.iter().any(|r| resource_matches(r, resource, subresource))
                    && (self.resource_names.is_empty() || has(&self.resource_names, name))
            }
        }
    }

    /// Whether whoever holds this rule holds all of `other`.
    pub fn covers(&self, other: &Rule) -> bool {
        let names = if other.resource_names.is_empty() {
            self.resource_names.is_empty()
        } else {
            self.resource_names.is_empty() || other.resource_names.iter().all(|n| has(&self.resource_names, n))
        };
        names
            && has_all(&self.verbs, &other.verbs)
            && has_all(&self.api_groups, &other.api_groups)
            && self.covers_resources(&other.resources)
            && other.non_resource_urls.iter().all(|path| self.non_resource_urls.iter().any(|pattern| url_matches(pattern, path)))
    }

    fn covers_resources(&self, resources: &[String]) -> bool {
        has(&self.resources, "*")
            || resources.iter().all(|resource| {
                // `*/scale` covers `pods/scale`.
                has(&self.resources, resource) || resource.split_once('/').is_some_and(|(_, sub)| has(&self.resources, &format!("*/{sub}")))
            })
    }

    /// The rule as rules of one verb on one thing each.
    pub fn break_down(&self) -> Vec<Rule> {
        let one = |s: &String| vec![s.clone()];
        let mut rules = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let rule = Rule { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Rule::default() };
                    if self.resource_names.is_empty() {
                        rules.push(rule);
                    } else {
                        rules.extend(self.resource_names.iter().map(|name| Rule { resource_names: one(name), ..rule.clone() }));
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            rules.extend(self.verbs.iter().map(|verb| Rule { verbs: one(verb), non_resource_urls: one(url), ..Rule::default() }));
        }
        rules
    }

    /// Upstream's short text form: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    pub fn compact(&self) -> String {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<String> = fields.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| format!("{k}:{}", quoted_list(v))).collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// A list of strings as Go's `%q` prints it.
pub(crate) fn quoted_list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|s| quote(s)).collect();
    format!("[{}]", items.join(" "))
}

fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    if subresource.is_empty() {
        return pattern == resource;
    }
    match pattern.split_once('/') {
        Some((parent, sub)) => sub == subresource && (parent == "*" || parent == resource),
        None => false,
    }
}

/// Which of `wanted` (broken down) no rule of `held` covers.
pub fn uncovered(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::break_down);
    parts.filter(|part| !held.iter().any(|rule| rule.covers(part))).collect()
}

/// Joins rules on the same single resource, gathering their verbs. The rest is kept as it is, first.
pub fn compact_rules(rules: &[Rule]) -> Vec<Rule> {
    let (mut joined, mut rest): (Vec<Rule>, Vec<Rule>) = (Vec::new(), Vec::new());
    for rule in rules {
        let simple = rule.resources.len() == 1 && rule.api_groups.len() == 1 && rule.resource_names.len() <= 1 && rule.non_resource_urls.is_empty();
        if !simple {
            rest.push(rule.clone());
            continue;
        }
        let same = |r: &&mut Rule| r.resources == rule.resources && r.api_groups == rule.api_groups && r.resource_names == rule.resource_names;
        match joined.iter_mut().find(same) {
            Some(found) => {
                for verb in &rule.verbs {
                    if !has(&found.verbs, verb) {
                        found.verbs.push(verb.clone());
                    }
                }
            }
            None => joined.push(rule.clone()),
        }
    }
    rest.extend(joined);
    rest
}
