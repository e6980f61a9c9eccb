//! ResourceQuota: what a write uses of its namespace's quotas.
//!
//! ```text
//! (new object, old object, quotas) --charge--> the quotas with their new `status.used`, or a refusal
//! ```
//!
//! Upstream charges a quota before the write and corrects it later. Here what every quota of a namespace has used is one record, its
//! [`settle`]d ledger, compared and written in the object's own transaction: usage is exact and two writes cannot take the last place
//! together. A deletion gives back what it used in the same way and is never refused. The quotas' `status.used` is published from a recount
//! by the `resourcequota-controller`, so that no transaction writes two quotas.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wheelhouse_meta::quantity::{Format, Quantity};

use super::pod::{containers, text};
use super::resources::{self, Resources, add};
use super::{Operation, Request};
use crate::lookups::{Answer, Lookups};

/// Resources of pods that containers must state when a quota limits them.
const STATED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// Kinds that are counted under their plain plural beside `count/<plural>`.
const PLAIN_COUNTS: [&str; 7] = ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];

/// The ledger of a namespace after the write: `{"<uid of a quota>": {"<resource>": "<quantity>"}}`. `ledger` is the one before, `quotas` all
/// quotas of the namespace; `lookups` must be of the same state. A quota that has no entry, or one for other resources than it limits now,
/// is counted afresh.
pub fn settle(request: &Request<'_>, new: Option<&Value>, quotas: &[Value], ledger: &Value, lookups: &dyn Lookups) -> Answer<Value> {
    let mut counted = Vec::with_capacity(quotas.len());
    for quota in quotas {
        let hard = resources::read(&quota["spec"]["hard"]);
        let entry = resources::read(&ledger[text(&quota["metadata"], "uid")]);
        let used = if entry.keys().eq(hard.keys()) { entry } else { count(quota, request.attributes.namespace(), lookups) };
        let mut quota = quota.clone();
        quota["status"] = json!({"hard": hard, "used": used});
        counted.push(quota);
    }
    for changed in charge(request, new, &counted)? {
        let same = |quota: &&mut Value| quota["metadata"]["uid"] == changed["metadata"]["uid"];
        if let Some(quota) = counted.iter_mut().find(same) {
            *quota = changed;
        }
    }
    Ok(counted.iter().map(|quota| (text(&quota["metadata"], "uid").to_owned(), quota["status"]["used"].clone())).collect())
}

/// Whether a write can change what is used at all.
pub fn concerns(request: &Request<'_>, new: Option<&Value>) -> bool {
    match request.operation {
        Operation::Create | Operation::Delete => request.subresource().is_empty(),
        Operation::Update => {
            let used = |object: &Value| usage(request.group(), request.resource(), object);
            is_charged(request) && request.old.map(used) != new.map(used)
        }
        Operation::Connect => false,
    }
}

/// What the objects of a namespace use of a quota, counted from nothing: an entry for everything that it limits.
pub fn count(quota: &Value, namespace: &str, lookups: &dyn Lookups) -> Resources {
    let hard = resources::read(&quota["spec"]["hard"]);
    let mut total: Resources = hard.keys().map(|name| (name.clone(), Quantity::zero(Format::DecimalSi))).collect();
    for (group, resource) in counted_resources(hard.keys().map(String::as_str)) {
        for object in lookups.list(&group, &resource, namespace) {
            if matches(&group, &resource, quota, &object) {
                let used = usage(&group, &resource, &object).into_iter().filter(|(name, _)| hard.contains_key(name)).collect();
                add(&mut total, &used);
            }
        }
    }
    total
}

/// Group and plural of everything that the named limits speak of.
pub fn counted_resources<'a>(limits: impl Iterator<Item = &'a str>) -> BTreeSet<(String, String)> {
    let core = |plural: &str| (String::new(), plural.to_owned());
    limits
        .map(|name| match name.strip_prefix("count/") {
            Some(counted) => {
                let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
                (group.to_owned(), plural.to_owned())
            }
            None if PLAIN_COUNTS.contains(&name) => core(name),
            None if name.starts_with("services.") => core("services"),
            None if name == "requests.storage" || name.contains(".storageclass.storage.k8s.io/") => core("persistentvolumeclaims"),
            None => core("pods"),
        })
        .collect()
}

