//! PodTemplate: a template of pods on its own, for whoever refers to it.

use k8s_openapi::api::core::v1::PodTemplate;

use crate::apps::workload;
use crate::core::pod::template;
use crate::prelude::*;

pub struct PodTemplateKind;

impl TypedKind for PodTemplateKind {
    type Object = PodTemplate;

    const INFO: KindInfo = KindInfo { generation: true, ..KindInfo::namespaced("", "v1", "PodTemplate", "podtemplates", "podtemplate") };

    fn default(object: &mut PodTemplate) {
        template::apply_defaults(object.template.get_or_insert_default());
    }

    fn prepare_create(object: &mut PodTemplate, _: &RequestContext<'_>) -> Verdict {
        validate(object).into()
    }

    fn prepare_update(new: &mut PodTemplate, _: &PodTemplate, _: &RequestContext<'_>) -> Verdict {
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Containers", "Names of its containers."),
        table::text("Images", "Images of its containers."),
        table::text("Pod Labels", "Labels that its pods get."),
    ];

    fn row(object: &PodTemplate, _: Timestamp) -> Vec<Value> {
        let (containers, images) = workload::containers_and_images(object.template.as_ref());
        let labels = object.template.as_ref().and_then(|t| t.metadata.as_ref()).and_then(|m| m.labels.as_ref());
        let labels: Vec<String> = labels.into_iter().flatten().map(|(k, v)| format!("{k}={v}")).collect();
        let labels: Value = if labels.is_empty() { "<none>".into() } else { labels.join(",").into() };
        vec![table::name(&object.metadata), containers, images, labels]
    }
}

fn validate(object: &PodTemplate) -> ErrorList {
    let mut errors = ErrorList::new();
    template::validate(&object.template.clone().unwrap_or_default(), &Path::new("template"), &mut errors);
    errors
}
