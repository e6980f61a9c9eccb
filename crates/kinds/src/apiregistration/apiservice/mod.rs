//! APIService: a group and version, its place in discovery, and which Service answers for it. One without a Service is answered by this
//! server itself.

pub mod reconcile;
mod validate;

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceCondition, APIServiceStatus};

use crate::prelude::*;

pub struct APIServiceKind;

/// The condition that says whether requests can be answered.
pub const AVAILABLE: &str = "Available";

/// The port of a Service that names none.
const PORT: i32 = 443;

impl TypedKind for APIServiceKind {
    type Object = APIService;

    const INFO: KindInfo = KindInfo {
        categories: &["api-extensions"],
        subresources: &[subresource::STATUS],
        unconditional_update: false,
        ..KindInfo::cluster("apiregistration.k8s.io", "v1", "APIService", "apiservices", "apiservice")
    };

    /// The name follows from group and version, of which the version comes first.
    const NAME_RULE: NameRule = NameRule::Own;

    fn default(object: &mut APIService) {
        if let Some(service) = object.spec.as_mut().and_then(|s| s.service.as_mut()) {
            service.port.get_or_insert(PORT);
        }
    }

    fn prepare_create(object: &mut APIService, cx: &RequestContext<'_>) -> Verdict {
        let is_local = object.spec.as_ref().is_none_or(|s| s.service.is_none());
        object.status = Some(APIServiceStatus { conditions: is_local.then(|| vec![always_available(cx.now)]) });
        validate::service(object).into()
    }

    fn prepare_update(new: &mut APIService, old: &APIService, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate::status(new).into();
        }
        new.status.clone_from(&old.status);
        validate::service(new).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Service", "Who answers: a Service, or this server itself."),
        table::text("Available", "Whether it answers now, and if not, why."),
        table::AGE,
    ];

    fn row(object: &APIService, now: Timestamp) -> Vec<Value> {
        let service = object.spec.as_ref().and_then(|s| s.service.as_ref());
        let shown = service.map_or_else(|| "Local".to_owned(), |s| format!("{}/{}", text(&s.namespace), text(&s.name)));
        let conditions = object.status.as_ref().map(|s| items(&s.conditions)).unwrap_or_default();
        let available = conditions.iter().find(|c| c.type_ == AVAILABLE).map_or_else(
            || "Unknown".to_owned(),
            |c| match text(&c.reason) {
                reason if c.status != "True" && !reason.is_empty() => format!("{} ({reason})", c.status),
                _ => c.status.clone(),
            },
        );
        vec![table::name(&object.metadata), shown.into(), available.into(), table::age(&object.metadata, now)]
    }
}

/// What this server answers itself needs no looking at.
fn always_available(now: Timestamp) -> APIServiceCondition {
    APIServiceCondition {
        type_: AVAILABLE.to_owned(),
        status: "True".to_owned(),
        reason: Some("Local".to_owned()),
        message: Some("Local APIServices are always available".to_owned()),
        last_transition_time: validation::time(now),
    }
}
