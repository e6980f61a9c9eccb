//! Acting as somebody else: the `Impersonate-*` headers (KEP-5284 for the constrained modes).
//!
//! ```text
//! headers -> Wanted -> modes in order: associated-node, arbitrary-node, serviceaccount, user-info, legacy
//!                      each: may the requestor do THIS REQUEST in this mode, and may they be THAT USER in this mode?
//! ```
//!
//! The first mode that says yes decides; if none does, the first refusal is the answer. The legacy mode asks only for the verb
//! `impersonate` and knows no limit on what is done afterwards.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::HeaderMap;
use wheelhouse_meta::Status;
use wheelhouse_meta::gotext::quote;

use crate::attributes::{Attributes, Decision, Target};
use crate::lookups::Answer;
use crate::rbac::forbidden::forbidden;
use crate::user::User;

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// From how many groups or extra values on one check for all of them (`*`) is tried before one each. Upstream's number.
const MANY_CHECKS: usize = 4;

/// The longest name of a node (a DNS subdomain).
const MAX_SUBDOMAIN: usize = 253;

/// The user that the requestor now acts as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated {
    pub user: User,
    /// The verb of the constrained mode that allowed it, e.g. `impersonate:user-info`; empty for the legacy mode. Audit records it.
    pub constraint: String,
}

/// Reads the headers and authorizes every part of them. `None` means that the request does not impersonate.
///
/// `attributes` are the request's, with the requestor as their user; `authorize` decides as for any request. Incomplete headers are
/// answered 400, a refusal 403.
pub fn impersonate(
    headers: &HeaderMap,
    attributes: &Attributes<'_>,
    authorize: &dyn Fn(&Attributes<'_>) -> Decision,
) -> Answer<Option<Impersonated>> {
    let wanted = read_headers(headers);
    if wanted.name.is_empty() {
        if wanted == User::default() {
            return Ok(None);
        }
        return Err(Box::new(Status::bad_request(format!("requested {} without impersonating a user name", go_syntax(&wanted)))));
    }
    let mut refusal = None;
    for mode in Mode::ALL {
        if !mode.applies(&wanted, attributes.user) {
            continue;
        }
        match mode.check(&wanted, attributes, authorize) {
            Ok(impersonated) => return Ok(Some(impersonated)),
            Err(status) => refusal = refusal.or(Some(status)),
        }
    }
    Err(refusal.expect("the legacy mode applies to every user"))
}

fn read_headers(headers: &HeaderMap) -> User {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let single = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            extra.entry(unescape(key)).or_default().push(text(value));
        }
    }
    User {
        name: single("impersonate-user"),
        uid: single("impersonate-uid"),
        groups: headers.get_all("impersonate-group").iter().map(text).collect(),
        extra,
    }
}

/// Undoes percent-encoding. A malformed key is kept as it is.
fn unescape(key: &str) -> String {
    let (bytes, mut out, mut at) = (key.as_bytes(), Vec::with_capacity(key.len()), 0);
    while at < bytes.len() {
        if bytes[at] != b'%' {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        let digits = bytes.get(at + 1..at + 3).and_then(|d| std::str::from_utf8(d).ok());
        let Some(byte) = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit())).and_then(|d| u8::from_str_radix(d, 16).ok()) else {
            return key.to_owned();
        };
        out.push(byte);
        at += 3;
    }
    String::from_utf8(out).unwrap_or_else(|_| key.to_owned())
}

/// The wanted user as Go prints it with `%#v`, which the message shows.
fn go_syntax(user: &User) -> String {
    let list = |items: &[String]| -> String {
        let items: Vec<String> = items.iter().map(|s| quote(s)).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let mut extra = "map[string][]string".to_owned();
    if user.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        let entries: Vec<String> = user.extra.iter().map(|(k, v)| format!("{}:{}", quote(k), list(v))).collect();
        let _ = write!(extra, "{{{}}}", entries.join(", "));
    }
    format!("&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}", quote(&user.name), quote(&user.uid))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A service account may act as the node its pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Everybody who is neither a node nor a service account.
    UserInfo,
    Legacy,
}

