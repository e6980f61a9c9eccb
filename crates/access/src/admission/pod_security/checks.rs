//! The checks of the baseline and restricted standards, in upstream's order and words.

use std::collections::BTreeSet;

use serde_json::Value;

use super::policy::{Level, Standard, Version};
use crate::admission::pod::text;

/// The newest release whose rules are written here.
const LATEST: u32 = 36;

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that touch the pod alone, with the release that came to allow them.
const SAFE_SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.tcp_wmem", 32),
];

/// Volumes that the restricted standard lets a pod mount directly.
const RESTRICTED_VOLUMES: [&str; 9] =
    ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"];

/// What one check found.
#[derive(Debug)]
struct Violation {
    reason: String,
    detail: String,
}

/// What all checks of a standard found.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<Violation>);

impl Violations {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn reasons(&self) -> String {
        self.0.iter().map(|v| v.reason.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub fn details(&self) -> String {
        self.0.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect::<Vec<_>>().join(", ")
    }
}

/// Runs the standard's checks against a pod or a pod template.
pub(super) fn evaluate(standard: Standard, metadata: &Value, spec: &Value) -> Violations {
    let minor = match standard.version {
        Version::Latest => LATEST,
        Version::Minor(minor) => minor.min(LATEST),
    };
    let pod = Pod { metadata, spec, minor };
    let restricted = standard.level == Level::Restricted;
    let found = match standard.level {
        Level::Privileged => return Violations::default(),
        Level::Baseline | Level::Restricted => [
            pod.app_armor(),
            // Three of the baseline's checks are part of stricter ones.
            if restricted { None } else { pod.capabilities() },
            pod.host_namespaces(),
            if restricted { None } else { pod.host_path_volumes() },
            pod.host_ports(),
            pod.host_of_probes(),
            pod.privileged(),
            pod.proc_mount(false),
            pod.selinux(),
            if restricted { None } else { pod.seccomp() },
            pod.sysctls(),
            pod.windows_host_process(),
        ],
    };
    let mut violations: Vec<Violation> = found.into_iter().flatten().collect();
    if restricted {
        let found = [
            pod.privilege_escalation(),
            pod.restricted_capabilities(),
            pod.proc_mount(true),
            pod.restricted_volumes(),
            pod.run_as_non_root(),
            pod.run_as_user(),
            pod.restricted_seccomp(),
        ];
        violations.extend(found.into_iter().flatten());
    }
    Violations(violations)
}

struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    minor: u32,
}

fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail })
}

fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn plural<'a>(count: usize, one: &'a str, more: &'a str) -> &'a str {
    if count == 1 { one } else { more }
}

/// `container "a"` or `containers "a", "b"`.
fn named(containers: &[&str]) -> String {
    format!("{} {}", plural(containers.len(), "container", "containers"), quoted(containers.iter().copied()))
}

/// The pod itself, containers, or both; `None` when neither did anything.
fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    match (pod, containers.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".to_owned()),
        (false, false) => Some(named(containers)),
        (true, false) => Some(format!("pod and {}", named(containers))),
    }
}

