//! The options of requests: query parameters and `DeleteOptions`.

use serde_json::{Value, json};

use crate::field::{BadValue, ErrorList, FieldError, Path};
use crate::gotext::is_printable;

/// The longest field manager, in bytes.
const FIELD_MANAGER_MAX: usize = 128;

/// The name of a field manager; empty means unset.
pub fn field_manager(name: &str, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if name.len() > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_MAX));
    }
    for (i, c) in name.char_indices() {
        if !is_printable(c) {
            errors.push(FieldError::invalid(path, name, format!("invalid character U+{:04X} (at position {i})", c as u32)));
        }
    }
    errors
}

/// `dryRun` takes only `All`.
pub fn dry_run(values: &[&str], path: &Path<'_>) -> ErrorList {
    if values.iter().all(|v| *v == "All") {
        return ErrorList::new();
    }
    vec![FieldError::not_supported(path, json!(values), &["All"])].into()
}

/// `fieldValidation` takes `Ignore`, `Warn`, `Strict` or nothing.
pub fn field_validation(value: &str, path: &Path<'_>) -> ErrorList {
    if matches!(value, "" | "Ignore" | "Warn" | "Strict") {
        return ErrorList::new();
    }
    vec![FieldError::not_supported(path, value, &["", "Ignore", "Strict", "Warn"])].into()
}

/// A `DeleteOptions` object.
pub fn delete_options(options: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let policy_path = Path::new("propagationPolicy");
    let policy = options.get("propagationPolicy").and_then(Value::as_str);
    let orphan = options.get("orphanDependents").filter(|v| !v.is_null());
    if let (Some(policy), Some(_)) = (policy, orphan) {
        errors.push(FieldError::invalid(&policy_path, policy, "orphanDependents and deletionPropagation cannot be both set"));
    }
    if let Some(policy) = policy
        && !matches!(policy, "Foreground" | "Background" | "Orphan")
    {
        let supported = ["Foreground", "Background", "Orphan", "nil"];
        errors.push(FieldError::not_supported(&policy_path, BadValue::from(policy), &supported));
    }
    if let Some(values) = options.get("dryRun").and_then(Value::as_array) {
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        errors.extend(dry_run(&values, &Path::new("dryRun")));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let path = Path::new("fieldManager");
        assert_eq!(field_manager(&"x".repeat(129), &path).aggregate(), "fieldManager: Too long: may not be more than 128 bytes");
        assert_eq!(field_manager("a\nb", &path).aggregate(), "fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)");
        assert_eq!(dry_run(&["x"], &Path::new("dryRun")).aggregate(), "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"");
        assert_eq!(
            field_validation("x", &Path::new("fieldValidation")).aggregate(),
            "fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
        );
        assert_eq!(
            delete_options(&json!({"propagationPolicy": "Odd"})).aggregate(),
            "propagationPolicy: Unsupported value: \"Odd\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
        );
    }
}
