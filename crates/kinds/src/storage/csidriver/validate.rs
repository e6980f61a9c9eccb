//! What a CSIDriver must be.

use k8s_openapi::api::storage::v1::{CSIDriver, TokenRequest};

use crate::prelude::*;

const FS_GROUP_POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
const LIFECYCLE_MODES: &[&str] = &["Persistent", "Ephemeral"];

/// Bounds of a token's life in seconds: 10 minutes, and what 32 bits hold.
const MIN_TOKEN_LIFE: i64 = 600;
const MAX_TOKEN_LIFE: i64 = 1 << 32;

/// The shortest period between updates of a node's allocatable count, in seconds.
const MIN_UPDATE_PERIOD: i64 = 10;

pub fn create(object: &CSIDriver) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = &object.spec;
    let policy = text(&spec.fs_group_policy);
    if !FS_GROUP_POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported(&path.child("fsGroupPolicy"), policy, FS_GROUP_POLICIES));
    }
    token_requests(items(&spec.token_requests), &path.child("tokenRequests"), &mut errors);
    for mode in items(&spec.volume_lifecycle_modes).iter().filter(|m| !LIFECYCLE_MODES.contains(&m.as_str())) {
        errors.push(FieldError::not_supported(&path.child("volumeLifecycleModes"), mode, LIFECYCLE_MODES));
    }
    if let Some(period) = spec.node_allocatable_update_period_seconds.filter(|p| *p < MIN_UPDATE_PERIOD) {
        let why = format!("must be greater than or equal to {MIN_UPDATE_PERIOD} seconds");
        errors.push(FieldError::invalid(&path.child("nodeAllocatableUpdatePeriodSeconds"), period, why));
    }
    errors
}

fn token_requests(requests: &[TokenRequest], path: &Path<'_>, errors: &mut ErrorList) {
    for (at, request) in requests.iter().enumerate() {
        let path = path.index(at);
        if requests[..at].iter().any(|r| r.audience == request.audience) {
            errors.push(FieldError::duplicate(&path.child("audience"), &request.audience));
            continue;
        }
        let Some(seconds) = request.expiration_seconds else { continue };
        if seconds < MIN_TOKEN_LIFE {
            errors.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes"));
        }
        if seconds > MAX_TOKEN_LIFE {
            errors.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"));
        }
    }
}

/// What volumes in use rely on stays.
pub fn update(new: &CSIDriver, old: &CSIDriver) -> ErrorList {
    let mut errors = create(new);
    let path = Path::new("spec");
    if new.spec.attach_required != old.spec.attach_required {
        // The field's name is upstream's slip.
        errors.push(FieldError::immutable(&path.child("attachedRequired"), new.spec.attach_required));
    }
    if !validation::same(&new.spec.volume_lifecycle_modes, &old.spec.volume_lifecycle_modes) {
        let shown = BadValue::typed(&new.spec.volume_lifecycle_modes);
        errors.push(FieldError::immutable(&path.child("volumeLifecycleModes"), shown));
    }
    errors
}
