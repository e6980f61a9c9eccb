//! `events.k8s.io/v1`: the same event under newer names of fields.

use wheelhouse_schema::{catalog, normalise};

use crate::prelude::*;

/// The newer name and the stored one.
const RENAMED: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

pub const EVENTS_V1: OtherVersion = OtherVersion {
    group: "events.k8s.io",
    version: "v1",
    default: |_| {},
    to_stored: |object| rename(object, "v1", RENAMED.iter().copied()),
    from_stored: |object| rename(object, "events.k8s.io/v1", RENAMED.iter().map(|(new, old)| (*old, *new))),
    selectable: &[
        ("reason", "reason"),
        ("regarding.kind", "involvedObject.kind"),
        ("regarding.namespace", "involvedObject.namespace"),
        ("regarding.name", "involvedObject.name"),
        ("regarding.uid", "involvedObject.uid"),
        ("regarding.apiVersion", "involvedObject.apiVersion"),
        ("regarding.resourceVersion", "involvedObject.resourceVersion"),
        ("regarding.fieldPath", "involvedObject.fieldPath"),
        ("reportingController", "reportingComponent"),
        ("type", "type"),
    ],
};

fn rename(object: &mut Value, api_version: &str, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(fields) = object.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
    fields.insert("apiVersion".to_owned(), api_version.into());
    // Which fields stand there when they are empty differs between the two.
    let group = if api_version == "v1" { "" } else { "events.k8s.io" };
    if let Some(kind) = catalog().kind(group, "v1", "Event") {
        normalise(object, &kind.schema);
    }
}
