//! What the two kinds of binding share: the role they refer to and the subjects they give it to.

use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use wheelhouse_meta::gotext;

use super::GROUP;
use crate::prelude::*;
use wheelhouse_meta::validation as names;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::text("Role", "The role that is given."),
    table::AGE,
    table::wide("Users", "Users it is given to."),
    table::wide("Groups", "Groups it is given to."),
    table::wide("ServiceAccounts", "Service accounts it is given to, each with its namespace."),
];

/// The cells after the name and the age are put in.
pub fn cells(name: Value, age: Value, role: &RoleRef, subjects: &Option<Vec<Subject>>) -> Vec<Value> {
    let of = |kind: &str| -> Value {
        let names: Vec<String> = items(subjects)
            .iter()
            .filter(|s| s.kind == kind)
            .map(|s| if kind == "ServiceAccount" { format!("{}/{}", text(&s.namespace), s.name) } else { s.name.clone() })
            .collect();
        names.join(", ").into()
    };
    vec![name, format!("{}/{}", role.kind, role.name).into(), age, of("User"), of("Group"), of("ServiceAccount")]
}

pub fn apply_defaults(role: &mut RoleRef, subjects: &mut Option<Vec<Subject>>) {
    if text(&role.api_group).is_empty() {
        role.api_group = Some(GROUP.to_owned());
    }
    for subject in subjects.iter_mut().flatten() {
        if text(&subject.api_group).is_empty() && matches!(subject.kind.as_str(), "User" | "Group") {
            subject.api_group = Some(GROUP.to_owned());
        }
    }
}

/// `kinds` are the kinds that may be referred to. `namespaced` says whether a service account may leave its namespace out.
pub fn validate(role: &RoleRef, subjects: &Option<Vec<Subject>>, kinds: &[&str], namespaced: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("roleRef");
    let group = text(&role.api_group);
    if group != GROUP {
        errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[GROUP]));
    }
    if !kinds.contains(&role.kind.as_str()) {
        errors.push(FieldError::not_supported(&path.child("kind"), &role.kind, kinds));
    }
    if role.name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else {
        validation::texts(names::path_segment_name(&role.name), &role.name, &path.child("name"), &mut errors);
    }
    let path = Path::new("subjects");
    for (at, subject) in items(subjects).iter().enumerate() {
        subject_is_sound(subject, namespaced, &path.index(at), &mut errors);
    }
    errors
}

fn subject_is_sound(subject: &Subject, namespaced: bool, path: &Path<'_>, errors: &mut ErrorList) {
    if subject.name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    let group = text(&subject.api_group);
    match subject.kind.as_str() {
        "ServiceAccount" => {
            if !subject.name.is_empty() {
                validation::texts(names::dns1123_subdomain(&subject.name), &subject.name, &path.child("name"), errors);
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[""]));
            }
            if !namespaced && text(&subject.namespace).is_empty() {
                errors.push(FieldError::required(&path.child("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[GROUP]));
            }
        }
        kind => errors.push(FieldError::not_supported(&path.child("kind"), kind, &["ServiceAccount", "User", "Group"])),
    }
}

/// A binding to another role is another binding: whoever may write this one might not be allowed to make that one.
pub fn role_is_unchanged(new: &RoleRef, old: &RoleRef, errors: &mut ErrorList) {
    if new != old {
        let fields = [("APIGroup", text(&new.api_group)), ("Kind", &new.kind), ("Name", &new.name)];
        let fields = fields.map(|(name, value)| format!("\"{name}\":{}", gotext::json(&Value::from(value))));
        let shown = BadValue::Text(format!("{{{}}}", fields.join(",")));
        errors.push(FieldError::invalid(&Path::new("roleRef"), shown, "cannot change roleRef"));
    }
}