fn is_charged(request: &Request<'_>) -> bool {
    // A pod that has finished gives back what it used, which its status tells.
    let of_pod = request.group().is_empty() && request.resource() == "pods" && matches!(request.subresource(), "resize" | "status");
    request.subresource().is_empty() || of_pod
}

/// The quotas of the namespace that change, or the refusal. `new` is `None` for deletes; `quotas` are all of the namespace.
pub fn charge(request: &Request<'_>, new: Option<&Value>, quotas: &[Value]) -> Answer<Vec<Value>> {
    let counted = matches!(request.operation, Operation::Create | Operation::Update | Operation::Delete);
    if !counted || !is_charged(request) {
        return Ok(Vec::new());
    }
    let old = request.old.filter(|_| request.operation != Operation::Create);
    let mut changed = Vec::new();
    for quota in quotas {
        let before = old
            .filter(|o| matches(request.group(), request.resource(), quota, o))
            .map(|o| usage(request.group(), request.resource(), o))
            .unwrap_or_default();
        let after = new
            .filter(|o| matches(request.group(), request.resource(), quota, o))
            .map(|o| usage(request.group(), request.resource(), o))
            .unwrap_or_default();
        changed.extend(charge_one(request, quota, new, before, after)?);
    }
    Ok(changed)
}

fn charge_one(request: &Request<'_>, quota: &Value, new: Option<&Value>, before: Resources, after: Resources) -> Answer<Option<Value>> {
    let name = text(&quota["metadata"], "name");
    let (hard, mut used) = (resources::read(&quota["status"]["hard"]), resources::read(&quota["status"]["used"]));
    let delta: BTreeMap<String, Quantity> = difference(&after, &before).into_iter().filter(|(key, _)| hard.contains_key(key)).collect();
    if let Some(object) = new.filter(|_| !after.is_empty()) {
        if let Some(why) = unstated(request, object, &hard) {
            return Err(request.forbidden(new, format!("failed quota: {name}: {why}")));
        }
        let unknown: Vec<&str> = delta.keys().filter(|key| !used.contains_key(*key)).map(String::as_str).collect();
        if !unknown.is_empty() {
            return Err(request.forbidden(new, format!("status unknown for quota: {name}, resources: {}", unknown.join(","))));
        }
    }
    let zero = Quantity::zero(Format::DecimalSi);
    let exceeded: Vec<&String> = delta
        .iter()
        .filter(|(key, more)| {
            let mut total = used.get(*key).unwrap_or(&zero).clone();
            total.add(more);
            more.sign() > 0 && total > hard[*key]
        })
        .map(|(key, _)| key)
        .collect();
    if !exceeded.is_empty() {
        let print = |list: &Resources| exceeded.iter().map(|key| format!("{key}={}", list.get(*key).unwrap_or(&zero))).collect::<Vec<_>>().join(",");
        let why = format!("exceeded quota: {name}, requested: {}, used: {}, limited: {}", print(&delta), print(&used), print(&hard));
        return Err(request.forbidden(new, why));
    }
    if delta.is_empty() {
        return Ok(None);
    }
    add(&mut used, &delta);
    let mut quota = quota.clone();
    quota["status"]["used"] = used.iter().map(|(key, value)| (key.clone(), json!(value.to_string()))).collect();
    Ok(Some(quota))
}

/// What is more (positive) or less (negative) now; what is the same is left out.
fn difference(after: &Resources, before: &Resources) -> Resources {
    let mut delta = after.clone();
    for (key, value) in before {
        match delta.get_mut(key) {
            Some(more) => more.sub(value),
            None => {
                let mut less = value.clone();
                less.neg();
                delta.insert(key.clone(), less);
            }
        }
    }
    delta.retain(|_, value| !value.is_zero());
    delta
}

