//! `kubectl get events`, and the field selectors.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::prelude::*;

pub const COLUMNS: &[Column] = &[
    table::text("Last Seen", "Time since it happened last."),
    table::text("Type", "Normal or Warning."),
    table::text("Reason", "Why it was reported, as one word."),
    table::text("Object", "What it happened to."),
    table::wide("Subobject", "Which part of the object."),
    table::wide("Source", "Who reported it."),
    table::text("Message", "What happened."),
    table::wide("First Seen", "Time since it happened first."),
    table::wide("Count", "How often it happened."),
    Column { priority: 1, ..table::NAME },
];

pub fn row(object: &Event, now: Timestamp) -> Vec<Value> {
    let micro = |time: Option<&MicroTime>| time.map_or_else(|| "<unknown>".to_owned(), |t| table::duration(now.as_micros() - t.0.as_microsecond()));
    let first = match &object.first_timestamp {
        Some(time) => table::since(Some(time), now),
        None => micro(object.event_time.as_ref()),
    };
    let (last, count) = match (&object.series, &object.last_timestamp) {
        (Some(series), _) => (micro(series.last_observed_time.as_ref()), series.count.unwrap_or_default()),
        // The newer API leaves the count of a single event unset.
        (None, last) => {
            let seen = if last.is_some() { table::since(last.as_ref(), now) } else { first.clone() };
            (seen, object.count.filter(|c| *c != 0).unwrap_or(1))
        }
    };
    let involved = &object.involved_object;
    let kind = text(&involved.kind).to_lowercase();
    let target = if text(&involved.name).is_empty() { kind } else { format!("{kind}/{}", text(&involved.name)) };
    vec![
        last.into(),
        text(&object.type_).into(),
        text(&object.reason).into(),
        target.into(),
        text(&involved.field_path).into(),
        reporter(object).into(),
        text(&object.message).trim().into(),
        first.into(),
        count.into(),
        table::name(&object.metadata),
    ]
}

/// `component, host`, from the old fields or else the new ones.
fn reporter(object: &Event) -> String {
    let host = object.source.as_ref().map(|s| text(&s.host)).filter(|h| !h.is_empty()).unwrap_or(text(&object.reporting_instance));
    let component = component(object);
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

fn component(object: &Event) -> &str {
    let old = object.source.as_ref().map(|s| text(&s.component)).filter(|c| !c.is_empty());
    old.unwrap_or(text(&object.reporting_component))
}

pub const SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

pub fn selectable_fields(object: &Value) -> Vec<(&'static str, String)> {
    let value = |name: &'static str| match name {
        "source" => {
            let component = validation::text_at(object, "source.component");
            if component.is_empty() { validation::text_at(object, "reportingComponent") } else { component }
        }
        name => validation::text_at(object, name),
    };
    SELECTABLE.iter().map(|name| (*name, value(name))).collect()
}
