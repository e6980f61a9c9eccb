//! ControllerRevision: one past or present state of a StatefulSet or DaemonSet, as data that never changes.

pub mod history;

use k8s_openapi::api::apps::v1::ControllerRevision;

use crate::prelude::*;

pub struct ControllerRevisionKind;

impl TypedKind for ControllerRevisionKind {
    type Object = ControllerRevision;

    const INFO: KindInfo = KindInfo::namespaced("apps", "v1", "ControllerRevision", "controllerrevisions", "controllerrevision");

    fn prepare_create(object: &mut ControllerRevision, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut ControllerRevision, old: &ControllerRevision, _: &RequestContext<'_>) -> Verdict {
        let mut errors = validate(new);
        if new.data != old.data {
            errors.push(FieldError::immutable(&Path::new("data"), BadValue::typed(&new.data)));
        }
        errors.into()
    }

    const COLUMNS: &'static [Column] =
        &[table::NAME, table::text("Controller", "What it is a revision of."), table::text("Revision", "Its place in the history."), table::AGE];

    fn row(object: &ControllerRevision, now: Timestamp) -> Vec<Value> {
        let owner = items(&object.metadata.owner_references).iter().find(|o| o.controller == Some(true));
        let controller = owner.map_or_else(
            || "<none>".to_owned(),
            |owner| {
                let kind = owner.kind.to_lowercase();
                match owner.api_version.split_once('/') {
                    Some((group, _)) => format!("{kind}.{group}/{}", owner.name),
                    None => format!("{kind}/{}", owner.name),
                }
            },
        );
        vec![table::name(&object.metadata), controller.into(), object.revision.into(), table::age(&object.metadata, now)]
    }
}

fn validate(object: &ControllerRevision) -> ErrorList {
    let mut errors = ErrorList::new();
    let data = Path::new("data");
    match object.data.as_ref().map(|d| &d.0) {
        None => errors.push(FieldError::required(&data, "data is mandatory")),
        Some(Value::Object(_)) => {}
        Some(_) => errors.push(FieldError::required(&data, "data must be a valid JSON object")),
    }
    errors.extend(wheelhouse_meta::validation::nonnegative(object.revision, &Path::new("revision")));
    errors
}