/// What one object uses, under every name that a quota may limit.
pub fn usage(group: &str, resource: &str, object: &Value) -> Resources {
    let one = || Quantity::new(1, Format::DecimalSi);
    let mut used = Resources::new();
    let counted = if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") };
    used.insert(counted, one());
    if !group.is_empty() {
        return used;
    }
    let finished = resource == "pods" && matches!(text(&object["status"], "phase"), "Failed" | "Succeeded");
    if PLAIN_COUNTS.contains(&resource) && !finished {
        used.insert(resource.to_owned(), one());
    }
    match resource {
        "pods" if !finished => used.extend(pod_usage(object)),
        "services" => used.extend(service_usage(object)),
        "persistentvolumeclaims" => used.extend(claim_usage(object)),
        _ => {}
    }
    used
}

fn pod_usage(pod: &Value) -> Resources {
    let overhead = resources::read(&pod["spec"]["overhead"]);
    let with_overhead = |part: &str| {
        let mut total = resources::of_pod(pod, part);
        if part == "requests" {
            add(&mut total, &overhead);
        } else {
            // An unlimited resource stays unlimited.
            let limited: Resources = overhead.iter().filter(|(key, _)| total.contains_key(*key)).map(|(k, v)| (k.clone(), v.clone())).collect();
            add(&mut total, &limited);
        }
        total
    };
    names(&with_overhead("requests"), &with_overhead("limits"))
}

/// Requests and limits under the names of quotas.
fn names(requests: &Resources, limits: &Resources) -> Resources {
    let mut used = Resources::new();
    for (name, value) in requests {
        let standard = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if standard {
            used.insert(name.clone(), value.clone());
        }
        used.insert(format!("requests.{name}"), value.clone());
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(value) = limits.get(name) {
            used.insert(format!("limits.{name}"), value.clone());
        }
    }
    used
}

fn service_usage(service: &Value) -> Resources {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |n: usize| Quantity::new(i64::try_from(n).unwrap_or(i64::MAX), Format::DecimalSi);
    let mut used = Resources::new();
    let node_ports = match text(spec, "type") {
        "NodePort" => ports.len(),
        "LoadBalancer" => {
            used.insert("services.loadbalancers".to_owned(), number(1));
            let given = ports.iter().filter(|p| p["nodePort"].as_i64().is_some_and(|port| port != 0)).count();
            if spec["allocateLoadBalancerNodePorts"] == false { given } else { ports.len() }
        }
        _ => 0,
    };
    used.insert("services.nodeports".to_owned(), number(node_ports));
    used
}

fn claim_usage(claim: &Value) -> Resources {
    let one = Quantity::new(1, Format::DecimalSi);
    let storage = resources::read(&claim["spec"]["resources"]["requests"]).remove("storage");
    let class = text(&claim["spec"], "storageClassName");
    let mut used = Resources::new();
    let mut note = |key: String, value: Quantity| {
        used.insert(key, value);
    };
    if let Some(storage) = storage {
        if !class.is_empty() {
            note(format!("{class}.storageclass.storage.k8s.io/requests.storage"), storage.clone());
        }
        note("requests.storage".to_owned(), storage);
    }
    if !class.is_empty() {
        note(format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), one);
    }
    used
}

