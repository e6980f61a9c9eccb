//! What an HTTP request asks for: verb, group, version, resource, namespace and name, read off method, path and query alone.
//!
//! The rules are those of upstream's request-info resolver: authorization must see the same words for the same path, also for paths that no
//! resource answers (an absent resource is refused before it is not found).

use crate::attributes::{Attributes, FieldRequirement, Target};
use crate::user::User;

/// Subresources of a namespace that are not collections inside it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// A request, resolved. `path` is as sent, without the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    pub path: String,
    /// Empty path fields mean a non-resource request.
    pub is_resource: bool,
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    /// For a collection request it is the name that the field selector `metadata.name=` pins, if any.
    pub name: String,
    /// Path segments from the resource on.
    pub parts: Vec<String>,
    pub field_selector: Vec<FieldRequirement>,
}

impl RequestInfo {
    /// `query` holds decoded pairs in the order sent.
    pub fn resolve(method: &str, path: &str, query: &[(String, String)]) -> Self {
        let mut info = Self { path: path.to_owned(), verb: method.to_lowercase(), ..Self::default() };
        let trimmed = path.trim_matches('/');
        let segments: Vec<&str> = if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() };
        // `/api/v1` and `/apis/g/v1` are discovery, not resources.
        let rest = match segments.first() {
            Some(&"api") if segments.len() >= 3 => {
                info.version = segments[1].to_owned();
                &segments[2..]
            }
            Some(&"apis") if segments.len() >= 4 => {
                info.group = segments[1].to_owned();
                info.version = segments[2].to_owned();
                &segments[3..]
            }
            _ => return info,
        };
        info.is_resource = true;
        let rest = info.take_verb_prefix(method, rest);
        info.place(rest);
        info.refine_verb(method, query);
        info
    }

    /// `/api/v1/proxy/…` and `/api/v1/watch/…` carry the verb in the path.
    fn take_verb_prefix<'s>(&mut self, method: &str, rest: &'s [&'s str]) -> &'s [&'s str] {
        if let Some(prefix @ (&"proxy" | &"watch")) = rest.first() {
            self.verb = (*prefix).to_owned();
            return &rest[1..];
        }
        self.verb = match method {
            "POST" => "create",
            "GET" | "HEAD" => "get",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "",
        }
        .to_owned();
        rest
    }

    fn place(&mut self, mut rest: &[&str]) {
        if rest.first() == Some(&"namespaces") {
            if let Some(namespace) = rest.get(1) {
                self.namespace = (*namespace).to_owned();
                // A third segment is a resource inside the namespace unless it is the namespace's own subresource.
                if rest.get(2).is_some_and(|third| !NAMESPACE_SUBRESOURCES.contains(third)) {
                    rest = &rest[2..];
                }
            }
        }
        self.parts = rest.iter().map(|s| (*s).to_owned()).collect();
        let part = |i: usize| rest.get(i).map_or(String::new(), |s| (*s).to_owned());
        self.resource = part(0);
        self.name = part(1);
        // A proxied path below the object belongs to the target, not to the API.
        if rest.len() >= 3 && self.verb != "proxy" {
            self.subresource = part(2);
        }
    }

    fn refine_verb(&mut self, method: &str, query: &[(String, String)]) {
        let first = |key: &str| query.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        if self.name.is_empty() && (self.verb == "get" || self.verb == "watch") {
            let watch = first("watch").is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"));
            self.verb = if watch || self.verb == "watch" { "watch" } else { "list" }.to_owned();
        }
        if self.name.is_empty() && self.verb == "delete" && method == "DELETE" {
            self.verb = "deletecollection".to_owned();
        }
        if matches!(self.verb.as_str(), "list" | "watch" | "deletecollection") {
            self.field_selector = first("fieldSelector").map(parse_field_selector).unwrap_or_default();
            if let Some(pinned) = self.field_selector.iter().find(|r| r.field == "metadata.name" && !r.negated && is_path_segment(&r.value)) {
                if self.name.is_empty() {
                    self.name = pinned.value.clone();
                }
            }
        }
    }

    pub fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        let target = if self.is_resource {
            Target::Resource {
                group: &self.group,
                version: &self.version,
                resource: &self.resource,
                subresource: &self.subresource,
                namespace: &self.namespace,
                name: &self.name,
            }
        } else {
            Target::Path(&self.path)
        };
        Attributes { user, verb: &self.verb, target, field_selector: &self.field_selector }
    }
}

