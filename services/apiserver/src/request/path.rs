//! What a URL path and method ask for.
//!
//! ```text
//! /api/<version>/[watch/][namespaces/<ns>/]<resource>[/<name>[/<subresource>[/<rest>]]]
//! /apis/<group>/<version>/…                       the same below a group
//! anything else                                    a non-resource request, authorized by its path
//! ```

use std::borrow::Cow;

use http::Method;
use wheelhouse_access::{Attributes, FieldRequirement, Target, User, field_selector};

use super::query::Query;

/// A request's target in the words of authorization. The parse is purely textual, so that authorization does not depend on what is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    pub is_resource: bool,
    /// The path as sent, percent-decoded.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`; the lower-cased method for non-resource requests.
    pub verb: String,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    /// For a collection it is the name that a `metadata.name` field selector demands, if one does.
    pub name: String,
    /// The path from the resource on: `[resource, name, subresource, rest …]`.
    pub parts: Vec<String>,
    /// The path put the resource inside a namespace. `/namespaces/x` has a namespace for authorization but is a cluster-scoped path.
    pub namespaced_path: bool,
    /// The old `/watch/` prefix was used.
    pub watch_prefix: bool,
    /// Requirements of a collection's field selector.
    pub field_selector: Vec<FieldRequirement>,
}

impl RequestInfo {
    /// Parses a method, a raw path and the query.
    pub fn parse(method: &Method, raw_path: &str, query: &Query) -> Self {
        let path = percent_decode(raw_path);
        let mut info = Self { verb: method.as_str().to_ascii_lowercase(), path: path.clone().into_owned(), ..Self::default() };
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = match segments[..] {
            ["api", version, ref rest @ ..] if !rest.is_empty() => {
                info.version = version.to_owned();
                rest
            }
            ["apis", group, version, ref rest @ ..] if !rest.is_empty() => {
                info.group = group.to_owned();
                info.version = version.to_owned();
                rest
            }
            // `/api/v1` and `/apis/g/v1` are discovery.
            _ => return info,
        };
        info.is_resource = true;
        info.read_target(method, rest);
        info.refine(query);
        info
    }

    fn read_target(&mut self, method: &Method, mut parts: &[&str]) {
        if let ["watch" | "proxy", rest @ ..] = parts {
            self.watch_prefix = parts[0] == "watch";
            self.verb = parts[0].to_owned();
            parts = rest;
        } else {
            self.verb = match method.as_str() {
                "POST" => "create",
                "GET" | "HEAD" => "get",
                "PUT" => "update",
                "PATCH" => "patch",
                "DELETE" => "delete",
                _ => "",
            }
            .to_owned();
        }
        if let ["namespaces", namespace, rest @ ..] = parts {
            self.namespace = (*namespace).to_owned();
            // `status` and `finalize` below a namespace are the Namespace's own subresources, everything else is a resource inside it.
            if rest.first().is_some_and(|third| !matches!(*third, "status" | "finalize")) {
                self.namespaced_path = true;
                parts = rest;
            }
        }
        self.parts = parts.iter().map(|part| (*part).to_owned()).collect();
        let part = |at: usize| self.parts.get(at).cloned().unwrap_or_default();
        (self.resource, self.name) = (part(0), part(1));
        if self.verb != "proxy" {
            self.subresource = part(2);
        }
    }

    /// A GET without a name is a list or a watch, a DELETE without a name is a deletecollection.
    fn refine(&mut self, query: &Query) {
        if !self.name.is_empty() {
            return;
        }
        match self.verb.as_str() {
            "get" => self.verb = if query.flag("watch") { "watch" } else { "list" }.to_owned(),
            "delete" => self.verb = "deletecollection".to_owned(),
            _ => {}
        }
        if matches!(self.verb.as_str(), "list" | "watch" | "deletecollection") {
            self.field_selector = query.first("fieldSelector").map(field_selector::parse).unwrap_or_default();
            let demanded = self.field_selector.iter().find(|r| r.field == "metadata.name" && !r.negated && is_path_segment(&r.value));
            self.name = demanded.map(|r| r.value.clone()).unwrap_or_default();
        }
    }