impl Mode {
    const ALL: [Mode; 5] = [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn verb(self) -> String {
        if self == Self::Legacy { "impersonate".to_owned() } else { format!("impersonate:{}", self.name()) }
    }

    fn applies(self, wanted: &User, requestor: &User) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        match self {
            Self::AssociatedNode => only_name && node_name(&wanted.name).is_some_and(|node| runs_on(requestor, node)),
            Self::ArbitraryNode => only_name && node_name(&wanted.name).is_some(),
            Self::ServiceAccount => only_name && account(&wanted.name).is_some(),
            Self::UserInfo => node_name(&wanted.name).is_none() && account(&wanted.name).is_none(),
            Self::Legacy => true,
        }
    }

    fn check(self, wanted: &User, attributes: &Attributes<'_>, authorize: &dyn Fn(&Attributes<'_>) -> Decision) -> Answer<Impersonated> {
        let requestor = self.requestor(attributes.user);
        if self != Self::Legacy {
            let verb = format!("impersonate-on:{}:{}", self.name(), attributes.verb);
            require(&Attributes { verb: &verb, user: &requestor, ..attributes.clone() }, authorize)?;
        }
        let check = Check { mode: self, verb: self.verb(), requestor: &requestor, authorize };
        let mut user = wanted.clone();
        check.user_name(&mut user)?;
        if !wanted.uid.is_empty() {
            check.one(AUTHENTICATION_GROUP, "uids", "", "", &wanted.uid)?;
        }
        check.groups(&wanted.groups)?;
        check.extra(&wanted.extra)?;
        let has = |user: &User, group: &str| user.in_group(group);
        if user.name == User::ANONYMOUS {
            if !has(&user, User::UNAUTHENTICATED) {
                user.groups.push(User::UNAUTHENTICATED.into());
            }
        } else if !has(&user, User::UNAUTHENTICATED) && !has(&user, User::AUTHENTICATED) {
            user.groups.push(User::AUTHENTICATED.into());
        }
        let constraint = if self == Self::Legacy { String::new() } else { check.verb };
        Ok(Impersonated { user, constraint })
    }

    /// The association with the node is proven by the mode's own condition, so that the check is the same on every node.
    fn requestor(self, user: &User) -> User {
        if self != Self::AssociatedNode {
            return user.clone();
        }
        let keys = user.extra.keys().cloned().collect();
        User { extra: BTreeMap::from([("authentication.kubernetes.io/associated-node-keys".to_owned(), keys)]), ..user.clone() }
    }
}

/// The checks on each part of the wanted user, in one mode.
struct Check<'a> {
    mode: Mode,
    verb: String,
    requestor: &'a User,
    authorize: &'a dyn Fn(&Attributes<'_>) -> Decision,
}

impl Check<'_> {
    fn constrained(&self) -> bool {
        self.mode != Mode::Legacy
    }

    /// Users and groups are core resources in the legacy mode.
    fn user_group(&self) -> &'static str {
        if self.constrained() { AUTHENTICATION_GROUP } else { "" }
    }

    fn attributes<'a>(&'a self, group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes::new(self.requestor, &self.verb, Target::Resource { group, version: "v1", resource, subresource, namespace, name })
    }

    fn one(&self, group: &str, resource: &str, subresource: &str, namespace: &str, name: &str) -> Answer<()> {
        require(&self.attributes(group, resource, subresource, namespace, name), self.authorize)
    }

    fn user_name(&self, user: &mut User) -> Answer<()> {
        let group = self.user_group();
        if let Some((namespace, name)) = account(&user.name) {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            if user.groups.is_empty() {
                user.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            }
            return self.one(group, "serviceaccounts", "", &namespace, &name);
        }
        if self.constrained()
            && let Some(node) = node_name(&user.name)
        {
            user.groups = vec!["system:nodes".to_owned()];
            let name = if self.mode == Mode::AssociatedNode { "*" } else { node };
            return self.one(group, "nodes", "", "", name);
        }
        self.one(group, "users", "", "", &user.name)
    }

    fn groups(&self, groups: &[String]) -> Answer<()> {
        let api_group = self.user_group();
        if self.constrained() {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(Box::new(forbidden(&self.attributes(api_group, "groups", "", "", ""), why)));
            }
            if groups.iter().any(|g| g == User::MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(Box::new(forbidden(&self.attributes(api_group, "groups", "", "", User::MASTERS), why)));
            }
            if groups.len() >= MANY_CHECKS && self.one(api_group, "groups", "", "", "*").is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.one(api_group, "groups", "", "", group))
    }

    fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Answer<()> {
        if self.constrained() {
            if let Some(why) = extra.iter().find_map(|(key, values)| refused_extra(key, values)) {
                return Err(Box::new(forbidden(&self.attributes(AUTHENTICATION_GROUP, "userextras", "", "", ""), &why)));
            }
            let many = extra.len() >= MANY_CHECKS || extra.values().map(Vec::len).sum::<usize>() >= MANY_CHECKS;
            if many && self.one(AUTHENTICATION_GROUP, "userextras", "*", "", "*").is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.one(AUTHENTICATION_GROUP, "userextras", key, "", value)?;
            }
        }
        Ok(())
    }
}