impl<'a> Pod<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| spec[list].as_array().into_iter().flatten())
    }

    /// Names of the containers of which `what` holds.
    fn which(&self, mut what: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| what(container)).map(|container| text(container, "name")).collect()
    }

    fn context(&self) -> &'a Value {
        &self.spec["securityContext"]
    }

    fn is_windows(&self) -> bool {
        self.minor >= 25 && self.spec["os"]["name"] == "windows"
    }

    /// Root inside a user namespace is nobody outside of it (KEP-127).
    fn has_user_namespace(&self) -> bool {
        self.minor >= 34 && self.spec["hostUsers"] == false
    }

    fn app_armor(&self) -> Option<Violation> {
        const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
        let bad = |context: &Value| {
            let kind = text(&context["appArmorProfile"], "type");
            !matches!(kind, "" | "RuntimeDefault" | "Localhost")
        };
        let mut values: BTreeSet<&str> = BTreeSet::new();
        let pod = bad(self.context());
        if pod {
            values.insert(text(&self.context()["appArmorProfile"], "type"));
        }
        let containers = self.which(|c| bad(&c["securityContext"]));
        values.extend(self.containers().map(|c| &c["securityContext"]).filter(|c| bad(c)).map(|c| text(&c["appArmorProfile"], "type")));
        let mut annotations: Vec<String> = Vec::new();
        for (key, value) in self.metadata["annotations"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            if key.starts_with(ANNOTATION) && !(value.is_empty() || value == "runtime/default" || value.starts_with("localhost/")) {
                annotations.push(format!("{key}=\"{value}\""));
            }
        }
        annotations.sort_unstable();
        let mut who: Vec<String> = Vec::new();
        who.extend(pod.then(|| "pod".to_owned()));
        who.extend((!containers.is_empty()).then(|| named(&containers)));
        who.extend((!annotations.is_empty()).then(|| plural(annotations.len(), "annotation", "annotations").to_owned()));
        if who.is_empty() {
            return None;
        }
        let values: Vec<&str> = values.into_iter().chain(annotations.iter().map(String::as_str)).collect();
        let reason = plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
        violation(reason, format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(values)))
    }

    fn capabilities(&self) -> Option<Violation> {
        let mut forbidden: BTreeSet<&str> = BTreeSet::new();
        let containers = self.which(|container| {
            let bad: Vec<&str> = capabilities(container, "add").filter(|c| !DEFAULT_CAPABILITIES.contains(c)).collect();
            forbidden.extend(&bad);
            !bad.is_empty()
        });
        let who = setters(false, &containers)?;
        violation("non-default capabilities", format!("{who} must not include {} in securityContext.capabilities.add", quoted(forbidden)))
    }

    fn host_namespaces(&self) -> Option<Violation> {
        let set: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
            .into_iter()
            .filter(|field| self.spec[*field] == true)
            .map(|field| format!("{field}=true"))
            .collect();
        if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
    }

    fn volumes(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.spec["volumes"].as_array().into_iter().flatten()
    }

    fn host_path_volumes(&self) -> Option<Violation> {
        let names: Vec<&str> = self.volumes().filter(|volume| !volume["hostPath"].is_null()).map(|volume| text(volume, "name")).collect();
        if names.is_empty() {
            return None;
        }
        violation("hostPath volumes", format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(names)))
    }

    fn host_ports(&self) -> Option<Violation> {
        let ports =
            |container: &'a Value| container["ports"].as_array().into_iter().flatten().filter_map(|p| p["hostPort"].as_u64()).filter(|p| *p != 0);
        let mut used: BTreeSet<String> = BTreeSet::new();
        let containers = self.which(|container| {
            used.extend(ports(container).map(|port| port.to_string()));
            ports(container).next().is_some()
        });
        let who = setters(false, &containers)?;
        let uses = plural(containers.len(), "uses", "use");
        let list: Vec<&str> = used.iter().map(String::as_str).collect();
        violation("hostPort", format!("{who} {uses} {} {}", plural(list.len(), "hostPort", "hostPorts"), list.join(", ")))
    }

    fn host_of_probes(&self) -> Option<Violation> {
        if self.minor < 34 {
            return None;
        }
        let mut hosts: BTreeSet<&str> = BTreeSet::new();
        let containers = self.which(|container| {
            let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
            let handlers = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
            let found: Vec<&str> = probes
                .into_iter()
                .chain(handlers)
                .flat_map(|handler| ["httpGet", "tcpSocket"].map(|action| text(&handler[action], "host")))
                .filter(|host| !host.is_empty())
                .collect();
            hosts.extend(&found);
            !found.is_empty()
        });
        let containers: BTreeSet<&str> = containers.into_iter().collect();
        let containers: Vec<&str> = containers.into_iter().collect();
        let who = setters(false, &containers)?;
        let uses = plural(containers.len(), "uses", "use");
        let what = plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
        violation("probe or lifecycle host", format!("{who} {uses} {what} {}", quoted(hosts)))
    }

    fn privileged(&self) -> Option<Violation> {
        let who = setters(false, &self.which(|c| c["securityContext"]["privileged"] == true))?;
        violation("privileged", format!("{who} must not set securityContext.privileged=true"))
    }

    /// The restricted standard forbids since 1.35 what the baseline then allows inside a user namespace.
    fn proc_mount(&self, restricted: bool) -> Option<Violation> {
        let relaxed = self.has_user_namespace();
        if (restricted && self.minor < 35) || (!restricted && relaxed) {
            return None;
        }
        let mut kinds: BTreeSet<&str> = BTreeSet::new();
        let containers = self.which(|container| {
            let kind = text(&container["securityContext"], "procMount");
            let bad = !matches!(kind, "" | "Default");
            if bad {
                kinds.insert(kind);
            }
            bad
        });
        let who = setters(false, &containers)?;
        violation("procMount", format!("{who} must not set securityContext.procMount to {}", quoted(kinds)))
    }

    fn selinux(&self) -> Option<Violation> {
        let (mut types, mut user, mut role): (BTreeSet<&str>, bool, bool) = Default::default();
        let engine_allowed = self.minor >= 31;
        let mut bad = |context: &'a Value| {
            let options = &context["seLinuxOptions"];
            let kind = text(options, "type");
            let fine =
                matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t") || (engine_allowed && kind == "container_engine_t");
            if !fine {
                types.insert(kind);
            }
            let (sets_user, sets_role) = (!text(options, "user").is_empty(), !text(options, "role").is_empty());
            (user, role) = (user || sets_user, role || sets_role);
            !fine || sets_user || sets_role
        };
        let pod = bad(self.context());
        let containers = self.which(|container| bad(&container["securityContext"]));
        let who = setters(pod, &containers)?;
        let mut what = Vec::new();
        if !types.is_empty() {
            what.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(types)));
        }
        what.extend(user.then(|| "user may not be set".to_owned()));
        what.extend(role.then(|| "role may not be set".to_owned()));
        violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", what.join("; ")))
    }

    /// Profiles that were asked for and are neither the runtime's default nor a local one, and who asked.
    fn bad_seccomp(&self) -> (bool, Vec<&'a str>, BTreeSet<&'a str>) {
        let bad = |context: &'a Value| {
            Some(&context["seccompProfile"]).filter(|p| !p.is_null()).map(|p| text(p, "type")).filter(|kind| !is_good_seccomp(kind))
        };
        let mut values: BTreeSet<&str> = bad(self.context()).into_iter().collect();
        let pod = !values.is_empty();
        let containers = self.which(|container| {
            let found = bad(&container["securityContext"]);
            values.extend(found);
            found.is_some()
        });
        (pod, containers, values)
    }

    fn seccomp(&self) -> Option<Violation> {
        if self.minor < 19 {
            return self.seccomp_annotations();
        }
        let (pod, containers, values) = self.bad_seccomp();
        let who = setters(pod, &containers)?;
        violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(values)))
    }

    /// Before 1.19 a profile was an annotation.
    fn seccomp_annotations(&self) -> Option<Violation> {
        let containers = self.containers().map(|c| format!("{}{}", super::SECCOMP_CONTAINER, text(c, "name")));
        let mut forbidden: BTreeSet<String> = BTreeSet::new();
        for key in std::iter::once(super::SECCOMP_POD.to_owned()).chain(containers) {
            let Some(value) = self.metadata["annotations"][&key].as_str() else { continue };
            if !(matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")) {
                forbidden.insert(format!("{key}=\"{value}\""));
            }
        }
        if forbidden.is_empty() {
            return None;
        }
        let list: Vec<&str> = forbidden.iter().map(String::as_str).collect();
        violation("seccompProfile", format!("forbidden {} {}", plural(list.len(), "annotation", "annotations"), list.join(", ")))
    }

    fn sysctls(&self) -> Option<Violation> {
        let safe = |name: &str| SAFE_SYSCTLS.iter().any(|(known, since)| *known == name && *since <= self.minor);
        let sysctls = self.context()["sysctls"].as_array().into_iter().flatten();
        let forbidden: Vec<&str> = sysctls.map(|sysctl| text(sysctl, "name")).filter(|name| !safe(name)).collect();
        if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
    }

    fn windows_host_process(&self) -> Option<Violation> {
        let bad = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
        let who = setters(bad(self.context()), &self.which(|c| bad(&c["securityContext"])))?;
        violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
    }

    fn privilege_escalation(&self) -> Option<Violation> {
        if self.minor < 8 || self.is_windows() {
            return None;
        }
        let who = setters(false, &self.which(|c| c["securityContext"]["allowPrivilegeEscalation"] != false))?;
        violation("allowPrivilegeEscalation != false", format!("{who} must set securityContext.allowPrivilegeEscalation=false"))
    }

    fn restricted_capabilities(&self) -> Option<Violation> {
        if self.minor < 22 {
            return self.capabilities();
        }
        if self.is_windows() {
            return None;
        }
        let mut details = Vec::new();
        let keeping = self.which(|container| !capabilities(container, "drop").any(|c| c == "ALL"));
        if let Some(who) = setters(false, &keeping) {
            details.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
        }
        let mut forbidden: BTreeSet<&str> = BTreeSet::new();
        let adding = self.which(|container| {
            let bad: Vec<&str> = capabilities(container, "add").filter(|c| *c != "NET_BIND_SERVICE").collect();
            forbidden.extend(&bad);
            !bad.is_empty()
        });
        if let Some(who) = setters(false, &adding) {
            details.push(format!("{who} must not include {} in securityContext.capabilities.add", quoted(forbidden)));
        }
        if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
    }

    fn restricted_volumes(&self) -> Option<Violation> {
        let (mut names, mut kinds): (Vec<&str>, BTreeSet<&str>) = Default::default();
        for volume in self.volumes() {
            let fields = volume.as_object().into_iter().flatten().filter(|(key, value)| *key != "name" && !value.is_null());
            let sources: Vec<&str> = fields.map(|(key, _)| key.as_str()).collect();
            if sources.iter().any(|source| RESTRICTED_VOLUMES.contains(source)) {
                continue;
            }
            names.push(text(volume, "name"));
            kinds.insert(sources.first().copied().unwrap_or("unknown"));
        }
        if names.is_empty() {
            return None;
        }
        let (volumes, use_them) = (plural(names.len(), "volume", "volumes"), plural(names.len(), "uses", "use"));
        let types = plural(kinds.len(), "restricted volume type", "restricted volume types");
        violation("restricted volume types", format!("{volumes} {} {use_them} {types} {}", quoted(names), quoted(kinds)))
    }

    fn run_as_non_root(&self) -> Option<Violation> {
        const REASON: &str = "runAsNonRoot != true";
        if self.has_user_namespace() {
            return None;
        }
        let pod = &self.context()["runAsNonRoot"];
        let explicit = self.which(|c| c["securityContext"]["runAsNonRoot"] == false);
        if let Some(who) = setters(*pod == false, &explicit) {
            return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
        }
        if *pod == true {
            return None;
        }
        let open = self.which(|c| c["securityContext"]["runAsNonRoot"].is_null());
        let who = setters(false, &open)?;
        violation(REASON, format!("pod or {who} must set securityContext.runAsNonRoot=true"))
    }

    fn run_as_user(&self) -> Option<Violation> {
        if self.minor < 23 || self.has_user_namespace() {
            return None;
        }
        let who = setters(self.context()["runAsUser"] == 0, &self.which(|c| c["securityContext"]["runAsUser"] == 0))?;
        violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
    }

    fn restricted_seccomp(&self) -> Option<Violation> {
        if self.minor < 19 {
            return self.seccomp();
        }
        if self.is_windows() {
            return None;
        }
        if let Some(bad) = self.seccomp() {
            return Some(bad);
        }
        if !self.context()["seccompProfile"].is_null() {
            return None;
        }
        let open = self.which(|c| c["securityContext"]["seccompProfile"].is_null());
        let who = setters(false, &open)?;
        violation("seccompProfile", format!("pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""))
    }
}

fn is_good_seccomp(kind: &str) -> bool {
    matches!(kind, "RuntimeDefault" | "Localhost")
}

fn capabilities<'a>(container: &'a Value, which: &str) -> impl Iterator<Item = &'a str> {
    container["securityContext"]["capabilities"][which].as_array().into_iter().flatten().filter_map(Value::as_str)
}
