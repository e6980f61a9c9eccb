//! PriorityClass: a name for a pod's importance. Pods keep the number, so it never changes under them.

use k8s_openapi::api::scheduling::v1::PriorityClass;

use crate::core::pod::defaults::or_text;
use crate::prelude::*;

pub struct PriorityClassKind;

/// The highest that a class of a user may give.
pub const HIGHEST_USER_PRIORITY: i32 = 1_000_000_000;
/// The classes that the system brings itself, with their values. None of them is the default.
pub const SYSTEM: [(&str, i32); 2] =
    [("system-node-critical", 2 * HIGHEST_USER_PRIORITY + 1000), ("system-cluster-critical", 2 * HIGHEST_USER_PRIORITY)];

impl TypedKind for PriorityClassKind {
    type Object = PriorityClass;

    const INFO: KindInfo = KindInfo {
        short_names: &["pc"],
        generation: true,
        ..KindInfo::cluster("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass")
    };

    fn default(object: &mut PriorityClass) {
        or_text(&mut object.preemption_policy, "PreemptLowerPriority");
    }

    fn prepare_create(object: &mut PriorityClass, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut PriorityClass, old: &PriorityClass, _: &RequestContext<'_>) -> Verdict {
        let mut errors = ErrorList::new();
        if new.value.unwrap_or_default() != old.value.unwrap_or_default() {
            errors.push(FieldError::forbidden(&Path::new("value"), "may not be changed in an update."));
        }
        if new.preemption_policy != old.preemption_policy {
            errors.push(FieldError::immutable(&Path::new("preemptionPolicy"), text(&new.preemption_policy)));
        }
        errors.into()
    }

    /// Its generation stays 1.
    fn spec_changed(_: &PriorityClass, _: &PriorityClass) -> Option<bool> {
        Some(false)
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::integer("Value", "The priority it gives."),
        table::boolean("Global-Default", "Whether pods that name no class get it."),
        table::AGE,
        table::text("PreemptionPolicy", "Whether its pods may push others off a node."),
    ];

    fn row(object: &PriorityClass, now: Timestamp) -> Vec<Value> {
        vec![
            table::name(&object.metadata),
            object.value.unwrap_or_default().into(),
            object.global_default.unwrap_or_default().into(),
            table::age(&object.metadata, now),
            text(&object.preemption_policy).into(),
        ]
    }
}

fn validate(object: &PriorityClass) -> ErrorList {
    let mut errors = ErrorList::new();
    let (name, priority) = (text(&object.metadata.name), object.value.unwrap_or_default());
    if name.starts_with("system-") {
        let complaint = match SYSTEM.iter().find(|(system, _)| *system == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, value)) if *value != priority => Some(format!("value of {name} PriorityClass must be {value}")),
            Some(_) if object.global_default == Some(true) => Some(format!("globalDefault of {name} PriorityClass must be false")),
            Some(_) => None,
        };
        if let Some(complaint) = complaint {
            let why = format!("priority class names with 'system-' prefix are reserved for system use only. error: {complaint}");
            errors.push(FieldError::forbidden(&Path::new("metadata").child("name"), why));
        }
    } else if priority > HIGHEST_USER_PRIORITY {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        errors.push(FieldError::forbidden(&Path::new("value"), why));
    }
    if let Some(policy) = &object.preemption_policy
        && !matches!(policy.as_str(), "PreemptLowerPriority" | "Never")
    {
        errors.push(FieldError::not_supported(&Path::new("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]));
    }
    errors
}
