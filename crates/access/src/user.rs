//! An authenticated identity (`authentication.k8s.io/v1 UserInfo`).

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct User {
    #[serde(rename = "username", default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub const ANONYMOUS: &'static str = "system:anonymous";
    pub const AUTHENTICATED: &'static str = "system:authenticated";
    pub const UNAUTHENTICATED: &'static str = "system:unauthenticated";
    pub const MASTERS: &'static str = "system:masters";

    /// A request that carried no credentials.
    pub fn anonymous() -> Self {
        Self { name: Self::ANONYMOUS.into(), groups: vec![Self::UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// A component of the control plane acting in its own name, e.g. `system:kube-scheduler`.
    pub fn component(name: &str) -> Self {
        Self { name: name.into(), groups: vec![Self::AUTHENTICATED.into()], ..Self::default() }
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
