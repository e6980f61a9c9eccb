//! One thing wrong with one field, and lists of them.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::Path;
use crate::gotext;

/// The kind of a field error. `reason` is what a Status cause carries; `Display` is how a message starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl FieldErrorKind {
    /// The `reason` of the cause in a Status.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

impl fmt::Display for FieldErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        })
    }
}

/// The offending value as the message shows it.
///
/// Strings are quoted, numbers and booleans are bare, everything else is compact JSON. Upstream encodes its structs with fields in
/// declaration order; a sorted `Value` cannot know that order, so pass [`BadValue::typed`] a `k8s-openapi` struct (declared
/// alphabetically) only where the order does not matter, or [`BadValue::Text`] where it does.
#[derive(Clone, Debug, PartialEq)]
pub enum BadValue {
    /// The message shows no value.
    Omitted,
    /// A nil pointer, list or map.
    Null,
    Value(Value),
    /// Shown as it is, unquoted.
    Text(String),
}

impl BadValue {
    /// Any serialisable value, encoded in the order its type declares.
    pub fn typed<T: Serialize>(value: &T) -> Self {
        match serde_json::to_string(value) {
            // A bare string or number must keep its own form, so look at what came out.
            Ok(text) if text.starts_with(['{', '[']) => Self::Text(gotext::escape_html(&text)),
            Ok(text) => serde_json::from_str(&text).map_or(Self::Omitted, Self::Value),
            Err(_) => Self::Omitted,
        }
    }
}

impl From<&str> for BadValue {
    fn from(text: &str) -> Self {
        Self::Value(Value::String(text.to_owned()))
    }
}

impl From<String> for BadValue {
    fn from(text: String) -> Self {
        Self::Value(Value::String(text))
    }
}

impl From<&String> for BadValue {
    fn from(text: &String) -> Self {
        Self::Value(Value::String(text.clone()))
    }
}

impl From<Value> for BadValue {
    fn from(value: Value) -> Self {
        if value.is_null() { Self::Null } else { Self::Value(value) }
    }
}

impl From<&Value> for BadValue {
    fn from(value: &Value) -> Self {
        Self::from(value.clone())
    }
}

macro_rules! bad_value_from_number {
    ($($t:ty),*) => {$(
        impl From<$t> for BadValue {
            fn from(value: $t) -> Self {
                Self::Value(Value::from(value))
            }
        }
    )*};
}
bad_value_from_number!(i32, i64, u32, u64, usize, f64, bool);

impl<T> From<Option<T>> for BadValue
where
    BadValue: From<T>,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::from)
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Omitted => Ok(()),
            Self::Null => f.write_str("null"),
            Self::Text(text) => f.write_str(text),
            Self::Value(Value::String(text)) => f.write_str(&gotext::quote(text)),
            Self::Value(Value::Number(n)) => match n.as_f64() {
                Some(float) if n.is_f64() => f.write_str(&gotext::float(float)),
                _ => write!(f, "{n}"),
            },
            Self::Value(value) => f.write_str(&gotext::json(value)),
        }
    }
}

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    /// The printed path.
    pub field: String,
    pub bad_value: BadValue,
    pub detail: String,
}

impl FieldError {
    fn new(kind: FieldErrorKind, path: &Path<'_>, bad_value: BadValue, detail: impl Into<String>) -> Self {
        Self { kind, field: path.to_string(), bad_value, detail: detail.into() }
    }

    /// A reference to something that does not exist.
    pub fn not_found(path: &Path<'_>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::NotFound, path, value.into(), "")
    }

