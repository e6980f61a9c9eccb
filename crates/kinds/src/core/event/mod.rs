//! Event: something happened to an object. Kept for an hour.
//!
//! One storage serves `v1` and `events.k8s.io/v1`; the latter is stricter: what happened once is never rewritten, only its series goes on.

mod columns;
mod validate;
mod versions;

use k8s_openapi::api::core::v1::Event;

use crate::prelude::*;

pub struct EventKind;

impl TypedKind for EventKind {
    type Object = Event;

    const INFO: KindInfo = KindInfo { short_names: &["ev"], create_on_update: true, ..KindInfo::namespaced("", "v1", "Event", "events", "event") };

    const OTHER_VERSIONS: &'static [OtherVersion] = &[versions::EVENTS_V1];

    fn prepare_create(object: &mut Event, cx: &RequestContext<'_>) -> Verdict {
        validate::create(object, cx).into()
    }

    fn prepare_update(new: &mut Event, old: &Event, cx: &RequestContext<'_>) -> Verdict {
        validate::update(new, old, cx).into()
    }

    const COLUMNS: &'static [Column] = columns::COLUMNS;

    fn row(object: &Event, now: Timestamp) -> Vec<Value> {
        columns::row(object, now)
    }

    const SELECTABLE: &'static [&'static str] = columns::SELECTABLE;

    fn selectable_from_value(object: &Value) -> Option<Vec<(&'static str, String)>> {
        Some(columns::selectable_fields(object))
    }
}
