//! Who writes, and the versions of what is written.

use serde_json::Value;
use wheelhouse_base::Timestamp;
use wheelhouse_schema::Schema;

use crate::gotext::is_printable;

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

/// The longest name made from a user agent, in bytes; the limit of `fieldManager`.
const NAME_MAX: usize = 128;

/// The manager of a request: its `fieldManager`, or the user agent up to the first slash, printable characters only.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for c in product.chars().filter(|c| is_printable(*c)) {
        if name.len() + c.len_utf8() > NAME_MAX {
            break;
        }
        name.push(c);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_named_by_option_or_user_agent() {
        assert_eq!(manager_name("me", "kubectl/v1"), "me");
        assert_eq!(manager_name("", "kubectl/v1.36 (linux/amd64)"), "kubectl");
        assert_eq!(manager_name("", "a\u{7}b"), "ab");
        assert_eq!(manager_name("", &"x".repeat(200)).len(), NAME_MAX);
        assert_eq!(manager_name("", ""), "");
    }
}
