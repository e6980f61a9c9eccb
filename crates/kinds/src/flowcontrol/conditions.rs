//! The conditions that both kinds report.

use crate::prelude::*;

/// `types` are the conditions' types in order: each there, each once.
pub fn validate<'a>(types: impl Iterator<Item = &'a str>) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let path = path.child("conditions");
    let mut seen: Vec<&str> = Vec::new();
    for (at, type_) in types.enumerate() {
        let here = path.index(at);
        if seen.contains(&type_) {
            errors.push(FieldError::duplicate(&here.child("type"), type_));
        }
        seen.push(type_);
        if type_.is_empty() {
            errors.push(FieldError::required(&here.child("type"), "must not be empty"));
        }
    }
    errors
}
