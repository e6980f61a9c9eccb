//! What an Event must be. Events with an `eventTime` are of the newer style and must say who reports what was done.

use k8s_openapi::api::core::v1::Event;
use serde::Serialize;

use crate::prelude::*;
use wheelhouse_meta::validation as names;

/// Limits in bytes of the newer style's fields.
const REPORTING_INSTANCE_MAX: usize = 128;
const ACTION_MAX: usize = 128;
const REASON_MAX: usize = 128;
const NOTE_MAX: usize = 1024;

fn is_newer_api(cx: &RequestContext<'_>) -> bool {
    cx.group == "events.k8s.io"
}

pub fn create(object: &Event, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = common(object, cx);
    if !is_newer_api(cx) {
        return errors;
    }
    if object.event_time.is_none() {
        errors.push(FieldError::required(&Path::new("eventTime"), ""));
    }
    if !matches!(text(&object.type_), "Normal" | "Warning") {
        errors.push(FieldError::invalid(&Path::new("type"), "", format!("has invalid value: {}", text(&object.type_))));
    }
    let source = object.source.as_ref();
    let unset = [
        ("firstTimestamp", object.first_timestamp.is_none()),
        ("lastTimestamp", object.last_timestamp.is_none()),
        ("count", object.count.unwrap_or_default() == 0),
        ("source", source.is_none_or(|s| text(&s.component).is_empty() && text(&s.host).is_empty())),
    ];
    for (field, is_unset) in unset {
        if !is_unset {
            errors.push(FieldError::invalid(&Path::new(field), "", "needs to be unset"));
        }
    }
    errors
}

pub fn update(new: &Event, old: &Event, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = common(new, cx);
    if is_newer_api(cx) {
        immutable("involvedObject", &new.involved_object, &old.involved_object, &mut errors);
        immutable("reason", text(&new.reason), text(&old.reason), &mut errors);
        immutable("message", text(&new.message), text(&old.message), &mut errors);
        immutable("source", &new.source, &old.source, &mut errors);
        immutable("firstTimestamp", &new.first_timestamp, &old.first_timestamp, &mut errors);
        immutable("lastTimestamp", &new.last_timestamp, &old.last_timestamp, &mut errors);
        immutable("count", &new.count.unwrap_or_default(), &old.count.unwrap_or_default(), &mut errors);
        // Upstream has the reason in its list twice, and clients see every entry.
        immutable("reason", text(&new.reason), text(&old.reason), &mut errors);
        immutable("type", text(&new.type_), text(&old.type_), &mut errors);
        immutable("eventTime", &new.event_time, &old.event_time, &mut errors);
        immutable("action", text(&new.action), text(&old.action), &mut errors);
        immutable("related", &new.related, &old.related, &mut errors);
        immutable("reportingController", text(&new.reporting_component), text(&old.reporting_component), &mut errors);
        immutable("reportingInstance", text(&new.reporting_instance), text(&old.reporting_instance), &mut errors);
    }
    errors
}

fn immutable<T: PartialEq + Serialize + ?Sized>(field: &str, new: &T, old: &T, errors: &mut ErrorList) {
    if new != old {
        errors.push(FieldError::immutable(&Path::new(field), BadValue::typed(&new)));
    }
}

fn common(object: &Event, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let namespace = text(&object.metadata.namespace);
    let involved = text(&object.involved_object.namespace);
    let path = Path::new("involvedObject");
    let mut mismatch = || errors.push(FieldError::invalid(&path.child("namespace"), involved, "does not match event.namespace"));
    if object.event_time.is_none() {
        // Events about cluster-scoped objects lie in no namespace or in `default`.
        let fits = if involved.is_empty() { matches!(namespace, "" | "default") } else { involved == namespace };
        if !fits {
            mismatch();
        }
    } else {
        if involved.is_empty() && !matches!(namespace, "default" | "kube-system") {
            mismatch();
        }
        let controller = Path::new(if is_newer_api(cx) { "reportingController" } else { "reportingComponent" });
        let component = text(&object.reporting_component);
        if component.is_empty() {
            errors.push(FieldError::required(&controller, ""));
        }
        validation::texts(names::qualified_name(component), component, &controller, &mut errors);
        let limited = [
            ("reportingInstance", text(&object.reporting_instance), REPORTING_INSTANCE_MAX),
            ("action", text(&object.action), ACTION_MAX),
            ("reason", text(&object.reason), REASON_MAX),
        ];
        for (field, value, max) in limited {
            if value.is_empty() {
                errors.push(FieldError::required(&Path::new(field), ""));
            }
            at_most(field, value, max, &mut errors);
        }
        at_most("message", text(&object.message), NOTE_MAX, &mut errors);
    }
    validation::texts(names::dns1123_subdomain(namespace), namespace, &Path::new("namespace"), &mut errors);
    errors
}

fn at_most(field: &str, value: &str, max: usize, errors: &mut ErrorList) {
    if value.len() > max {
        errors.push(FieldError::invalid(&Path::new(field), "", format!("can have at most {max} characters")));
    }
}
