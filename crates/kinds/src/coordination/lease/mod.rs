//! Lease: who holds something, and until when. Holders write it every few seconds.

use k8s_openapi::api::coordination::v1::Lease;

use crate::prelude::*;

pub struct LeaseKind;

impl TypedKind for LeaseKind {
    type Object = Lease;

    const INFO: KindInfo = KindInfo {
        create_on_update: true,
        unconditional_update: false,
        ..KindInfo::namespaced("coordination.k8s.io", "v1", "Lease", "leases", "lease")
    };

    fn prepare_create(object: &mut Lease, _: &RequestContext<'_>) -> Verdict {
        drop_disabled(object, None);
        validate(object).into()
    }

    fn prepare_update(new: &mut Lease, old: &Lease, _: &RequestContext<'_>) -> Verdict {
        drop_disabled(new, Some(old));
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::text("Holder", "Who holds the lease."), table::AGE];

    fn row(object: &Lease, now: Timestamp) -> Vec<Value> {
        let holder = object.spec.as_ref().map(|s| text(&s.holder_identity)).unwrap_or_default();
        vec![table::name(&object.metadata), holder.into(), table::age(&object.metadata, now)]
    }
}

/// Coordinated leader election is off by default upstream: its two fields are kept only where they are already.
fn drop_disabled(new: &mut Lease, old: Option<&Lease>) {
    let old = old.and_then(|o| o.spec.as_ref());
    let Some(spec) = new.spec.as_mut() else { return };
    if old.is_none_or(|o| o.strategy.is_none()) {
        spec.strategy = None;
    }
    if old.is_none_or(|o| o.preferred_holder.is_none()) {
        spec.preferred_holder = None;
    }
}

fn validate(object: &Lease) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let Some(spec) = &object.spec else { return errors };
    if let Some(seconds) = spec.lease_duration_seconds.filter(|s| *s <= 0) {
        errors.push(FieldError::invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0"));
    }
    if let Some(count) = spec.lease_transitions.filter(|c| *c < 0) {
        errors.push(FieldError::invalid(&path.child("leaseTransitions"), count, "must be greater than or equal to 0"));
    }
    errors
}