/// A name that can be a path segment; others never match an object, so they must not widen or narrow a rule.
fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// Requirements of a field selector, with `\`-escapes undone. An unparsable selector has none; the registry refuses it later with 400.
pub fn parse_field_selector(text: &str) -> Vec<FieldRequirement> {
    let mut requirements = Vec::new();
    for term in split_unescaped(text) {
        if term.is_empty() {
            continue;
        }
        let Some((field, negated, value)) = split_term(&term) else { return Vec::new() };
        let Some(value) = unescape(value) else { return Vec::new() };
        requirements.push(FieldRequirement { field: field.to_owned(), negated, value });
    }
    requirements
}

fn split_unescaped(text: &str) -> Vec<String> {
    let (mut terms, mut term, mut escaped) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            _ if escaped => {
                escaped = false;
                term.push(c);
            }
            '\\' => {
                escaped = true;
                term.push(c);
            }
            ',' => terms.push(std::mem::take(&mut term)),
            c => term.push(c),
        }
    }
    terms.push(term);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (i, _) in term.char_indices() {
        let rest = &term[i..];
        if let Some(value) = rest.strip_prefix("!=") {
            return Some((&term[..i], true, value));
        }
        if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            return Some((&term[..i], false, value));
        }
    }
    None
}

fn unescape(value: &str) -> Option<String> {
    let (mut out, mut chars) = (String::with_capacity(value.len()), value.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                _ => return None,
            },
            ',' | '=' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(method: &str, path: &str, query: &[(&str, &str)]) -> RequestInfo {
        let query: Vec<(String, String)> = query.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        RequestInfo::resolve(method, path, &query)
    }

    /// method, path, verb, group, resource, subresource, namespace, name
    type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

    #[test]
    fn paths_resolve_as_upstream_resolves_them() {
        let rows: [Row; 14] = [
            ("GET", "/api/v1/namespaces/a/pods", "list", "", "pods", "", "a", ""),
            ("GET", "/api/v1/namespaces/a/pods/x", "get", "", "pods", "", "a", "x"),
            ("POST", "/api/v1/namespaces/a/pods", "create", "", "pods", "", "a", ""),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection", "", "pods", "", "a", ""),
            ("DELETE", "/api/v1/namespaces/a/pods/x", "delete", "", "pods", "", "a", "x"),
            ("GET", "/api/v1/pods", "list", "", "pods", "", "", ""),
            ("GET", "/api/v1/namespaces/a", "get", "", "namespaces", "", "a", "a"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update", "", "namespaces", "finalize", "a", "a"),
            ("GET", "/api/v1/namespaces", "list", "", "namespaces", "", "", ""),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", "patch", "apps", "deployments", "scale", "a", "d"),
            ("GET", "/api/v1/watch/namespaces/a/pods", "watch", "", "pods", "", "a", ""),
            ("GET", "/api/v1/namespaces/a/services/s/proxy/x/y", "get", "", "services", "proxy", "a", "s"),
            ("GET", "/api/v1/absent", "list", "", "absent", "", "", ""),
            ("POST", "/api/v1/namespaces/a/serviceaccounts/d/token", "create", "", "serviceaccounts", "token", "a", "d"),
        ];
        for (method, path, verb, group, resource, subresource, namespace, name) in rows {
            let info = resolve(method, path, &[]);
            let found = (info.verb.as_str(), info.group.as_str(), info.resource.as_str(), info.subresource.as_str(), info.namespace.as_str());
            assert_eq!(found, (verb, group, resource, subresource, namespace), "{path}");
            assert_eq!(info.name, name, "{path}");
        }
    }

    #[test]
    fn other_paths_are_not_resources() {
        for path in ["/", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/apis"] {
            let info = resolve("GET", path, &[]);
            assert!(!info.is_resource, "{path}");
            assert_eq!(info.verb, "get");
        }
    }

    #[test]
    fn a_field_selector_on_the_name_names_the_object() {
        let info = resolve("GET", "/api/v1/namespaces/a/configmaps", &[("fieldSelector", "metadata.name=one")]);
        assert_eq!((info.verb.as_str(), info.name.as_str()), ("list", "one"));
        let info = resolve("GET", "/api/v1/namespaces/a/configmaps", &[("fieldSelector", "metadata.name!=one")]);
        assert_eq!(info.name, "");
        let info = resolve("GET", "/api/v1/pods", &[("watch", "1"), ("fieldSelector", "spec.nodeName=n1")]);
        assert_eq!(info.verb, "watch");
        assert_eq!(info.field_selector, [FieldRequirement { field: "spec.nodeName".into(), negated: false, value: "n1".into() }]);
    }
}
