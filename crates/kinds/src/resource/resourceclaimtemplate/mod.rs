//! ResourceClaimTemplate: the claims that pods get one each of. It never changes.

use k8s_openapi::api::resource::v1::ResourceClaimTemplate;

use super::{GROUP, claim};
use crate::core::pod::template;
use crate::prelude::*;

pub struct ResourceClaimTemplateKind;

const SPEC: &str = "io.k8s.api.resource.v1.ResourceClaimTemplateSpec";

impl TypedKind for ResourceClaimTemplateKind {
    type Object = ResourceClaimTemplate;

    const INFO: KindInfo = KindInfo::namespaced(GROUP, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", "resourceclaimtemplate");

    fn default(object: &mut ResourceClaimTemplate) {
        claim::apply_defaults(object.spec.spec.devices.get_or_insert_default());
    }

    fn prepare_create(object: &mut ResourceClaimTemplate, _: &RequestContext<'_>) -> Verdict {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        if let Some(metadata) = &object.spec.metadata {
            template::metadata(metadata, &path.child("metadata"), &mut errors);
        }
        let (devices, spec) = (object.spec.spec.devices.clone().unwrap_or_default(), path.child("spec"));
        claim::validate(&devices, &spec.child("devices"), &mut errors);
        errors.into()
    }

    fn prepare_update(new: &mut ResourceClaimTemplate, old: &ResourceClaimTemplate, _: &RequestContext<'_>) -> Verdict {
        let mut errors = ErrorList::new();
        if new.spec != old.spec {
            errors.push(FieldError::immutable(&Path::new("spec"), validation::untagged(&new.spec, SPEC)));
        }
        errors.into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::AGE];

    fn row(object: &ResourceClaimTemplate, now: Timestamp) -> Vec<Value> {
        vec![table::name(&object.metadata), table::age(&object.metadata, now)]
    }
}