    pub fn required(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, BadValue::Omitted, detail)
    }

    pub fn duplicate(path: &Path<'_>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, value.into(), "")
    }

    pub fn invalid(path: &Path<'_>, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, value.into(), detail)
    }

    /// The value is not in a closed set. Pass the set in the order it is to be printed; upstream mostly sorts it.
    pub fn not_supported<S: AsRef<str>>(path: &Path<'_>, value: impl Into<BadValue>, supported: &[S]) -> Self {
        let mut detail = String::new();
        if !supported.is_empty() {
            let quoted: Vec<String> = supported.iter().map(|s| gotext::quote(s.as_ref())).collect();
            detail = format!("supported values: {}", quoted.join(", "));
        }
        Self::new(FieldErrorKind::NotSupported, path, value.into(), detail)
    }

    pub fn forbidden(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, BadValue::Omitted, detail)
    }

    /// A string or byte sequence above its limit in bytes.
    pub fn too_long(path: &Path<'_>, max_bytes: usize) -> Self {
        let unit = if max_bytes == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, path, BadValue::Omitted, format!("may not be more than {max_bytes} {unit}"))
    }

    /// A list above its limit; `actual` is its length.
    pub fn too_many(path: &Path<'_>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(FieldErrorKind::TooMany, path, actual.into(), format!("must have at most {max} {unit}"))
    }

    /// An update changed a field that never changes.
    pub fn immutable(path: &Path<'_>, value: impl Into<BadValue>) -> Self {
        Self::invalid(path, value, IMMUTABLE)
    }

    pub fn type_invalid(path: &Path<'_>, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, path, value.into(), detail)
    }

    pub fn internal(path: &Path<'_>, error: impl fmt::Display) -> Self {
        Self::new(FieldErrorKind::Internal, path, BadValue::Omitted, error.to_string())
    }

    /// The same error with more to say after the value.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// The message without the field, as a Status cause carries it.
    pub fn body(&self) -> String {
        let mut body = self.kind.to_string();
        let hides_value =
            matches!(self.kind, FieldErrorKind::Required | FieldErrorKind::Forbidden | FieldErrorKind::TooLong | FieldErrorKind::Internal);
        if !hides_value && self.bad_value != BadValue::Omitted {
            body.push_str(": ");
            body.push_str(&self.bad_value.to_string());
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

/// The detail of every error about an immutable field.
const IMMUTABLE: &str = "field is immutable";

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Every error found in one object, in the order found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorList(Vec<FieldError>);

impl ErrorList {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.0.iter()
    }

    /// One line for all errors: a single one bare, several as `[a, b]`, repeated texts once. Empty for an empty list.
    pub fn aggregate(&self) -> String {
        let mut seen = HashSet::with_capacity(self.0.len());
        let mut texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        texts.retain(|text| seen.insert(text.clone()));
        match texts.len() {
            0 => String::new(),
            1 => texts.remove(0),
            _ => format!("[{}]", texts.join(", ")),
        }
    }
}

impl From<Vec<FieldError>> for ErrorList {
    fn from(errors: Vec<FieldError>) -> Self {
        Self(errors)
    }
}

impl Extend<FieldError> for ErrorList {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        self.0.extend(errors);
    }
}

impl FromIterator<FieldError> for ErrorList {
    fn from_iter<I: IntoIterator<Item = FieldError>>(errors: I) -> Self {
        Self(errors.into_iter().collect())
    }
}

impl IntoIterator for ErrorList {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ErrorList {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_print_as_upstream_prints_them() {
        let path = Path::new("spec");
        let cases = [
            (FieldError::required(&path.child("a"), "must be set"), "spec.a: Required value: must be set"),
            (FieldError::required(&path.child("a"), ""), "spec.a: Required value"),
            (FieldError::invalid(&path, "x\"y", "no"), "spec: Invalid value: \"x\\\"y\": no"),
            (FieldError::invalid(&path, -1, "no"), "spec: Invalid value: -1: no"),
            (FieldError::invalid(&path, json!({"a": "<"}), "no"), "spec: Invalid value: {\"a\":\"\\u003c\"}: no"),
            (FieldError::invalid(&path, Value::Null, "no"), "spec: Invalid value: null: no"),
            (FieldError::not_supported(&path, "c", &["a", "b"]), "spec: Unsupported value: \"c\": supported values: \"a\", \"b\""),
            (FieldError::too_long(&path, 63), "spec: Too long: may not be more than 63 bytes"),
            (FieldError::too_many(&path, 12, 10), "spec: Too many: 12: must have at most 10 items"),
            (FieldError::immutable(&path, "v"), "spec: Invalid value: \"v\": field is immutable"),
            (FieldError::duplicate(&path.index(1), "v"), "spec[1]: Duplicate value: \"v\""),
            (FieldError::not_found(&path, "v"), "spec: Not found: \"v\""),
            (FieldError::forbidden(&path, "not here"), "spec: Forbidden: not here"),
            (FieldError::internal(&path, "boom"), "spec: Internal error: boom"),
        ];
        for (error, expected) in cases {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn lists_aggregate_without_repeats() {
        let path = Path::new("a");
        let mut list = ErrorList::new();
        assert_eq!(list.aggregate(), "");
        list.push(FieldError::required(&path, ""));
        list.push(FieldError::required(&path, ""));
        assert_eq!(list.aggregate(), "a: Required value");
        list.push(FieldError::forbidden(&path, "b"));
        assert_eq!(list.aggregate(), "[a: Required value, a: Forbidden: b]");
    }
}
