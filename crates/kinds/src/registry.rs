//! The kinds that a cluster serves, as a value.
//!
//! ```text
//! Registry::new(Profile::Tenant) -- with(a custom resource's kind) --> lookup by resource or kind, iteration for discovery
//! ```
//!
//! One [`Entry`] stands for one group, version and resource. Most name a stored kind; an object served in several versions has one entry for
//! each, all with the same [`Kind`]; and some resources ([`Behaviour::Virtual`]) store nothing and are answered by the API server itself.

use std::collections::HashMap;
use std::sync::Arc;

use crate::kind::{Kind, KindInfo, OtherVersion, Typed, TypedKind};
use crate::virtuals;

/// Which control plane the registry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// What tenants see: Kubernetes and nothing else.
    Tenant,
    /// The service's own control plane, which adds the fleet's kinds.
    System,
}

/// One resource under one group and version.
#[derive(Clone)]
pub struct Entry {
    /// The group and version it is served under.
    pub group: &'static str,
    pub version: &'static str,
    pub behaviour: Behaviour,
}

#[derive(Clone)]
pub enum Behaviour {
    /// Objects are stored. `other` is set where the entry's version is not the stored one.
    Stored { kind: Arc<dyn Kind>, other: Option<OtherVersion> },
    /// A body is answered and nothing kept, as reviews are.
    Virtual(&'static KindInfo),
}

impl Entry {
    /// Names and shape. Its group and version are those of storage; the entry's own fields say what is served.
    pub fn info(&self) -> &KindInfo {
        match &self.behaviour {
            Behaviour::Stored { kind, .. } => kind.info(),
            Behaviour::Virtual(info) => info,
        }
    }

    /// The kind of the stored objects; `None` for a virtual resource.
    pub fn kind(&self) -> Option<&Arc<dyn Kind>> {
        match &self.behaviour {
            Behaviour::Stored { kind, .. } => Some(kind),
            Behaviour::Virtual(_) => None,
        }
    }

    /// The conversions, where this version is not the stored one.
    pub fn other_version(&self) -> Option<&OtherVersion> {
        match &self.behaviour {
            Behaviour::Stored { other, .. } => other.as_ref(),
            Behaviour::Virtual(_) => None,
        }
    }
}

/// A group as discovery lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Empty for the core group, which `/apis` does not list.
    pub name: &'static str,
    /// `APIService.spec.groupPriorityMinimum`: the higher comes first.
    pub priority: i32,
    /// The preferred version first, each with its `APIService.spec.versionPriority`.
    pub versions: Vec<(&'static str, i32)>,
}

/// Every resource that is served, in discovery's order.
#[derive(Clone)]
pub struct Registry {
    entries: Vec<Entry>,
    by_resource: HashMap<(&'static str, &'static str, &'static str), usize>,
    by_kind: HashMap<(&'static str, &'static str, &'static str), usize>,
}

impl Registry {
    /// The built-in kinds, and for the system's control plane the fleet's.
    pub fn new(profile: Profile) -> Self {
        let mut entries = Vec::new();
        if profile == Profile::System {
            crate::fleet::kinds().into_iter().for_each(|kind| push_stored(&mut entries, kind));
        }
        for kind in builtin() {
            push_stored(&mut entries, kind);
        }
        for info in virtuals::ALL {
            entries.push(Entry { group: info.group, version: info.version, behaviour: Behaviour::Virtual(info) });
        }
        Self::build(entries)
    }

    /// The same registry and one more stored kind. A kind with the same group, version and resource is replaced.
    #[must_use]
    pub fn with(self, kind: Arc<dyn Kind>) -> Self {
        let mut entries = self.entries;
        let info = kind.info().clone();
        entries.retain(|e| (e.group, e.info().plural) != (info.group, info.plural) || e.version != info.version);
        push_stored(&mut entries, kind);
        Self::build(entries)
    }

    /// The same registry without one stored kind.
    #[must_use]
    pub fn without(self, group: &str, plural: &str) -> Self {
        let mut entries = self.entries;
        entries.retain(|e| e.info().group != group || e.info().plural != plural);
        Self::build(entries)
    }

    fn build(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|a, b| {
            let key = |e: &Entry| (-group_priority(e.group), e.group, -version_priority(e.group, e.version), e.version, e.info().plural);
            key(a).cmp(&key(b))
        });
        let index = |name: fn(&KindInfo) -> &'static str| -> HashMap<_, _> {
            let keys = entries.iter().enumerate().map(|(at, e)| ((e.group, e.version, name(e.info())), at));
            keys.collect()
        };
        Self { by_resource: index(|i| i.plural), by_kind: index(|i| i.kind), entries }
    }

