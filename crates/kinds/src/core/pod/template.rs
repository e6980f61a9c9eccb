//! Pod templates, for the kinds that have one.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{defaults, validate};
use wheelhouse_meta::validation as names;

use crate::prelude::*;

pub fn apply_defaults(template: &mut PodTemplateSpec) {
    defaults::pod_spec(template.spec.get_or_insert_default());
}

/// `path` is the template's.
pub fn validate(template: &PodTemplateSpec, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(metadata) = &template.metadata {
        // Upstream leaves the metadata out of these paths.
        self::metadata(metadata, path, errors);
    }
    let spec = template.spec.clone().unwrap_or_default();
    validate::pod_spec(&spec, None, &path.child("spec"), errors);
    if !items(&spec.ephemeral_containers).is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(&path.child("spec").child("ephemeralContainers"), why));
    }
}

/// What objects made from a template get: labels and annotations.
pub fn metadata(metadata: &ObjectMeta, path: &Path<'_>, errors: &mut ErrorList) {
    validation::labels(&metadata.labels, &path.child("labels"), errors);
    if let Some(annotations) = &metadata.annotations {
        let annotations = annotations.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect();
        errors.extend(names::annotations(&annotations, &path.child("annotations")));
    }
}

/// A template whose pods the selector would not take. The labels are shown as null where there are none at all.
pub fn mismatch(labels: &Option<std::collections::BTreeMap<String, String>>, path: &Path<'_>, errors: &mut ErrorList) {
    let shown = labels.as_ref().map_or_else(|| BadValue::Text("null".to_owned()), BadValue::typed);
    let path = path.child("metadata");
    errors.push(FieldError::invalid(&path.child("labels"), shown, "`selector` does not match template `labels`"));
}
