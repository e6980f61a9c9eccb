//! FlowSchemas: which priority level a request belongs to, and which flow within it.

use std::borrow::Cow;

use serde_json::Value;
use wheelhouse_access::User;

use crate::request::path::RequestInfo;

/// Its precedence comes last; it exists even if its object does not.
const CATCH_ALL: &str = "catch-all";

#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub name: String,
    pub uid: String,
    pub level: String,
    precedence: i64,
    distinguisher: Distinguisher,
    /// `spec.rules`, as stored: classification walks it directly.
    rules: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distinguisher {
    None,
    User,
    Namespace,
}

impl Schema {
    pub fn read(name: &str, object: &Value) -> Self {
        let spec = &object["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            name: name.to_owned(),
            uid: text(&object["metadata"]["uid"]),
            level: text(&spec["priorityLevelConfiguration"]["name"]),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            distinguisher: match spec["distinguisherMethod"]["type"].as_str() {
                Some("ByUser") => Distinguisher::User,
                Some("ByNamespace") => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: spec["rules"].as_array().cloned().unwrap_or_default(),
        }
    }

    pub fn catch_all() -> Self {
        Self {
            name: CATCH_ALL.into(),
            uid: String::new(),
            level: CATCH_ALL.into(),
            precedence: i64::MAX,
            distinguisher: Distinguisher::User,
            rules: Vec::new(),
        }
    }

    /// The schema of the cluster's masters, in case its object is missing.
    pub fn exempt() -> Self {
        Self { name: "exempt".into(), level: "exempt".into(), precedence: 1, distinguisher: Distinguisher::None, ..Self::catch_all() }
    }

    /// Lower comes first; ties by name.
    pub fn order(&self) -> (i64, &str) {
        (self.precedence, &self.name)
    }

    pub fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| each(&rule["subjects"]).any(|subject| is_subject(subject, user)) && is_target(rule, info))
    }

    /// What tells this request's flow from the others of the schema.
    pub fn distinguish<'a>(&self, user: &'a User, info: &'a RequestInfo) -> &'a str {
        match self.distinguisher {
            Distinguisher::None => "",
            Distinguisher::User => &user.name,
            Distinguisher::Namespace => &info.namespace,
        }
    }
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Whether a list of words has the word, or is the one word `*`.
fn holds(list: &Value, word: &str) -> bool {
    each(list).any(|entry| entry == word || entry == "*")
}

fn is_subject(subject: &Value, user: &User) -> bool {
    let name = |part: &str| subject[part]["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => matches!(name("user"), wanted if wanted == "*" || wanted == user.name),
        Some("Group") => matches!(name("group"), wanted if wanted == "*" || user.in_group(wanted)),
        Some("ServiceAccount") => {
            let (namespace, wanted) = (&subject["serviceAccount"]["namespace"], name("serviceAccount"));
            let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
            account.is_some_and(|(of, account)| namespace == of && (wanted == "*" || wanted == account))
        }
        _ => false,
    }
}

fn is_target(rule: &Value, info: &RequestInfo) -> bool {
    if !info.is_resource {
        let urls = |rule: &Value| each(&rule["nonResourceURLs"]).filter_map(Value::as_str).any(|url| is_url(url, &info.path));
        return each(&rule["nonResourceRules"]).any(|rule| holds(&rule["verbs"], &info.verb) && urls(rule));
    }
    let resource: Cow<'_, str> =
        if info.subresource.is_empty() { info.resource.as_str().into() } else { format!("{}/{}", info.resource, info.subresource).into() };
    each(&rule["resourceRules"]).any(|rule| {
        let place = if info.namespace.is_empty() { rule["clusterScope"] == true } else { holds(&rule["namespaces"], &info.namespace) };
        place && holds(&rule["verbs"], &info.verb) && holds(&rule["resources"], &resource) && holds(&rule["apiGroups"], &info.group)
    })
}

/// A path, or everything below one that ends in `/*`.
fn is_url(rule: &str, path: &str) -> bool {
    let prefix = rule.strip_suffix('*').unwrap_or(rule);
    rule == "*" || rule == path || path.strip_prefix(prefix.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::query::Query;
    use http::Method;
    use serde_json::json;

    fn request(method: &Method, path: &str) -> RequestInfo {
        RequestInfo::parse(method, path, &Query::parse(""))
    }

    #[test]
    fn rules_speak_of_subjects_and_targets() {
        let rule = json!({
            "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}}, {"kind": "User", "user": {"name": "jane"}}],
            "resourceRules": [{"verbs": ["get", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/healthz", "/x/*"]}],
        });
        let schema = Schema::read("s", &json!({"spec": {"rules": [rule], "distinguisherMethod": {"type": "ByNamespace"}}}));
        let user = |name: &str| User { name: name.into(), ..User::default() };
        let (bot, jane) = (user("system:serviceaccount:kube-system:bot"), user("jane"));
        let lease = request(&Method::GET, "/apis/coordination.k8s.io/v1/namespaces/a/leases/l");
        assert!(schema.matches(&bot, &lease) && schema.matches(&jane, &lease));
        assert_eq!(schema.distinguish(&bot, &lease), "a");
        assert!(!schema.matches(&user("system:serviceaccount:kube-systemx:bot"), &lease));
        assert!(!schema.matches(&jane, &request(&Method::DELETE, "/apis/coordination.k8s.io/v1/namespaces/a/leases/l")));
        assert!(!schema.matches(&jane, &request(&Method::GET, "/apis/coordination.k8s.io/v1/leases")), "no cluster scope");
        for (path, matches) in [("/healthz", true), ("/healthz/etcd", true), ("/x/y", true), ("/xy", false), ("/metrics", false)] {
            assert_eq!(schema.matches(&jane, &request(&Method::GET, path)), matches, "{path}");
        }
    }
}
