//! Labels and LabelSelector objects.

use serde_json::{Map, Value};

use super::names::{label_value, qualified_name};
use crate::field::{ErrorList, FieldError, Path};

/// Where upstream is lenient about selectors.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabelSelectorOptions {
    /// For objects that were stored before values were checked.
    pub allow_invalid_values: bool,
}

/// The labels of an object: `path` is the map's, and so is that of every error.
pub fn labels(labels: &Map<String, Value>, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (key, value) in labels {
        errors.extend(qualified_name(key).into_iter().map(|m| FieldError::invalid(path, key, m)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(label_value(value).into_iter().map(|m| FieldError::invalid(path, value, m)));
    }
    errors
}

/// A `LabelSelector` object; `null` and absent are valid.
pub fn label_selector(selector: &Value, options: LabelSelectorOptions, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(matched) = selector.get("matchLabels").and_then(Value::as_object) {
        errors.extend(labels(matched, &path.child("matchLabels")));
    }
    let expressions = path.child("matchExpressions");
    for (i, requirement) in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten().enumerate() {
        errors.extend(label_selector_requirement(requirement, options, &expressions.index(i)));
    }
    errors
}

/// One entry of `matchExpressions`.
pub fn label_selector_requirement(requirement: &Value, options: LabelSelectorOptions, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let text = |key: &str| requirement.get(key).and_then(Value::as_str).unwrap_or_default();
    let values = requirement.get("values").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(&path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&path.child("values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    let key = text("key");
    errors.extend(qualified_name(key).into_iter().map(|m| FieldError::invalid(&path.child("key"), key, m)));
    if !options.allow_invalid_values {
        let values_path = path.child("values");
        for (i, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            errors.extend(label_value(value).into_iter().map(|m| FieldError::invalid(&values_path.index(i), value, m)));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_report_every_error() {
        let selector = json!({
            "matchLabels": {"bad key": "v"},
            "matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["x"]},
                {"key": "", "operator": "Odd", "values": ["!"]},
            ],
        });
        let errors = label_selector(&selector, LabelSelectorOptions::default(), &Path::new("spec").child("selector"));
        let texts: Vec<String> = errors.iter().map(|e| e.to_string()).collect();
        assert!(texts[0].starts_with("spec.selector.matchLabels: Invalid value: \"bad key\": name part must consist"));
        assert_eq!(texts[1], "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'");
        assert_eq!(
            texts[2],
            "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        );
        assert_eq!(texts[3], "spec.selector.matchExpressions[2].operator: Invalid value: \"Odd\": not a valid selector operator");
        assert_eq!(texts[4], "spec.selector.matchExpressions[2].key: Invalid value: \"\": name part must be non-empty");
        assert!(texts[6].starts_with("spec.selector.matchExpressions[2].values[0]: Invalid value: \"!\""));
        assert!(label_selector(&Value::Null, LabelSelectorOptions::default(), &Path::new("s")).is_empty());
    }
}