    /// By the names of a path: `("apps", "v1", "deployments")`.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Entry> {
        find(&self.by_resource, (group, version, plural)).map(|at| &self.entries[at])
    }

    /// By the names of a body: `("apps", "v1", "Deployment")`.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Entry> {
        find(&self.by_kind, (group, version, kind)).map(|at| &self.entries[at])
    }

    /// The entry of the stored version, whatever version is asked for: `("apps", "deployments")`.
    pub fn stored(&self, group: &str, plural: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| {
            let info = e.info();
            e.other_version().is_none() && info.group == group && info.plural == plural
        })
    }

    /// Every resource: groups by priority, in a group the preferred version first, in a version by name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Each stored kind once, in discovery's order.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<dyn Kind>> {
        self.entries.iter().filter(|e| e.other_version().is_none()).filter_map(Entry::kind)
    }

    /// The groups in discovery's order, the core group first.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for entry in &self.entries {
            if groups.last().is_none_or(|g| g.name != entry.group) {
                groups.push(Group { name: entry.group, priority: group_priority(entry.group), versions: Vec::new() });
            }
            let Some(group) = groups.last_mut() else { continue };
            if group.versions.last().is_none_or(|v| v.0 != entry.version) {
                group.versions.push((entry.version, version_priority(entry.group, entry.version)));
            }
        }
        groups
    }
}

