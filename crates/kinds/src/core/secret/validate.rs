//! What a Secret must be.

use k8s_openapi::api::core::v1::Secret;
use wheelhouse_schema::{FieldValidation, Schema, decode};

use super::types;
use crate::prelude::*;

/// All values together, in bytes.
const MAX_DATA_BYTES: usize = 1024 * 1024;
/// The annotation that names a token's service account.
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// Stands in messages where the value must not.
const REDACTED: &str = "<secret contents redacted>";

pub fn create(object: &Secret) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("data");
    let mut total = 0;
    for (key, value) in object.data.iter().flatten() {
        validation::config_map_key(key, &path.key(key), &mut errors);
        total += value.0.len();
    }
    if total > MAX_DATA_BYTES {
        errors.push(FieldError::too_long(&path, MAX_DATA_BYTES));
    }
    let mut require = |key: &str| errors.push(FieldError::required(&path.key(key), ""));
    match text(&object.type_) {
        types::SERVICE_ACCOUNT_TOKEN => {
            let named = object.metadata.annotations.iter().flatten().any(|(k, v)| k == SERVICE_ACCOUNT_NAME && !v.is_empty());
            if !named {
                let (metadata, annotations) = (Path::new("metadata"), "annotations");
                errors.push(FieldError::required(&metadata.child(annotations).key(SERVICE_ACCOUNT_NAME), ""));
            }
        }
        types::DOCKERCFG => docker_configuration(object, ".dockercfg", &path, &mut errors),
        types::DOCKERCONFIGJSON => docker_configuration(object, ".dockerconfigjson", &path, &mut errors),
        // Either may be empty or missing, but not both missing.
        types::BASIC_AUTH if value(object, "username").is_none() && value(object, "password").is_none() => {
            require("username");
            require("password");
        }
        types::SSH_AUTH if value(object, "ssh-privatekey").is_none_or(<[u8]>::is_empty) => require("ssh-privatekey"),
        types::TLS => {
            for key in ["tls.crt", "tls.key"] {
                if value(object, key).is_none() {
                    require(key);
                }
            }
        }
        _ => {}
    }
    errors
}

pub fn update(new: &Secret, old: &Secret) -> ErrorList {
    let mut errors = ErrorList::new();
    if new.type_ != old.type_ {
        errors.push(FieldError::immutable(&Path::new("type"), text(&new.type_)));
    }
    if old.immutable == Some(true) {
        let frozen = |path: &str| FieldError::forbidden(&Path::new(path), "field is immutable when `immutable` is set");
        if new.immutable != Some(true) {
            errors.push(frozen("immutable"));
        }
        if !validation::same(&new.data, &old.data) {
            errors.push(frozen("data"));
        }
    }
    errors.extend(create(new));
    errors
}

/// A certificate or key that is no PEM is stored all the same, but said.
pub fn warnings(object: &Secret) -> Vec<String> {
    if text(&object.type_) != types::TLS {
        return Vec::new();
    }
    let lacks_pem = |key: &str| value(object, key).is_none_or(|bytes| !bytes.windows(PEM_START.len()).any(|w| w == PEM_START));
    if lacks_pem("tls.crt") {
        return vec!["tls: failed to find any PEM data in certificate input".to_owned()];
    }
    if lacks_pem("tls.key") {
        return vec!["tls: failed to find any PEM data in key input".to_owned()];
    }
    Vec::new()
}

const PEM_START: &[u8] = b"-----BEGIN ";

fn value<'a>(object: &'a Secret, key: &str) -> Option<&'a [u8]> {
    object.data.as_ref()?.get(key).map(|v| v.0.as_slice())
}

/// The content is a JSON object, whatever it holds.
fn docker_configuration(object: &Secret, key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(bytes) = value(object, key) else {
        errors.push(FieldError::required(&path.key(key), ""));
        return;
    };
    let any_object = Schema::map(Schema::Any, false);
    if let Err(error) = decode(bytes, &any_object, FieldValidation::Ignore) {
        errors.push(FieldError::invalid(&path.key(key), REDACTED, error.to_string()));
    }
}
