//! How many Clusters a tenant may have, held exactly however many requests and processes create them at once.
//!
//! A creation counts the tenant's Clusters in the state that it was decided on, and writes one key of the tenant's in its transaction, on
//! condition that nobody has written it since. So of two creations that counted the same Clusters one loses and counts again. A deletion
//! writes nothing: a Cluster that went meanwhile was counted, which errs on the safe side for one attempt.

use bytes::Bytes;
use wheelhouse_kinds::fleet::{GROUP, Tenant, tenant_of_namespace};
use wheelhouse_meta::Status;
use wheelhouse_mvcc::{Compare, CompareTarget, Comparison, KeyRange, Op, Put, Snapshot};

use super::Call;
use super::write::{Also, current};
use crate::request::Answer;

/// One key for each tenant that has ever had a Cluster.
const CREATIONS: &str = "/registry/ranges/clusters/";

/// What must hold and be written with a new Cluster; refused if its tenant has as many as it may.
pub fn claim(call: &Call<'_>, name: &str, snapshot: &Snapshot) -> Answer<Also> {
    let (resource, namespace) = (call.resource(), call.namespace());
    // The system's own namespace is nobody's.
    let Some(tenant) = tenant_of_namespace(namespace) else { return Ok(Also::default()) };
    let tenants = call.server.catalogue.stored(GROUP, "tenants");
    let tenants = tenants.ok_or_else(|| Status::internal_error("there are Clusters without Tenants"))?;
    let Some(tenant) = current(tenants, snapshot, &tenants.key("", tenant))? else {
        return Err(Status::forbidden(&resource.group_resource, name, "the namespace's tenant does not exist").into());
    };
    let tenant: Tenant =
        serde_json::from_value(tenant.object).map_err(|error| Status::internal_error(format!("the tenant does not decode: {error}")))?;
    let allowed = tenant.spec.quota.clusters;
    let prefix = KeyRange::prefix(resource.key_prefix(namespace));
    let have = i64::try_from(snapshot.range(&prefix.start, prefix.end.as_deref()).count()).unwrap_or(i64::MAX);
    if have >= allowed {
        return Err(
            Status::forbidden(&resource.group_resource, name, format!("exceeded quota: used clusters={have}, limited clusters={allowed}")).into()
        );
    }
    let key = Bytes::from(format!("{CREATIONS}{namespace}"));
    let seen = snapshot.get(&key).map_or(0, |record| record.mod_revision);
    let compare = Compare { range: KeyRange::key(key.clone()), comparison: Comparison::Equal, target: CompareTarget::ModRevision(seen) };
    let put = Put { key, value: Bytes::from_static(b"{}"), lease: 0, prev_kv: false, ignore_value: false, ignore_lease: false };
    Ok(Also { compare: vec![compare], operations: vec![Op::Put(put)] })
}
