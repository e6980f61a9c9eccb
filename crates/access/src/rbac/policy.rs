//! The policy objects of one cluster, indexed for decisions.
//!
//! ```text
//! user, groups --> bindings that name one of them --> their role's rules --> does a rule allow the attributes?
//! ```
//!
//! Bindings are found by subject, so a decision looks only at bindings that concern the user, however many others there are. Candidates
//! are visited in one fixed order, so that the reason given for one state is always the same: cluster bindings first, among them those
//! with the most subjects (the likeliest to allow), then by name. Upstream's order is arbitrary.
//!
//! A binding whose role is missing grants nothing and is named in the reason of a refusal.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use wheelhouse_meta::gotext::quote;

use super::rule::{Rule, nullable};
use super::shared;
use crate::attributes::{Attributes, Decision};
use crate::user::User;

pub const GROUP: &str = "rbac.authorization.k8s.io";

/// The kinds that make up the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl PolicyKind {
    pub const ALL: [PolicyKind; 4] = [Self::ClusterRole, Self::Role, Self::ClusterRoleBinding, Self::RoleBinding];

    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    pub fn from_resource(resource: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.resource() == resource)
    }
}

/// What a binding points at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    pub api_group: String,
    pub kind: String,
    pub name: String,
}

/// Whom a binding names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    pub api_group: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Binding {
    #[serde(skip)]
    pub(super) namespace: String,
    #[serde(skip)]
    pub(super) name: String,
    pub(super) role_ref: RoleRef,
    #[serde(deserialize_with = "nullable")]
    pub(super) subjects: Vec<Subject>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RoleBody {
    #[serde(deserialize_with = "nullable")]
    rules: Vec<Rule>,
}

/// An object that is no policy object of its kind.
#[derive(Debug, thiserror::Error)]
#[error("{kind:?} {namespace}/{name} cannot be read")]
pub struct PolicyError {
    kind: PolicyKind,
    namespace: String,
    name: String,
    #[source]
    source: serde_json::Error,
}

/// A user or group name as an index key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SubjectKey {
    User(String),
    Group(String),
}

/// The bindings of one scope (the cluster, or one namespace), and for each subject those that name it.
#[derive(Clone, Debug, Default)]
struct Scope {
    bindings: BTreeMap<String, Arc<Binding>>,
    by_subject: HashMap<SubjectKey, Vec<Arc<Binding>>>,
}

/// The rules of one namespace's roles, by name.
type Roles = HashMap<String, Arc<[Rule]>>;

/// Cloning it costs a reference per namespace; a change then copies the one scope that it touches.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// By namespace, then name; the empty namespace holds ClusterRoles.
    roles: HashMap<String, Arc<Roles>>,
    /// By namespace; the empty namespace holds ClusterRoleBindings.
    scopes: HashMap<String, Arc<Scope>>,
}

/// A role that a binding names does not exist. Prints as upstream's lister says it, in the singular.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource}.rbac.authorization.k8s.io {} not found", quote(.name))]
pub struct RoleNotFound {
    pub resource: &'static str,
    pub name: String,
}

/// All rules a user has in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesFor {
    pub rules: Vec<Rule>,
    /// Roles that were named and are missing; the rules are then incomplete.
    pub errors: Vec<RoleNotFound>,
}

impl Policy {
    /// Takes in a created or changed object.
    pub fn upsert(&mut self, kind: PolicyKind, namespace: &str, name: &str, object: &Value) -> Result<(), PolicyError> {
        let fail = |source| PolicyError { kind, namespace: namespace.to_owned(), name: name.to_owned(), source };
        match kind {
            PolicyKind::Role | PolicyKind::ClusterRole => {
                let body = RoleBody::deserialize(object).map_err(fail)?;
                let rules = shared::rules(kind, namespace, name, body.rules);
                Arc::make_mut(self.roles.entry(namespace.to_owned()).or_default()).insert(name.to_owned(), rules);
            }
            PolicyKind::RoleBinding | PolicyKind::ClusterRoleBinding => {
                let body = Binding::deserialize(object).map_err(fail)?;
                let binding = Binding { namespace: namespace.to_owned(), name: name.to_owned(), ..body };
                Arc::make_mut(self.scopes.entry(namespace.to_owned()).or_default()).insert(binding);
            }
        }
        Ok(())
    }

    pub fn remove(&mut self, kind: PolicyKind, namespace: &str, name: &str) {
        match kind {
            PolicyKind::Role | PolicyKind::ClusterRole => {
                if let Some(roles) = self.roles.get_mut(namespace) {
                    let roles = Arc::make_mut(roles);
                    roles.remove(name);
                    if roles.is_empty() {
                        self.roles.remove(namespace);
                    }
                }
            }
            PolicyKind::RoleBinding | PolicyKind::ClusterRoleBinding => {
                if let Some(scope) = self.scopes.get_mut(namespace) {
                    let scope = Arc::make_mut(scope);
                    scope.remove(name);
                    if scope.bindings.is_empty() {
                        self.scopes.remove(namespace);
                    }
                }
            }
        }
    }

