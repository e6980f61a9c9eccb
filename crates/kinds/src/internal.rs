//! Structs as upstream's messages show them.
//!
//! Upstream validates its internal structs, which are the versioned ones without JSON tags: encoded, every field is there under its Go name,
//! unset or not. Some messages show such a struct, and the one about a forbidden change of a pod shows the difference of two. The generated
//! schema table knows Go's order of fields; the Go names follow from the JSON names but for initialisms, and a few structs lie differently.

use std::fmt::Write as _;

use serde_json::Value;
use wheelhouse_meta::gotext;
use wheelhouse_schema::{Scalar, Schema, Struct, catalog};

/// JSON with an order of fields of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Ordered {
    /// Printed already.
    Scalar(String),
    List(Vec<Ordered>),
    Object(Vec<(String, Ordered)>),
}

impl Ordered {
    pub fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, None);
        out
    }

    /// One field or item a line, indented by one space a level.
    pub fn lines(&self) -> Vec<String> {
        let mut out = String::new();
        self.write(&mut out, Some(0));
        out.lines().map(str::to_owned).collect()
    }

    fn write(&self, out: &mut String, depth: Option<usize>) {
        let inner = depth.map(|d| d + 1);
        let line = |out: &mut String, depth: Option<usize>| {
            if let Some(depth) = depth {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', depth));
            }
        };
        match self {
            Self::Scalar(text) => out.push_str(text),
            Self::List(items) if items.is_empty() => out.push_str("[]"),
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    line(out, inner);
                    item.write(out, inner);
                }
                line(out, depth);
                out.push(']');
            }
            Self::Object(fields) if fields.is_empty() => out.push_str("{}"),
            Self::Object(fields) => {
                out.push('{');
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    line(out, inner);
                    let _ = write!(out, "\"{name}\":{}", if depth.is_some() { " " } else { "" });
                    value.write(out, inner);
                }
                line(out, depth);
                out.push('}');
            }
        }
    }
}

/// The versioned form, compact, with fields in Go's order.
pub fn tagged(value: &Value, definition: &str) -> String {
    match catalog().definition(definition) {
        Some(schema) => with_tags(value, &schema).compact(),
        None => gotext::json(value),
    }
}

/// The internal form of a struct, by its OpenAPI name.
pub fn untagged(value: &Value, definition: &str) -> Ordered {
    match catalog().definition(definition) {
        Some(schema) => without_tags(Some(value), &schema, false),
        None => Ordered::Scalar(gotext::json(value)),
    }
}

/// Some fields of a struct in the internal form, in the order given: what upstream keeps as a struct of its own inside another.
pub fn some_untagged(value: &Value, definition: &str, names: &[&str]) -> Ordered {
    let (Some(Schema::Struct(fields)), Some(map)) = (catalog().definition(definition), value.as_object()) else {
        return Ordered::Scalar(gotext::json(value));
    };
    let known = names.iter().filter_map(|name| fields.field(name));
    Ordered::Object(known.map(|field| (go_name(&field.name), field_without_tags(map, field))).collect())
}

fn with_tags(value: &Value, schema: &Schema) -> Ordered {
    match (schema, value) {
        (Schema::Struct(fields), Value::Object(map)) => {
            let shown = fields.fields.iter().filter_map(|field| {
                let value = map.get(field.name.as_ref()).filter(|v| !v.is_null())?;
                Some((field.name.to_string(), with_tags(value, &field.schema)))
            });
            Ordered::Object(shown.collect())
        }
        (Schema::List(list), Value::Array(items)) => Ordered::List(items.iter().map(|i| with_tags(i, &list.items)).collect()),
        (Schema::Map(map), Value::Object(entries)) => Ordered::Object(entries.iter().map(|(k, v)| (k.clone(), with_tags(v, &map.values))).collect()),
        (_, value) => Ordered::Scalar(gotext::json(value)),
    }
}

/// `value` is unset where the object leaves it out; `pointer` says whether Go then holds nil.
fn without_tags(value: Option<&Value>, schema: &Schema, pointer: bool) -> Ordered {
    let value = value.filter(|v| !v.is_null());
    let null = || Ordered::Scalar("null".to_owned());
    match (schema, value) {
        (_, None) if pointer => null(),
        (Schema::Struct(fields), value) => struct_without_tags(value, fields),
        (Schema::List(list), Some(Value::Array(items))) => Ordered::List(items.iter().map(|i| without_tags(Some(i), &list.items, false)).collect()),
        (Schema::Map(map), Some(Value::Object(entries))) => {
            Ordered::Object(entries.iter().map(|(k, v)| (k.clone(), without_tags(Some(v), &map.values, false))).collect())
        }
        (Schema::Scalar(scalar), None) => Ordered::Scalar(
            match scalar {
                Scalar::String => "\"\"",
                Scalar::Quantity => "\"0\"",
                Scalar::Bool => "false",
                Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::IntOrString => "0",
                _ => "null",
            }
            .to_owned(),
        ),
        (_, None) => null(),
        (_, Some(value)) => Ordered::Scalar(gotext::json(value)),
    }
}

