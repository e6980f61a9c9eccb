//! FlowSchema: which requests belong to which priority level. The lowest precedence that matches decides.

mod validate;

use k8s_openapi::api::flowcontrol::v1::{FlowSchema, FlowSchemaStatus};

use super::conditions;
use crate::prelude::*;

pub struct FlowSchemaKind;

/// A schema's place when it names none.
const PRECEDENCE: i32 = 1000;

/// Says that the priority level is not there.
const DANGLING: &str = "Dangling";

impl TypedKind for FlowSchemaKind {
    type Object = FlowSchema;

    const INFO: KindInfo = KindInfo {
        subresources: &[subresource::STATUS],
        generation: true,
        ..KindInfo::cluster("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", "flowschema")
    };

    fn default(object: &mut FlowSchema) {
        let precedence = &mut object.spec.get_or_insert_default().matching_precedence;
        if precedence.unwrap_or_default() == 0 {
            *precedence = Some(PRECEDENCE);
        }
    }

    fn prepare_create(object: &mut FlowSchema, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(FlowSchemaStatus::default());
        validate::schema(object).into()
    }

    fn prepare_update(new: &mut FlowSchema, old: &FlowSchema, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return conditions::validate(types(new)).into();
        }
        new.status.clone_from(&old.status);
        validate::schema(new).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("PriorityLevel", "The level that its requests get."),
        table::text("MatchingPrecedence", "Its place among the schemas; the lowest decides."),
        table::text("DistinguisherMethod", "What its requests are told apart by."),
        table::AGE,
        table::text("MissingPL", "Whether the level does not exist."),
    ];

    fn row(object: &FlowSchema, now: Timestamp) -> Vec<Value> {
        let spec = object.spec.clone().unwrap_or_default();
        let conditions = object.status.as_ref().map(|s| items(&s.conditions)).unwrap_or_default();
        let dangling = conditions.iter().find(|c| c.type_.as_deref() == Some(DANGLING)).map_or("?", |c| text(&c.status));
        vec![
            table::name(&object.metadata),
            spec.priority_level_configuration.name.into(),
            spec.matching_precedence.unwrap_or_default().into(),
            spec.distinguisher_method.map_or_else(|| "<none>".into(), |m| m.type_.into()),
            table::age(&object.metadata, now),
            dangling.into(),
        ]
    }
}

fn types(object: &FlowSchema) -> impl Iterator<Item = &str> {
    object.status.iter().flat_map(|s| items(&s.conditions)).map(|c| text(&c.type_))
}
