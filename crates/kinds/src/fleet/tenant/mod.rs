//! Tenant: who signed up. Cluster-scoped; its objects live in the namespace `tenant-<name>`.
//!
//! Invariants: the name is the tenant's id and never changes; a suspended tenant keeps its data while its clusters answer nobody; the fleet's
//! finalizer holds a deleted tenant until its last cluster is gone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::field::{FieldError, Path};
use wheelhouse_schema::Schema;

use super::object::{Object, resource};
use super::{GROUP, VERSION, schema as shapes};
use crate::kind::{Column, KindInfo, RequestContext, Scope, TypedKind, Verb, Verdict};
use crate::subresource::STATUS;
use crate::table;

pub type Tenant = Object<TenantSpec, TenantStatus>;

resource!(Tenant, "Tenant", "tenants", k8s_openapi::ClusterResourceScope);

/// Holds a deleted tenant until its clusters are gone and its namespace with them.
pub const FINALIZER: &str = "fleet.wheelhouse.dev/tenant";

/// Clusters that a tenant may have when its spec names no number.
pub const DEFAULT_CLUSTER_QUOTA: i64 = 5;

/// An address by RFC 5321 has at most 254 characters.
const MAX_EMAIL: usize = 254;
/// As long as a label value times four: room for a name, not for a text.
const MAX_DISPLAY_NAME: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantSpec {
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub email: String,
    #[serde(default)]
    pub quota: Quota,
    /// All clusters of a suspended tenant are suspended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    #[serde(default = "default_cluster_quota")]
    pub clusters: i64,
}

fn default_cluster_quota() -> i64 {
    DEFAULT_CLUSTER_QUOTA
}

impl Default for Quota {
    fn default() -> Self {
        Self { clusters: DEFAULT_CLUSTER_QUOTA }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub observed_generation: i64,
    /// Clusters that exist, deleted ones included while they are being taken down.
    #[serde(default)]
    pub clusters: i64,
}

pub struct TenantKind;

impl TypedKind for TenantKind {
    type Object = Tenant;

    const INFO: KindInfo = KindInfo {
        group: GROUP,
        version: VERSION,
        kind: "Tenant",
        plural: "tenants",
        singular: "tenant",
        short_names: &[],
        categories: &["fleet"],
        scope: Scope::Cluster,
        verbs: Verb::ALL,
        subresources: &[STATUS],
        generation: true,
        create_on_update: false,
        unconditional_update: false,
    };

    fn schema() -> Option<Schema> {
        Some(schema())
    }

    fn prepare_create(object: &mut Tenant, _: &RequestContext<'_>) -> Verdict {
        object.clear_status();
        validate(object)
    }

    fn prepare_update(new: &mut Tenant, old: &Tenant, cx: &RequestContext<'_>) -> Verdict {
        new.restore(old, cx);
        validate(new)
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Display Name", "What the tenant calls itself."),
        table::text("Clusters", "Clusters that exist, of those allowed."),
        table::boolean("Suspended", "Whether the tenant's clusters are stopped."),
        table::wide("Email", "Where the tenant can be reached."),
        table::AGE,
    ];

    fn row(object: &Tenant, now: Timestamp) -> Vec<Value> {
        let clusters = object.status.as_ref().map_or(0, |s| s.clusters);
        vec![
            object.name().into(),
            object.spec.display_name.as_str().into(),
            format!("{clusters}/{}", object.spec.quota.clusters).into(),
            object.spec.suspended.into(),
            object.spec.email.as_str().into(),
            table::age(&object.metadata, now),
        ]
    }
}

fn validate(tenant: &Tenant) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = Path::new("spec");
    let email = spec.child("email");
    let address = tenant.spec.email.as_str();
    if address.is_empty() {
        verdict.errors.push(FieldError::required(&email, ""));
    } else if address.len() > MAX_EMAIL {
        verdict.errors.push(FieldError::too_long(&email, MAX_EMAIL));
    } else if !looks_like_email(address) {
        verdict.errors.push(FieldError::invalid(&email, address, "must be an address of the form name@domain"));
    }
    if tenant.spec.display_name.len() > MAX_DISPLAY_NAME {
        verdict.errors.push(FieldError::too_long(&spec.child("displayName"), MAX_DISPLAY_NAME));
    }
    if tenant.spec.quota.clusters < 0 {
        let path = spec.child("quota");
        verdict.errors.push(FieldError::invalid(&path.child("clusters"), tenant.spec.quota.clusters, "must be greater than or equal to 0"));
    }
    verdict
}

/// Only a message that arrives proves an address; this refuses what certainly is none.
fn looks_like_email(address: &str) -> bool {
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let printable = address.chars().all(|c| c.is_ascii_graphic());
    printable && !local.is_empty() && !local.contains('@') && !domain.is_empty() && !domain.starts_with('.') && !domain.ends_with('.')
}

pub fn schema() -> Schema {
    let spec = shapes::structure([
        ("displayName", shapes::string()),
        ("email", shapes::string()),
        ("quota", shapes::structure([("clusters", shapes::int())])),
        ("suspended", shapes::boolean()),
    ]);
    let status = shapes::structure([("conditions", shapes::conditions()), ("observedGeneration", shapes::int()), ("clusters", shapes::int())]);
    shapes::object(spec, Some(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(email: &str) -> Tenant {
        Object::new("Tenant", "", "t1", TenantSpec { email: email.to_owned(), ..TenantSpec::default() })
    }

    #[test]
    fn addresses_that_cannot_be_are_refused() {
        for good in ["a@b", "first.last+tag@example.org"] {
            assert!(validate(&tenant(good)).errors.is_empty(), "{good}");
        }
        for bad in ["", "a", "@b", "a@", "a b@c", "a@b@c", "a@.b", "a@b.", &format!("{}@b", "a".repeat(254))] {
            assert_eq!(validate(&tenant(bad)).errors.len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_spec_without_a_quota_has_the_default_one() {
        let tenant: Tenant = serde_json::from_value(serde_json::json!({"spec": {"email": "a@b"}})).unwrap();
        assert_eq!(tenant.spec.quota.clusters, DEFAULT_CLUSTER_QUOTA);
    }
}