    /// RBAC's own word; see [`crate::authorizer`] for the whole chain.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let mut missing = Vec::new();
        let mut reason = None;
        self.visit(attributes.user, attributes.namespace(), |found| match found {
            Ok((binding, subject, rules)) => {
                if rules.iter().any(|rule| rule.allows(attributes)) {
                    reason = Some(format!("RBAC: allowed by {}", describe(binding, subject)));
                }
                reason.is_none()
            }
            Err(error) => {
                missing.push(error);
                true
            }
        });
        match reason {
            Some(reason) => Decision::Allow { reason },
            None if missing.is_empty() => Decision::NoOpinion { reason: String::new() },
            None => Decision::NoOpinion { reason: format!("RBAC: {}", aggregate(&missing)) },
        }
    }

    /// Everything the user may do in `namespace` (with what holds in the whole cluster); an empty namespace asks for the latter only.
    pub fn rules_for(&self, user: &User, namespace: &str) -> RulesFor {
        let mut answer = RulesFor::default();
        self.visit(user, namespace, |found| {
            match found {
                Ok((_, _, rules)) => answer.rules.extend_from_slice(rules),
                Err(error) => answer.errors.push(error),
            }
            true
        });
        answer
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Result<&Arc<[Rule]>, RoleNotFound> {
        let (resource, namespace) = if role.kind == "Role" { ("role", namespace) } else { ("clusterrole", "") };
        let found = self.roles.get(namespace).and_then(|roles| roles.get(&role.name));
        found.ok_or_else(|| RoleNotFound { resource, name: role.name.clone() })
    }

    /// Calls back with every binding of the user until the callback answers false.
    fn visit<'a>(&'a self, user: &User, namespace: &str, mut each: impl FnMut(Result<(&'a Binding, &'a Subject, &'a [Rule]), RoleNotFound>) -> bool) {
        let cluster = self.scopes.get("");
        let local = if namespace.is_empty() { None } else { self.scopes.get(namespace) };
        for scope in [cluster, local].into_iter().flatten() {
            for binding in scope.candidates(user) {
                let Some(subject) = binding.subjects.iter().find(|s| s.names(user, &binding.namespace)) else { continue };
                let found = self.role_rules(&binding.role_ref, &binding.namespace).map(|rules| (binding, subject, &**rules));
                if !each(found) {
                    return;
                }
            }
        }
    }
}

impl Scope {
    fn insert(&mut self, binding: Binding) {
        self.remove(&binding.name);
        let binding = shared::binding(binding);
        for key in binding.keys() {
            let named = self.by_subject.entry(key).or_default();
            // One binding may name a subject twice.
            if !named.last().is_some_and(|last| Arc::ptr_eq(last, &binding)) {
                named.push(Arc::clone(&binding));
            }
        }
        self.bindings.insert(binding.name.clone(), binding);
    }

    fn remove(&mut self, name: &str) {
        let Some(old) = self.bindings.remove(name) else { return };
        for key in old.keys() {
            if let Some(named) = self.by_subject.get_mut(&key) {
                named.retain(|binding| !Arc::ptr_eq(binding, &old));
                if named.is_empty() {
                    self.by_subject.remove(&key);
                }
            }
        }
    }

    fn candidates(&self, user: &User) -> Vec<&Binding> {
        let keys = std::iter::once(SubjectKey::User(user.name.clone())).chain(user.groups.iter().map(|g| SubjectKey::Group(g.clone())));
        let mut found: Vec<&Binding> = keys.filter_map(|key| self.by_subject.get(&key)).flatten().map(|binding| &**binding).collect();
        found.sort_by(|a, b| b.subjects.len().cmp(&a.subjects.len()).then_with(|| a.name.cmp(&b.name)));
        found.dedup_by(|a, b| a.name == b.name);
        found
    }
}

impl Binding {
    fn keys(&self) -> impl Iterator<Item = SubjectKey> {
        self.subjects.iter().filter_map(|s| match s.kind.as_str() {
            "User" => Some(SubjectKey::User(s.name.clone())),
            "Group" => Some(SubjectKey::Group(s.name.clone())),
            "ServiceAccount" => s.account_user(&self.namespace).map(SubjectKey::User),
            _ => None,
        })
    }
}

impl Subject {
    /// The user name of a ServiceAccount subject; `None` if no namespace is known (a ClusterRoleBinding that gives none).
    fn account_user(&self, binding_namespace: &str) -> Option<String> {
        let namespace = if self.namespace.is_empty() { binding_namespace } else { &self.namespace };
        (!namespace.is_empty()).then(|| format!("system:serviceaccount:{namespace}:{}", self.name))
    }

    fn names(&self, user: &User, binding_namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == user.name,
            "Group" => user.in_group(&self.name),
            "ServiceAccount" => self.account_user(binding_namespace).is_some_and(|name| name == user.name),
            _ => false,
        }
    }

    fn describe(&self, binding_namespace: &str) -> String {
        if self.kind == "ServiceAccount" {
            let namespace = if self.namespace.is_empty() { binding_namespace } else { &self.namespace };
            return format!("ServiceAccount {}", quote(&format!("{}/{namespace}", self.name)));
        }
        format!("{} {}", self.kind, quote(&self.name))
    }
}

fn describe(binding: &Binding, subject: &Subject) -> String {
    let (kind, name) = if binding.namespace.is_empty() {
        ("ClusterRoleBinding", binding.name.clone())
    } else {
        ("RoleBinding", format!("{}/{}", binding.name, binding.namespace))
    };
    let role = &binding.role_ref;
    format!("{kind} {} of {} {} to {}", quote(&name), role.kind, quote(&role.name), subject.describe(&binding.namespace))
}

/// Errors as upstream joins them: one plain, several in brackets, repeats once.
pub(crate) fn aggregate(errors: &[RoleNotFound]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) }
}