fn struct_without_tags(value: Option<&Value>, fields: &Struct) -> Ordered {
    let empty = serde_json::Map::new();
    let map = value.and_then(Value::as_object).unwrap_or(&empty);
    match fields.definition.as_ref() {
        "io.k8s.api.core.v1.PodSpec" => return pod_spec(map, fields),
        // These of the shared machinery keep their tags.
        name if name.starts_with("io.k8s.apimachinery.") => {
            let schema = catalog().definition(name).unwrap_or(Schema::Any);
            return with_tags(&Value::Object(map.clone()), &schema);
        }
        _ => {}
    }
    // The internal struct holds these by value.
    let by_value = matches!(fields.go_name.as_ref(), "v1.RollingUpdateDaemonSet" | "v1.RollingUpdateDeployment");
    let mut out = Vec::new();
    for field in &fields.fields {
        if by_value {
            out.push((go_name(&field.name), without_tags(map.get(field.name.as_ref()), &field.schema, false)));
            continue;
        }
        // An embedded ObjectMeta is flattened and keeps its tags.
        if field.name == "metadata" {
            if let Some(Ordered::Object(metadata)) = map.get("metadata").map(|m| with_tags(m, &field.schema)) {
                out.extend(metadata);
            }
            continue;
        }
        // The variants of an attribute's value are named after it: IntValue, IntValues.
        let name = match fields.definition.as_ref() {
            "io.k8s.api.resource.v1.DeviceAttribute" => match field.name.strip_suffix('s') {
                Some(singular) => format!("{}Values", go_name(singular)),
                None => format!("{}Value", go_name(&field.name)),
            },
            _ => go_name(&field.name),
        };
        out.push((name, field_without_tags(map, field)));
    }
    Ordered::Object(out)
}

fn field_without_tags(map: &serde_json::Map<String, Value>, field: &wheelhouse_schema::Field) -> Ordered {
    let pointer = field.pointer || matches!(field.schema, Schema::List(_) | Schema::Map(_));
    without_tags(map.get(field.name.as_ref()), &field.schema, pointer)
}

/// The internal PodSpec in its own order: what concerns the node's namespaces lies in the security context, the service account's older name
/// is gone.
fn pod_spec(map: &serde_json::Map<String, Value>, fields: &Struct) -> Ordered {
    const BEFORE: &[&str] = &[
        "volumes",
        "initContainers",
        "containers",
        "ephemeralContainers",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "activeDeadlineSeconds",
        "dnsPolicy",
        "nodeSelector",
        "serviceAccountName",
        "automountServiceAccountToken",
        "nodeName",
    ];
    const IN_CONTEXT: &[&str] = &["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];
    const AFTER: &[&str] = &[
        "imagePullSecrets",
        "hostname",
        "subdomain",
        "setHostnameAsFQDN",
        "affinity",
        "schedulerName",
        "tolerations",
        "hostAliases",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
        "dnsConfig",
        "readinessGates",
        "runtimeClassName",
        "overhead",
        "enableServiceLinks",
        "topologySpreadConstraints",
        "os",
        "schedulingGates",
        "resourceClaims",
        "resources",
        "hostnameOverride",
        "schedulingGroup",
    ];
    let some = |names: &[&str]| -> Vec<(String, Ordered)> {
        let known = names.iter().filter_map(|name| fields.field(name));
        known.map(|field| (go_name(&field.name), field_without_tags(map, field))).collect()
    };
    let mut out = some(BEFORE);
    let mut context = some(IN_CONTEXT);
    if let Some(Schema::Struct(inner)) = fields.field("securityContext").map(|f| &f.schema)
        && let Ordered::Object(rest) = struct_without_tags(map.get("securityContext"), inner)
    {
        context.extend(rest);
        // The versioned struct has these two the other way round.
        let place = |name: &str, fields: &[(String, Ordered)]| fields.iter().position(|f| f.0 == name);
        if let (Some(sysctls), Some(policy)) = (place("Sysctls", &context), place("FSGroupChangePolicy", &context)) {
            context.swap(sysctls, policy);
        }
    }
    out.push(("SecurityContext".to_owned(), Ordered::Object(context)));
    out.extend(some(AFTER));
    Ordered::Object(out)
}

/// The Go field behind a JSON field.
fn go_name(json: &str) -> String {
    const INITIALISMS: &[(&str, &str)] = &[
        ("dns", "DNS"),
        ("tty", "TTY"),
        ("fs", "FS"),
        ("seLinux", "SELinux"),
        ("gce", "GCE"),
        ("aws", "AWS"),
        ("nfs", "NFS"),
        ("iscsi", "ISCSI"),
        ("rbd", "RBD"),
        ("fc", "FC"),
        ("csi", "CSI"),
        ("cel", "CEL"),
        ("http", "HTTP"),
        ("tcp", "TCP"),
        ("grpc", "GRPC"),
        ("uid", "UID"),
        ("api", "API"),
        ("cephfs", "CephFS"),
        ("ip", "IP"),
        ("os", "OS"),
        ("storageos", "StorageOS"),
        ("pd", "PD"),
        ("iqn", "IQN"),
        ("lun", "Lun"),
    ];
    // An initialism is a whole word at the front, followed by another word or nothing.
    for (lower, upper) in INITIALISMS {
        if let Some(rest) = json.strip_prefix(lower)
            && rest.chars().next().is_none_or(|c| c.is_ascii_uppercase())
        {
            return format!("{upper}{rest}");
        }
    }
    let mut chars = json.chars();
    chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
}
