//! Nobody grants what they do not hold.
//!
//! Writing a role needs either the verb `escalate` on it or all of its rules; writing a binding needs either the verb `bind` on the
//! role or all of the role's rules. The check runs after mutating admission and before validation.

use serde::Deserialize;
use serde_json::Value;
use wheelhouse_meta::gotext::quote;
use wheelhouse_meta::{GroupResource, Status};

use super::policy::{GROUP, Policy, PolicyKind, RoleRef};
use super::rule::{Rule, compact_rules, quoted_list, uncovered};
use crate::admission::{Operation, Request};
use crate::attributes::{Attributes, Decision, Target};
use crate::lookups::Answer;
use crate::user::User;

const AGGREGATION: &str = "must have cluster-admin privileges to use the aggregationRule";

/// Refuses (403) the create or update of an RBAC object that would grant more than its writer may. Other requests pass.
pub fn check(request: &Request<'_>, object: &Value, policy: &Policy, authorize: &dyn Fn(&Attributes<'_>) -> Decision) -> Answer<()> {
    let writes = matches!(request.operation, Operation::Create | Operation::Update);
    let Some(kind) = PolicyKind::from_resource(request.resource()).filter(|_| writes && request.group() == GROUP) else { return Ok(()) };
    if request.attributes.user.in_group(User::MASTERS) || request.old.is_some_and(|old| only_garbage_collection(object, old)) {
        return Ok(());
    }
    let check = Check { request, object, policy, authorize, kind };
    match kind {
        PolicyKind::Role | PolicyKind::ClusterRole => check.role(),
        PolicyKind::RoleBinding | PolicyKind::ClusterRoleBinding => check.binding(),
    }
}

struct Check<'a> {
    request: &'a Request<'a>,
    object: &'a Value,
    policy: &'a Policy,
    authorize: &'a dyn Fn(&Attributes<'_>) -> Decision,
    kind: PolicyKind,
}

impl Check<'_> {
    fn role(&self) -> Answer<()> {
        let attributes = self.request.attributes;
        let Target::Resource { name, namespace, .. } = attributes.target else { return Ok(()) };
        if self.allows("escalate", self.kind.resource(), namespace, name) {
            return Ok(());
        }
        let rules: Vec<Rule> = Option::<Vec<Rule>>::deserialize(&self.object["rules"]).ok().flatten().unwrap_or_default();
        self.require(&rules)?;
        // An aggregated role gathers whatever is labelled for it, now and later.
        let aggregates = |role: &Value| role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|s| !s.is_empty());
        if self.kind == PolicyKind::ClusterRole && (aggregates(self.object) || self.request.old.is_some_and(aggregates)) {
            let all = || vec!["*".to_owned()];
            let everything = [
                Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
                Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
            ];
            if self.missing(&everything).is_some() {
                return Err(self.forbidden(AGGREGATION));
            }
        }
        Ok(())
    }

    fn binding(&self) -> Answer<()> {
        let role: RoleRef = RoleRef::deserialize(&self.object["roleRef"]).unwrap_or_default();
        let namespace = self.request.attributes.namespace();
        let resource = match role.kind.as_str() {
            "Role" => "roles",
            "ClusterRole" => "clusterroles",
            kind => return Err(Box::new(Status::plain(format!("unsupported role reference kind: {}", quote(kind))))),
        };
        if self.allows("bind", resource, namespace, &role.name) {
            return Ok(());
        }
        match self.policy.role_rules(&role, namespace) {
            Ok(rules) => self.require(rules),
            // The resource is the binding's: upstream names what was requested.
            Err(error) => Err(Box::new(Status::not_found(&self.resource(), &error.name))),
        }
    }

    fn allows(&self, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let target = Target::Resource { group: GROUP, version: "*", resource, subresource: "", namespace, name };
        (self.authorize)(&Attributes::new(self.request.attributes.user, verb, target)).allowed()
    }

    fn require(&self, rules: &[Rule]) -> Answer<()> {
        self.missing(rules).map_or(Ok(()), |why| Err(self.forbidden(&why)))
    }

    /// Upstream's account of the rules that the user does not hold.
    fn missing(&self, rules: &[Rule]) -> Option<String> {
        let user = self.request.attributes.user;
        let held = self.policy.rules_for(user, self.request.attributes.namespace());
        let missing = uncovered(&held.rules, rules);
        if missing.is_empty() {
            return None;
        }
        let mut lines: Vec<String> = compact_rules(&missing).iter().map(Rule::compact).collect();
        lines.sort();
        lines.dedup();
        let groups = quoted_list(&user.groups);
        let mut why =
            format!("user {} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}", quote(&user.name), lines.join("\n"));
        if !held.errors.is_empty() {
            let errors: Vec<String> = held.errors.iter().map(|e| format!("{} {} not found", self.resource(), quote(&e.name))).collect();
            let errors = if errors.len() == 1 { errors[0].clone() } else { format!("[{}]", errors.join(", ")) };
            why.push_str(&format!("; resolution errors: [{errors}]"));
        }
        Some(why)
    }

    fn resource(&self) -> GroupResource {
        GroupResource::new(GROUP, self.kind.resource())
    }

    fn forbidden(&self, why: &str) -> Box<Status> {
        let name = self.object["metadata"]["name"].as_str().unwrap_or_default();
        Box::new(Status::forbidden(&self.resource(), name, why))
    }
}

/// Whether an update changes nothing but owner references and finalizers, which the garbage collector must always be able to do.
fn only_garbage_collection(new: &Value, old: &Value) -> bool {
    let core = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for key in ["ownerReferences", "finalizers", "managedFields", "selfLink"] {
                metadata.remove(key);
            }
        }
        object
    };
    core(new) == core(old)
}