type Index = HashMap<(&'static str, &'static str, &'static str), usize>;

fn find(index: &Index, key: (&str, &str, &str)) -> Option<usize> {
    // The map's keys are 'static; a lookup by shorter-lived strings is fine through the shared covariant lifetime.
    let index: &HashMap<(&str, &str, &str), usize> = index;
    index.get(&key).copied()
}

fn push_stored(entries: &mut Vec<Entry>, kind: Arc<dyn Kind>) {
    let (group, version) = (kind.info().group, kind.info().version);
    for other in kind.other_versions() {
        let behaviour = Behaviour::Stored { kind: Arc::clone(&kind), other: Some(*other) };
        entries.push(Entry { group: other.group, version: other.version, behaviour });
    }
    entries.push(Entry { group, version, behaviour: Behaviour::Stored { kind, other: None } });
}

fn typed<T: TypedKind>() -> Arc<dyn Kind> {
    Arc::new(Typed::<T>::new())
}

/// The list of kinds: one line for each folder.
fn builtin() -> Vec<Arc<dyn Kind>> {
    use crate::{
        admissionregistration, apiextensions, apiregistration, apps, autoscaling, batch, certificates, coordination, core, discovery, flowcontrol,
        networking, node, policy, rbac, resource, scheduling, storage,
    };
    vec![
        typed::<core::configmap::ConfigMapKind>(),
        typed::<core::endpoints::EndpointsKind>(),
        typed::<core::event::EventKind>(),
        typed::<core::limitrange::LimitRangeKind>(),
        typed::<core::namespace::NamespaceKind>(),
        typed::<core::node::NodeKind>(),
        typed::<core::persistentvolume::PersistentVolumeKind>(),
        typed::<core::persistentvolumeclaim::PersistentVolumeClaimKind>(),
        typed::<core::pod::PodKind>(),
        typed::<core::podtemplate::PodTemplateKind>(),
        typed::<core::replicationcontroller::ReplicationControllerKind>(),
        typed::<core::resourcequota::ResourceQuotaKind>(),
        typed::<core::secret::SecretKind>(),
        typed::<core::service::ServiceKind>(),
        typed::<core::serviceaccount::ServiceAccountKind>(),
        typed::<apiextensions::customresourcedefinition::CustomResourceDefinitionKind>(),
        typed::<admissionregistration::mutatingadmissionpolicy::MutatingAdmissionPolicyKind>(),
        typed::<admissionregistration::mutatingadmissionpolicybinding::MutatingAdmissionPolicyBindingKind>(),
        typed::<admissionregistration::mutatingwebhookconfiguration::MutatingWebhookConfigurationKind>(),
        typed::<admissionregistration::validatingadmissionpolicy::ValidatingAdmissionPolicyKind>(),
        typed::<admissionregistration::validatingadmissionpolicybinding::ValidatingAdmissionPolicyBindingKind>(),
        typed::<admissionregistration::validatingwebhookconfiguration::ValidatingWebhookConfigurationKind>(),
        typed::<apiregistration::apiservice::APIServiceKind>(),
        typed::<apps::controllerrevision::ControllerRevisionKind>(),
        typed::<apps::daemonset::DaemonSetKind>(),
        typed::<apps::deployment::DeploymentKind>(),
        typed::<apps::replicaset::ReplicaSetKind>(),
        typed::<apps::statefulset::StatefulSetKind>(),
        typed::<autoscaling::horizontalpodautoscaler::HorizontalPodAutoscalerKind>(),
        typed::<batch::cronjob::CronJobKind>(),
        typed::<batch::job::JobKind>(),
        typed::<certificates::certificatesigningrequest::CertificateSigningRequestKind>(),
        typed::<coordination::lease::LeaseKind>(),
        typed::<discovery::endpointslice::EndpointSliceKind>(),
        typed::<flowcontrol::flowschema::FlowSchemaKind>(),
        typed::<flowcontrol::prioritylevelconfiguration::PriorityLevelConfigurationKind>(),
        typed::<networking::ingress::IngressKind>(),
        typed::<networking::ingressclass::IngressClassKind>(),
        typed::<networking::ipaddress::IPAddressKind>(),
        typed::<networking::networkpolicy::NetworkPolicyKind>(),
        typed::<networking::servicecidr::ServiceCIDRKind>(),
        typed::<node::runtimeclass::RuntimeClassKind>(),
        typed::<policy::poddisruptionbudget::PodDisruptionBudgetKind>(),
        typed::<rbac::clusterrole::ClusterRoleKind>(),
        typed::<rbac::clusterrolebinding::ClusterRoleBindingKind>(),
        typed::<rbac::role::RoleKind>(),
        typed::<rbac::rolebinding::RoleBindingKind>(),
        typed::<resource::deviceclass::DeviceClassKind>(),
        typed::<resource::resourceclaim::ResourceClaimKind>(),
        typed::<resource::resourceclaimtemplate::ResourceClaimTemplateKind>(),
        typed::<resource::resourceslice::ResourceSliceKind>(),
        typed::<scheduling::priorityclass::PriorityClassKind>(),
        typed::<storage::csidriver::CSIDriverKind>(),
        typed::<storage::csinode::CSINodeKind>(),
        typed::<storage::csistoragecapacity::CSIStorageCapacityKind>(),
        typed::<storage::storageclass::StorageClassKind>(),
        typed::<storage::volumeattachment::VolumeAttachmentKind>(),
        typed::<storage::volumeattributesclass::VolumeAttributesClassKind>(),
    ]
}

/// `groupPriorityMinimum` of upstream's own groups; groups of custom resources come after them.
fn group_priority(group: &str) -> i32 {
    const CUSTOM: i32 = 1000;
    match group {
        "" => 18_000,
        "apiregistration.k8s.io" => 17_900,
        "apps" => 17_800,
        "events.k8s.io" => 17_750,
        "authentication.k8s.io" => 17_700,
        "authorization.k8s.io" => 17_600,
        "autoscaling" => 17_500,
        "batch" => 17_400,
        "certificates.k8s.io" => 17_300,
        "networking.k8s.io" => 17_200,
        "policy" => 17_100,
        "rbac.authorization.k8s.io" => 17_000,
        "storage.k8s.io" => 16_800,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" => 16_700,
        "scheduling.k8s.io" => 16_600,
        "coordination.k8s.io" => 16_500,
        "node.k8s.io" => 16_300,
        "discovery.k8s.io" | "resource.k8s.io" => 16_200,
        "flowcontrol.apiserver.k8s.io" => 16_100,
        _ => CUSTOM,
    }
}

/// `versionPriority` within a group.
fn version_priority(group: &str, version: &str) -> i32 {
    const CUSTOM: i32 = 100;
    match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io", "v1") => 21,
        (group, _) if group_priority(group) > 1000 => 15,
        _ => CUSTOM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Discovery as upstream answers it, one line a resource: `group/version resource kind scope singular verbs short,names categories`.
    const DISCOVERY: &str = include_str!("testdata/discovery.txt");

    fn lines(registry: &Registry) -> Vec<String> {
        let mut out = Vec::new();
        let verbs = |verbs: &[crate::Verb]| verbs.iter().map(|v| v.as_str()).collect::<Vec<_>>().join(",");
        for entry in registry.entries() {
            let info = entry.info();
            let scope = if info.scope == crate::Scope::Namespaced { "Namespaced" } else { "Cluster" };
            let (short, categories) = (info.short_names.join(","), info.categories.join(","));
            out.push(format!(
                "{}/{} {} {} {scope} {} {} [{short}] [{categories}]",
                entry.group,
                entry.version,
                info.plural,
                info.kind,
                info.singular,
                verbs(info.verbs)
            ));
            for sub in info.subresources {
                let kind = sub.body.map_or(info.kind, |body| body.2);
                out.push(format!("{}/{} {}/{} {kind} {}", entry.group, entry.version, info.plural, sub.name, verbs(sub.verbs)));
            }
        }
        out
    }

    #[test]
    fn every_resource_is_discovered_as_upstreams() {
        let recorded: Vec<&str> = DISCOVERY.lines().collect();
        let registry = Registry::new(Profile::Tenant);
        let mine = lines(&registry);
        for line in &mine {
            assert!(recorded.contains(&line.as_str()), "not as recorded: {line}");
        }
        // What is recorded of a served resource and is missing here, in the recorded order.
        let served: Vec<&str> = mine.iter().map(|l| l.split(' ').nth(1).unwrap_or_default().split('/').next().unwrap_or_default()).collect();
        let of_served = |line: &&&str| {
            let mut words = line.split(' ');
            let (version, resource) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let resource = resource.split('/').next().unwrap_or_default();
            served.contains(&resource) && mine.iter().any(|m| m.starts_with(&format!("{version} {resource} ")))
        };
        let expected: Vec<&str> = recorded.iter().filter(of_served).copied().collect();
        assert_eq!(mine, expected);
    }

    #[test]
    fn groups_come_by_priority_and_versions_by_preference() {
        let groups = Registry::new(Profile::Tenant).groups();
        assert_eq!((groups[0].name, groups[0].priority), ("", 18_000));
        assert_eq!((groups[1].name, groups[1].priority), ("apiregistration.k8s.io", 17_900));
        assert!(groups.is_sorted_by(|a, b| a.priority >= b.priority));
    }

    #[test]
    fn a_kind_is_found_by_both_names_and_in_every_version() {
        let registry = Registry::new(Profile::Tenant);
        let deployment = registry.resource("apps", "v1", "deployments").expect("served");
        assert_eq!(deployment.info().kind, "Deployment");
        assert!(registry.kind("apps", "v1", "Deployment").is_some());
        assert!(registry.kind("apps", "v2", "Deployment").is_none());
        let event = registry.resource("events.k8s.io", "v1", "events").expect("served");
        assert!(event.other_version().is_some());
        assert_eq!(event.info().group, "", "stored as the core group's");
        assert!(registry.resource("authorization.k8s.io", "v1", "subjectaccessreviews").expect("served").kind().is_none());
        assert!(registry.without("", "pods").resource("", "v1", "pods").is_none());
    }
}
