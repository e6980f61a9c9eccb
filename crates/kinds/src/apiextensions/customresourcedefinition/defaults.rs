//! Defaults of a CustomResourceDefinition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceConversion, CustomResourceDefinition};

use crate::core::pod::defaults::or_text;

pub fn apply(object: &mut CustomResourceDefinition) {
    let names = &mut object.spec.names;
    if names.singular.as_deref().is_none_or(str::is_empty) {
        names.singular = Some(names.kind.to_lowercase());
    }
    let list = format!("{}List", names.kind);
    if !names.kind.is_empty() {
        or_text(&mut names.list_kind, &list);
    }
    if object.spec.conversion.is_none() {
        object.spec.conversion = Some(CustomResourceConversion { strategy: "None".to_owned(), webhook: None });
    }
    // A false here is what upstream's conversion leaves out.
    if object.spec.preserve_unknown_fields == Some(false) {
        object.spec.preserve_unknown_fields = None;
    }
}
