//! StorageObjectInUseProtection and PersistentVolumeClaimResize.
//!
//! A new volume, claim or attributes class carries a finalizer, so that deleting it waits until nobody uses it; the protection controllers take it
//! off. A claim may grow only where its class says that its volumes can.

use serde_json::{Value, json};
use wheelhouse_meta::Quantity;

use super::pod::text;
use super::storage_class::OLD_CLASS_ANNOTATION;
use super::{Operation, Request};
use crate::lookups::{Answer, Lookups};

/// Which finalizer protects which resource.
const PROTECTED: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
];

pub(super) fn protect(request: &Request<'_>, object: &mut Value) {
    if request.operation != Operation::Create {
        return;
    }
    let Some((_, _, finalizer)) = PROTECTED.iter().find(|(group, resource, _)| request.is(group, resource)) else { return };
    let finalizers = &mut object["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(present) if present.iter().any(|f| f == finalizer) => {}
        Some(present) => present.push((*finalizer).into()),
        None => *finalizers = json!([finalizer]),
    }
}

pub(super) fn check_growth(request: &Request<'_>, claim: &Value, lookups: &dyn Lookups) -> Answer<()> {
    let Some(old) = request.old.filter(|_| request.is("", "persistentvolumeclaims") && request.operation == Operation::Update) else {
        return Ok(());
    };
    let size = |claim: &Value| claim["spec"]["resources"]["requests"]["storage"].as_str().and_then(|s| Quantity::parse(s).ok()).unwrap_or_default();
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old["status"]["phase"] != "Bound" {
        return Err(request.forbidden(Some(claim), "Only bound persistent volume claims can be expanded"));
    }
    let class = class_of(claim);
    let can_grow = class == class_of(old)
        && !class.is_empty()
        && lookups.get("storage.k8s.io", "storageclasses", "", class).is_some_and(|class| class["allowVolumeExpansion"] == true);
    if can_grow {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(request.forbidden(Some(claim), why))
}

/// The claim's class: the old annotation counts before the field.
fn class_of(claim: &Value) -> &str {
    match claim["metadata"]["annotations"][OLD_CLASS_ANNOTATION].as_str() {
        Some(class) => class,
        None => text(&claim["spec"], "storageClassName"),
    }
}
