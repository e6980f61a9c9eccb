//! The frame that all fleet kinds share: metadata, spec, status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::API_VERSION;
use crate::kind::RequestContext;

/// One object. `Spec` and `Status` are the kind's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object<Spec, Status> {
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

impl<Spec, Status> Object<Spec, Status> {
    /// A new object, not yet stored. `namespace` is empty for cluster-scoped kinds.
    pub fn new(kind: &str, namespace: &str, name: &str, spec: Spec) -> Self {
        let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
        let metadata = ObjectMeta { name: Some(name.to_owned()), namespace, ..ObjectMeta::default() };
        Self { api_version: API_VERSION.to_owned(), kind: kind.to_owned(), metadata, spec, status: None }
    }

    /// Empty until the object has a name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// 0 until stored.
    pub fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.metadata.finalizers.iter().flatten().any(|f| f == finalizer)
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

impl<Spec: Clone, Status: Clone> Object<Spec, Status> {
    /// A creator sets no status.
    pub(super) fn clear_status(&mut self) {
        self.status = None;
    }

    /// An update of the object keeps the status; an update of `status` keeps everything else, except that the registry owns the metadata.
    pub(super) fn restore(&mut self, old: &Self, cx: &RequestContext<'_>) {
        if cx.subresource == "status" {
            self.spec = old.spec.clone();
        } else {
            self.status = old.status.clone();
        }
    }
}

/// Lets a fleet kind stand wherever a built-in type does: in views and in the typed client.
macro_rules! resource {
    ($object:ty, $kind:literal, $plural:literal, $scope:ty) => {
        impl k8s_openapi::Resource for $object {
            const API_VERSION: &'static str = crate::fleet::API_VERSION;
            const GROUP: &'static str = crate::fleet::GROUP;
            const KIND: &'static str = $kind;
            const VERSION: &'static str = crate::fleet::VERSION;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $scope;
        }

        impl k8s_openapi::Metadata for $object {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}
pub(super) use resource;