/// What containers leave open although a quota limits it, in upstream's words.
fn unstated(request: &Request<'_>, pod: &Value, hard: &Resources) -> Option<String> {
    if !request.is("", "pods") || request.operation != Operation::Create {
        return None;
    }
    let mut open: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for container in ["containers", "initContainers"].into_iter().flat_map(|list| containers(pod, list)) {
        let stated = names(&resources::read(&container["resources"]["requests"]), &resources::read(&container["resources"]["limits"]));
        for name in STATED.into_iter().filter(|name| hard.contains_key(*name) && !stated.contains_key(*name)) {
            open.entry(name).or_default().push(text(container, "name"));
        }
    }
    let parts: Vec<String> = open
        .into_iter()
        .map(|(name, mut containers)| {
            containers.sort_unstable();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

/// Whether the quota's scopes select the object. Scopes speak of pods; a quota that has one selects nothing else.
fn matches(group: &str, resource: &str, quota: &Value, object: &Value) -> bool {
    let plain = quota["spec"]["scopes"].as_array().into_iter().flatten().map(|scope| json!({"scopeName": scope, "operator": "Exists"}));
    let selectors = quota["spec"]["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten().cloned();
    let pods = group.is_empty() && resource == "pods";
    plain.chain(selectors).all(|selector| pods && scope_matches(&selector, object))
}

fn scope_matches(selector: &Value, pod: &Value) -> bool {
    let spec = &pod["spec"];
    let terminating = spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    match text(selector, "scopeName") {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "CrossNamespacePodAffinity" => crosses_namespaces(spec),
        "PriorityClass" => {
            let class = text(spec, "priorityClassName");
            let listed = selector["values"].as_array().is_some_and(|values| values.iter().any(|v| v == class));
            match text(selector, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                _ => false,
            }
        }
        _ => false,
    }
}

fn is_best_effort(pod: &Value) -> bool {
    let states = |object: &Value| {
        ["requests", "limits"]
            .iter()
            .any(|part| resources::read(&object["resources"][part]).iter().any(|(name, q)| matches!(name.as_str(), "cpu" | "memory") && !q.is_zero()))
    };
    !states(&pod["spec"]) && !["containers", "initContainers"].into_iter().flat_map(|list| containers(pod, list)).any(states)
}

fn crosses_namespaces(spec: &Value) -> bool {
    let crosses = |term: &Value| term["namespaces"].as_array().is_some_and(|n| !n.is_empty()) || term["namespaceSelector"].is_object();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let affinity = &spec["affinity"][kind];
        let required = affinity["requiredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten();
        let preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten();
        required.chain(preferred.map(|p| &p["podAffinityTerm"])).any(crosses)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{Attributes, Target};
    use crate::user::User;
    use wheelhouse_base::Timestamp;

    fn play(resource: &str, operation: Operation, new: Option<&Value>, old: Option<&Value>, quota: &Value) -> Answer<Vec<Value>> {
        let user = User::default();
        let target = Target::Resource { group: "", version: "v1", resource, subresource: "", namespace: "ns", name: "" };
        let attributes = Attributes::new(&user, "create", target);
        let request = Request { attributes: &attributes, operation, old, dry_run: false, now: Timestamp::default(), seed: 0 };
        charge(&request, new, std::slice::from_ref(quota))
    }

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q", "resourceVersion": "5"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    fn pod(cpu: &str) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}]}})
    }

    #[test]
    fn usage_goes_up_and_down_with_objects() {
        let q = quota(json!({"pods": "2", "requests.cpu": "1", "services": "5"}), json!({"pods": "1", "requests.cpu": "200m", "services": "0"}));
        let charged = play("pods", Operation::Create, Some(&pod("300m")), None, &q).unwrap();
        assert_eq!(charged[0]["status"]["used"], json!({"pods": "2", "requests.cpu": "500m", "services": "0"}));
        assert_eq!(charged[0]["metadata"]["resourceVersion"], "5");
        let given_back = play("pods", Operation::Delete, None, Some(&pod("300m")), &charged[0]).unwrap();
        assert_eq!(given_back[0]["status"]["used"], q["status"]["used"]);
        // A pod that has finished gives its place back and is only counted.
        let mut done = pod("300m");
        done["status"] = json!({"phase": "Succeeded"});
        let released = play("pods", Operation::Update, Some(&done), Some(&pod("300m")), &charged[0]).unwrap();
        assert_eq!(released[0]["status"]["used"], q["status"]["used"]);
        assert!(play("configmaps", Operation::Create, Some(&json!({})), None, &q).unwrap().is_empty());
    }

    #[test]
    fn refusals_name_what_is_short() {
        let q = quota(json!({"pods": "1", "requests.cpu": "1"}), json!({"pods": "1", "requests.cpu": "900m"}));
        assert_eq!(
            play("pods", Operation::Create, Some(&pod("200m")), None, &q).unwrap_err().message,
            "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=200m, used: pods=1,requests.cpu=900m, limited: pods=1,requests.cpu=1"
        );
        let memory = quota(json!({"limits.memory": "1Gi", "memory": "1Gi"}), json!({"limits.memory": "0", "memory": "0"}));
        assert_eq!(
            play("pods", Operation::Create, Some(&pod("1")), None, &memory).unwrap_err().message,
            "pods \"p\" is forbidden: failed quota: q: must specify limits.memory for: c; memory for: c"
        );
        let fresh = quota(json!({"pods": "1"}), json!({}));
        assert_eq!(
            play("pods", Operation::Create, Some(&pod("1")), None, &fresh).unwrap_err().message,
            "pods \"p\" is forbidden: status unknown for quota: q, resources: pods"
        );
        // An over-used quota lets things shrink and go.
        let over = quota(json!({"pods": "1", "requests.cpu": "1"}), json!({"pods": "3", "requests.cpu": "3"}));
        assert!(play("pods", Operation::Delete, None, Some(&pod("1")), &over).is_ok());
        assert!(play("pods", Operation::Update, Some(&pod("500m")), Some(&pod("1")), &over).is_ok());
    }

    #[test]
    fn scopes_select_pods() {
        let mut q = quota(json!({"pods": "10"}), json!({"pods": "0"}));
        let charged = |q: &Value, pod: &Value| !play("pods", Operation::Create, Some(pod), None, q).unwrap().is_empty();
        q["spec"]["scopes"] = json!(["BestEffort"]);
        assert!(!charged(&q, &pod("1")) && charged(&q, &json!({"spec": {"containers": [{"name": "c"}]}})));
        q["spec"]["scopes"] = json!(["NotTerminating"]);
        let mut short = pod("1");
        short["spec"]["activeDeadlineSeconds"] = json!(5);
        assert!(charged(&q, &pod("1")) && !charged(&q, &short));
        q["spec"] = json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}});
        let mut high = pod("1");
        high["spec"]["priorityClassName"] = json!("high");
        assert!(charged(&q, &high) && !charged(&q, &pod("1")));
    }

    #[test]
    fn a_ledger_begins_with_a_count_and_goes_on_with_what_changes() {
        let quota = json!({"metadata": {"name": "q", "uid": "u"}, "spec": {"hard": {"pods": "2", "requests.cpu": "1", "count/configmaps": "3"}}});
        let mut there = pod("300m");
        there["metadata"]["namespace"] = json!("ns");
        let config = json!({"metadata": {"name": "c", "namespace": "ns"}});
        let world = crate::MemoryLookups::default().with("", "pods", there.clone()).with("", "configmaps", config);
        let settle = |operation: Operation, new: Option<&Value>, old: Option<&Value>, ledger: &Value| {
            let user = User::default();
            let target = Target::Resource { group: "", version: "v1", resource: "pods", subresource: "", namespace: "ns", name: "" };
            let attributes = Attributes::new(&user, "create", target);
            let request = Request { attributes: &attributes, operation, old, dry_run: false, now: Timestamp::default(), seed: 0 };
            assert!(concerns(&request, new));
            super::settle(&request, new, std::slice::from_ref(&quota), ledger, &world)
        };
        let first = settle(Operation::Create, Some(&pod("200m")), None, &json!({})).unwrap();
        assert_eq!(first, json!({"u": {"count/configmaps": "1", "pods": "2", "requests.cpu": "500m"}}));
        let refused = settle(Operation::Create, Some(&pod("100m")), None, &first).unwrap_err();
        assert!(refused.message.contains("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"), "{}", refused.message);
        let less = settle(Operation::Delete, None, Some(&pod("200m")), &first).unwrap();
        assert_eq!(less["u"]["pods"], "1");
        // An entry of a quota that has gone, or of other limits, counts for nothing.
        let other = json!({"gone": {"pods": "9"}, "u": {"pods": "9"}});
        assert_eq!(settle(Operation::Create, Some(&pod("200m")), None, &other).unwrap(), first);
    }

    #[test]
    fn services_and_claims_are_counted_by_what_they_take() {
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
        let used = usage("", "services", &service);
        assert_eq!(["services", "services.nodeports", "services.loadbalancers", "count/services"].map(|k| used[k].to_string()), ["1", "2", "1", "1"]);
        let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
        let used = usage("", "persistentvolumeclaims", &claim);
        assert_eq!(used["fast.storageclass.storage.k8s.io/requests.storage"].to_string(), "1Gi");
        assert_eq!(used["requests.storage"].to_string(), "1Gi");
        assert_eq!(usage("apps", "deployments", &json!({})).keys().collect::<Vec<_>>(), ["count/deployments.apps"]);
    }
}
