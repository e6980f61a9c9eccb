//! Defaults of a Secret.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::types;
use crate::validation::text;

pub fn apply(object: &mut Secret) {
    if text(&object.type_).is_empty() {
        object.type_ = Some(types::OPAQUE.to_owned());
    }
    if let Some(strings) = object.string_data.take().filter(|s| !s.is_empty()) {
        let data = object.data.get_or_insert_default();
        data.extend(strings.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))));
    }
}
