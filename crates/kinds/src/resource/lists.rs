//! Lists with a limit, whose items are all looked at, and sets of them.

use crate::prelude::*;

/// Looks at every item of a list that is not too long; a longer one is refused unread.
pub fn list<T>(list: &[T], max: usize, path: &Path<'_>, errors: &mut ErrorList, mut one: impl FnMut(&T, &Path<'_>, &mut ErrorList)) {
    if list.len() > max {
        errors.push(FieldError::too_many(path, list.len(), max));
        return;
    }
    for (at, item) in list.iter().enumerate() {
        one(item, &path.index(at), errors);
    }
}

/// The same where no two items may have one key.
pub fn set<T, K: PartialEq + Clone + Into<BadValue>>(
    items: &[T],
    max: usize,
    key: impl Fn(&T) -> K,
    path: &Path<'_>,
    errors: &mut ErrorList,
    one: impl FnMut(&T, &Path<'_>, &mut ErrorList),
) {
    list(items, max, path, errors, one);
    if items.len() > max {
        return;
    }
    let keys: Vec<K> = items.iter().map(key).collect();
    for (at, key) in keys.iter().enumerate() {
        if keys[..at].contains(key) {
            errors.push(FieldError::duplicate(&path.index(at), key.clone()));
        }
    }
}

/// An object that its driver alone understands, as long as it is one.
pub fn raw(value: &Value, max_bytes: usize, path: &Path<'_>, errors: &mut ErrorList) {
    match value {
        Value::Null => errors.push(FieldError::required(path, "")),
        _ if value.to_string().len() > max_bytes => errors.push(FieldError::too_long(path, max_bytes)),
        Value::Object(_) => {}
        _ => errors.push(FieldError::invalid(path, "<value omitted>", "must be a valid JSON object")),
    }
}