fn require(attributes: &Attributes<'_>, authorize: &dyn Fn(&Attributes<'_>) -> Decision) -> Answer<()> {
    match authorize(attributes) {
        Decision::Allow { .. } => Ok(()),
        Decision::NoOpinion { reason } => Err(Box::new(forbidden(attributes, &reason))),
    }
}

/// Why a constrained mode refuses an extra field, if it does.
fn refused_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".into());
    }
    if let Some(problem) = not_domain_prefixed(key) {
        return Some(format!("impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: {problem}", quote(key)));
    }
    if key.chars().any(char::is_uppercase) {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", quote(key)));
    }
    values.iter().any(String::is_empty).then(|| "impersonating the empty string value in extra is not allowed".into())
}

/// What is wrong with a key that is not a domain and a path, as upstream words it.
fn not_domain_prefixed(key: &str) -> Option<&'static str> {
    match key.split_once('/') {
        Some((domain, path)) if !path.is_empty() && is_subdomain(domain) => None,
        _ => Some("must be a domain and a path (such as \"acme.io/foo\")"),
    }
}

fn is_subdomain(name: &str) -> bool {
    let label = |l: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') && edge(l.as_bytes().first()) && edge(l.as_bytes().last())
    };
    name.len() <= MAX_SUBDOMAIN && name.split('.').all(label)
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| is_subdomain(name))
}

/// Namespace and name of a service account's user name.
pub(crate) fn account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let label = |s: &str| s.len() <= 63 && !s.contains('.') && is_subdomain(s);
    (label(namespace) && is_subdomain(name)).then_some((namespace, name))
}

