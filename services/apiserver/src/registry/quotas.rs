//! Quotas in the request's own transaction.
//!
//! What the quotas of a namespace have used is one key below `/registry/ranges/quotas/`. Every creation and removal in a namespace compares
//! it, also where there is no quota yet; a quota that is created or changed writes it. So no object that was decided on before a quota was
//! there can slip past its first count.

use bytes::Bytes;
use serde_json::Value;
use wheelhouse_access::admission::{Operation, Request, quota};
use wheelhouse_access::{Lookups, Target};
use wheelhouse_meta::object::Object;
use wheelhouse_mvcc::{Compare, CompareTarget, Comparison, DeleteRange, KeyRange, Op, Put, Snapshot};

use super::Call;
use super::write::Also;
use crate::request::Answer;
use crate::security::SnapshotLookups;

const LEDGERS: &str = "/registry/ranges/quotas/";

/// What must hold and be written with a write in a namespace, or the refusal. `new` is `None` when the object goes.
pub fn charge(call: &Call<'_>, operation: Operation, new: Option<&Value>, old: Option<&Value>, snapshot: &Snapshot) -> Answer<Also> {
    let namespace = call.namespace();
    let mut attributes = call.attributes();
    // An eviction, or an update that lets a deleted object go, comes to a deletion of the object itself.
    if let (Operation::Delete, Target::Resource { subresource, .. }) = (operation, &mut attributes.target) {
        *subresource = "";
    }
    let request = Request { attributes: &attributes, operation, old, dry_run: false, now: call.now, seed: call.seed };
    if namespace.is_empty() || !call.resource().is_stored() {
        return Ok(Also::default());
    }
    let is_quota = call.resource().is("", "resourcequotas") && call.subresource().is_empty() && operation != Operation::Delete;
    if !is_quota && !quota::concerns(&request, new) {
        return Ok(Also::default());
    }
    let key = Bytes::from(format!("{LEDGERS}{namespace}"));
    let record = snapshot.get(&key);
    let revision = record.map_or(0, |record| record.mod_revision);
    let mut also = Also {
        compare: vec![Compare { range: KeyRange::key(key.clone()), comparison: Comparison::Equal, target: CompareTarget::ModRevision(revision) }],
        operations: Vec::new(),
    };
    let lookups = SnapshotLookups(snapshot.clone());
    let quotas = lookups.list("", "resourcequotas", namespace);
    if quotas.is_empty() && !is_quota {
        return Ok(also);
    }
    let before: Value = record.and_then(|record| serde_json::from_slice(&record.value).ok()).unwrap_or_default();
    let after = if quotas.is_empty() { Value::Object(Default::default()) } else { quota::settle(&request, new, &quotas, &before, &lookups)? };
    if is_quota || after != before {
        let value = Bytes::from(after.to_string());
        also.operations.push(Op::Put(Put { key, value, lease: 0, prev_kv: false, ignore_value: false, ignore_lease: false }));
    }
    Ok(also)
}

/// What a removed namespace leaves behind.
pub fn release(call: &Call<'_>, old: &Value) -> Also {
    if !call.resource().is("", "namespaces") {
        return Also::default();
    }
    let key = format!("{LEDGERS}{}", old.name());
    Also { compare: Vec::new(), operations: vec![Op::Delete(DeleteRange { range: KeyRange::key(key), prev_kv: false })] }
}
