//! The 403 that a refused request is answered with.

use wheelhouse_meta::gotext::quote;
use wheelhouse_meta::{GroupResource, Status};

use crate::attributes::{Attributes, Target};

/// The sentence `User "x" cannot list resource "pods" in API group "" in the namespace "y"`, with `: reason` if there is one.
pub fn sentence(attributes: &Attributes<'_>, reason: &str) -> String {
    let mut text = match attributes.target {
        Target::Path(path) => format!("User {} cannot {} path {}", quote(&attributes.user.name), attributes.verb, quote(path)),
        Target::Resource { group, resource, subresource, namespace, .. } => {
            let resource = if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
            let place = if namespace.is_empty() { "at the cluster scope".to_owned() } else { format!("in the namespace {}", quote(namespace)) };
            let (user, verb) = (quote(&attributes.user.name), attributes.verb);
            format!("User {user} cannot {verb} resource {} in API group {} {place}", quote(&resource), quote(group))
        }
    };
    if !reason.is_empty() {
        text.push_str(": ");
        text.push_str(reason);
    }
    text
}

/// The whole answer. `reason` is the decision's, as upstream tells it to the user.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    let why = sentence(attributes, reason);
    match attributes.target {
        Target::Path(_) => Status::forbidden(&GroupResource::default(), "", why),
        Target::Resource { group, resource, name, .. } => Status::forbidden(&GroupResource::new(group, resource), name, why),
    }
}