    /// The object's name in the path; a field selector may name one for authorization alone.
    pub fn path_name(&self) -> &str {
        self.parts.get(1).map_or("", String::as_str)
    }

    /// The namespace that the objects are in: empty for cluster-scoped paths, the Namespace object's own included.
    pub fn object_namespace(&self) -> &str {
        if self.namespaced_path { &self.namespace } else { "" }
    }

    /// Streams that live as long as the client wants: no timeout and no in-flight limit applies to them.
    pub fn is_long_running(&self) -> bool {
        self.is_resource
            && (matches!(self.verb.as_str(), "watch" | "proxy")
                || matches!(self.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward"))
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

/// Names that can stand in a path.
fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// Whether a method may change something.
pub fn is_mutating(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Decodes `%XX`. A broken escape stays as it is; invalid UTF-8 is replaced, so that nothing later sees odd bytes.
pub fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten().and_then(hex_pair);
        out.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

pub(super) fn hex_pair(pair: &[u8]) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(target: &str) -> RequestInfo {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        RequestInfo::parse(&Method::GET, path, &Query::parse(query))
    }

    #[test]
    fn routing_tells_a_namespace_from_what_is_inside_it() {
        let cases = [
            ("/api/v1/namespaces", false, "", ""),
            ("/api/v1/namespaces/a", false, "", "a"),
            ("/api/v1/namespaces/a/status", false, "", "a"),
            ("/api/v1/namespaces/a/pods", true, "a", ""),
            ("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", true, "a", ""),
            ("/api/v1/watch/namespaces/a/pods/p", true, "a", "p"),
            // A namespace inside a namespace is a path of its own, which no resource answers.
            ("/api/v1/namespaces/a/namespaces/b", true, "a", "b"),
            ("/apis/apps/v1/namespaces/a/deployments/d/scale", true, "a", "d"),
        ];
        for (target, namespaced, namespace, name) in cases {
            let info = parse(target);
            assert_eq!((info.namespaced_path, info.object_namespace(), info.path_name()), (namespaced, namespace, name), "{target}");
        }
        assert!(parse("/api/v1/watch/namespaces/a/pods/p").watch_prefix);
    }

    #[test]
    fn paths_become_verbs() {
        let cases = [
            (Method::GET, "/api/v1/namespaces", "list", "namespaces"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update", "namespaces/finalize"),
            (Method::GET, "/api/v1/namespaces/a/pods?watch=1", "watch", "pods"),
            (Method::GET, "/api/v1/pods?watch=false", "list", "pods"),
            (Method::DELETE, "/apis/apps/v1/namespaces/a/deployments", "deletecollection", "deployments"),
            (Method::PATCH, "/apis/apps/v1/namespaces/a/deployments/d/scale", "patch", "deployments/scale"),
            (Method::POST, "/api/v1/namespaces/a/pods/p/eviction", "create", "pods/eviction"),
            (Method::GET, "/healthz", "get", ""),
            (Method::GET, "/apis/apps/v1", "get", ""),
        ];
        for (method, target, verb, expected) in cases {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let info = RequestInfo::parse(&method, path, &Query::parse(query));
            let found = [info.resource.as_str(), info.subresource.as_str()].join("/");
            assert_eq!((info.verb.as_str(), found.trim_end_matches('/')), (verb, expected), "{target}");
        }
        assert_eq!(parse("/api/v1/pods?fieldSelector=metadata.name%3Dp").name, "p");
    }

    #[test]
    fn broken_input_never_panics() {
        for path in
            ["", "//", "/api/v1/watch", "/api/v1/watch/", "/apis/a/b/c/%", "/api/v1/%zz%f", "/api//v1//namespaces//", "/api/v1/namespaces//pods"]
        {
            for method in [Method::GET, Method::OPTIONS, Method::CONNECT] {
                let _ = RequestInfo::parse(&method, path, &Query::parse("watch&=&&fieldSelector=%3D%%%"));
            }
        }
        assert_eq!(percent_decode("%41%zz%4"), "A%zz%4");
    }
}
