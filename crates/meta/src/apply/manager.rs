//! Who writes, and the versions of what is written.

use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_schema::Schema;

/// Who writes, where, and when.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// The `fieldManager` of the request, or what stands in for it (the start of the user agent). Empty is `unknown`.
    pub name: &'a str,
    /// The version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// `status`, `scale`; empty for the object itself.
    pub subresource: &'a str,
    /// What a write here cannot change, so nobody owns it through here: `[["status"]]` for an object with a status subresource,
    /// `[["spec"]]`, `[["metadata"]]` for the subresource itself.
    pub reset_fields: &'a [&'a [&'a str]],
    pub now: Timestamp,
}

/// The versions of a kind.
pub trait Versions {
    /// `None` if the version is not served any more: its managers lose what they own.
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// The object in another version. `None` as for [`Versions::schema`].
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// A kind with one version.
#[derive(Clone, Copy, Debug)]
pub struct SingleVersion<'a> {
    pub api_version: &'a str,
    pub schema: &'a Schema,
}

impl Versions for SingleVersion<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == self.api_version).then_some(self.schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        (api_version == self.api_version).then(|| object.clone())
    }
}