/// Whether the requestor is a service account whose token names exactly this node.
fn runs_on(requestor: &User, node: &str) -> bool {
    let names = requestor.extra.get("authentication.kubernetes.io/node-name");
    account(&requestor.name).is_some() && names.is_some_and(|names| names.len() == 1 && names[0] == node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        map
    }

    fn review(user: &User) -> Attributes<'_> {
        let target =
            Target::Resource { group: AUTHENTICATION_GROUP, version: "v1", resource: "selfsubjectreviews", subresource: "", namespace: "", name: "" };
        Attributes::new(user, "create", target)
    }

    fn allow(_: &Attributes<'_>) -> Decision {
        Decision::Allow { reason: String::new() }
    }

    fn deny(_: &Attributes<'_>) -> Decision {
        Decision::NoOpinion { reason: String::new() }
    }

    /// `i-auth/impersonate.json`: headers and the user that upstream then sees.
    #[test]
    fn users_are_built_as_recorded() {
        let admin = User { name: "admin".into(), groups: vec![User::MASTERS.into()], ..User::default() };
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [&'a str]);
        let cases: [Case<'_>; 5] = [
            (&[("Impersonate-User", "jane")], "jane", &["system:authenticated"]),
            (
                &[("Impersonate-User", "jane"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops")],
                "jane",
                &["dev", "ops", "system:authenticated"],
            ),
            (
                &[("Impersonate-User", "system:serviceaccount:ns:default")],
                "system:serviceaccount:ns:default",
                &["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            ),
            (&[("Impersonate-User", "system:anonymous")], "system:anonymous", &["system:unauthenticated"]),
            (&[("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")], "jane", &["system:masters", "system:authenticated"]),
        ];
        for (pairs, name, groups) in cases {
            let found = impersonate(&headers(pairs), &review(&admin), &allow).unwrap().unwrap();
            assert_eq!((found.user.name.as_str(), found.user.groups.iter().map(String::as_str).collect::<Vec<_>>()), (name, groups.to_vec()));
        }
        let pairs = [
            ("Impersonate-User", "jane"),
            ("Impersonate-Extra-Scopes", "a"),
            ("Impersonate-Extra-Scopes", "b"),
            ("Impersonate-Extra-Acme%2Fproject", "p"),
        ];
        let found = impersonate(&headers(&pairs), &review(&admin), &allow).unwrap().unwrap();
        assert_eq!(found.user.extra["scopes"], ["a", "b"]);
        assert_eq!(found.user.extra["acme/project"], ["p"]);
        // `scopes` is no domain-prefixed key, so only the legacy mode can allow it.
        assert_eq!(found.constraint, "");
    }

    #[test]
    fn headers_without_a_user_are_refused() {
        let admin = User::default();
        let refused = |pairs: &[(&str, &str)]| impersonate(&headers(pairs), &review(&admin), &allow).unwrap_err();
        assert_eq!(
            refused(&[("Impersonate-Group", "dev")]).message,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"dev\"}, Extra:map[string][]string(nil)} without impersonating a user name"
        );
        assert_eq!(
            refused(&[("Impersonate-Extra-A", "dev")]).message,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string(nil), Extra:map[string][]string{\"a\":[]string{\"dev\"}}} without impersonating a user name"
        );
    }

    #[test]
    fn the_first_refusal_is_told() {
        let anonymous = User::anonymous();
        let status = impersonate(&headers(&[("Impersonate-User", "jane")]), &review(&anonymous), &deny).unwrap_err();
        assert_eq!(
            status.message,
            "selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:anonymous\" cannot impersonate-on:user-info:create resource \
             \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
        );
        assert_eq!(status.code, 403);
    }

    #[test]
    fn the_legacy_verb_suffices() {
        let boss = User { name: "boss".into(), ..User::default() };
        let legacy = |a: &Attributes<'_>| match (a.verb, &a.target) {
            ("impersonate", Target::Resource { group: "", resource: "users", name: "jane", .. }) => Decision::Allow { reason: String::new() },
            _ => Decision::NoOpinion { reason: String::new() },
        };
        let found = impersonate(&headers(&[("Impersonate-User", "jane")]), &review(&boss), &legacy).unwrap().unwrap();
        assert_eq!(found.constraint, "");
        assert!(impersonate(&headers(&[("Impersonate-User", "jane"), ("Impersonate-Group", "g")]), &review(&boss), &legacy).is_err());
    }

    #[test]
    fn a_service_account_may_be_its_own_node() {
        let mut agent = User { name: "system:serviceaccount:ns:agent".into(), ..User::default() };
        agent.extra.insert("authentication.kubernetes.io/node-name".into(), vec!["n1".into()]);
        let own = |a: &Attributes<'_>| match a.verb {
            "impersonate-on:associated-node:create" | "impersonate:associated-node" => Decision::Allow { reason: String::new() },
            _ => Decision::NoOpinion { reason: String::new() },
        };
        let found = impersonate(&headers(&[("Impersonate-User", "system:node:n1")]), &review(&agent), &own).unwrap().unwrap();
        assert_eq!(found.user.groups, ["system:nodes", "system:authenticated"]);
        assert_eq!(found.constraint, "impersonate:associated-node");
        assert!(impersonate(&headers(&[("Impersonate-User", "system:node:n2")]), &review(&agent), &own).is_err());
    }
}
