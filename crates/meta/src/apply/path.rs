//! One step of a field path in `managedFields`, and its text forms.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

use crate::gotext::{float, json, quote};

/// How a value is found inside its parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// A struct's field or a map's key: `f:name`.
    Field(String),
    /// An item of an associative list, by its key fields, sorted by name: `k:{"name":"a"}`.
    Key(Vec<(String, Scalar)>),
    /// An item of a set: `v:"a"`.
    Value(Scalar),
    /// An item by position: `i:0`. Read for completeness; nothing here writes it.
    Index(i64),
}

/// A JSON value with upstream's total order: numbers, strings, booleans, lists, maps, null.
#[derive(Clone, Debug)]
pub struct Scalar(pub Value);

/// A text that is no path element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePathElementError {
    #[error("key must be 2 characters long:")]
    TooShort,
    #[error("missing colon: {0}")]
    MissingColon(String),
    #[error("unknown path element type")]
    UnknownType,
    #[error("invalid path element {text}: {reason}")]
    Json { text: String, reason: String },
    #[error("strconv.Atoi: parsing {}: invalid syntax", quote(.0))]
    Index(String),
}

impl PathElement {
    pub fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    /// The form in FieldsV1.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => {
                // By far the most frequent, so without the formatter.
                let mut text = String::with_capacity(name.len() + 2);
                text.push_str("f:");
                text.push_str(name);
                text
            }
            Self::Key(fields) => {
                let map: Map<String, Value> = fields.iter().map(|(k, v)| (k.clone(), v.0.clone())).collect();
                format!("k:{}", json(&Value::Object(map)))
            }
            Self::Value(value) => format!("v:{}", json(&value.0)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    pub fn decode(text: &str) -> Result<Self, ParsePathElementError> {
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err(ParsePathElementError::TooShort);
        }
        if bytes[1] != b':' {
            return Err(ParsePathElementError::MissingColon(text.to_owned()));
        }
        let rest = text.get(2..).unwrap_or_default();
        let bad = |source: serde_json::Error| ParsePathElementError::Json { text: text.to_owned(), reason: source.to_string() };
        match bytes[0] {
            b'f' => Ok(Self::Field(rest.to_owned())),
            b'v' => serde_json::from_str(rest).map(|v| Self::Value(Scalar(v))).map_err(bad),
            b'k' => {
                let map: Map<String, Value> = serde_json::from_str(rest).map_err(bad)?;
                Ok(Self::Key(map.into_iter().map(|(k, v)| (k, Scalar(v))).collect()))
            }
            b'i' => rest.parse().map(Self::Index).map_err(|_| ParsePathElementError::Index(rest.to_owned())),
            _ => Err(ParsePathElementError::UnknownType),
        }
    }
}

/// The form in messages: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{name}={value}")?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(s) => f.write_str(&quote(s)),
            Value::Number(n) if n.is_f64() => f.write_str(&float(n.as_f64().unwrap_or_default())),
            other => write!(f, "{other}"),
        }
    }
}

impl Scalar {
    fn rank(&self) -> u8 {
        match self.0 {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default()),
            },
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (a, b) if self.rank() == other.rank() => a.to_string().cmp(&b.to_string()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

/// A whole path as messages print it.
pub fn print_path(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_have_two_texts() {
        let cases = [
            (PathElement::field("a.b"), "f:a.b", ".a.b"),
            (PathElement::Value(Scalar(json!("x<"))), "v:\"x\\u003c\"", "[=\"x<\"]"),
            (PathElement::Value(Scalar(json!(5))), "v:5", "[=5]"),
            (
                PathElement::Key(vec![("port".to_owned(), Scalar(json!(80))), ("protocol".to_owned(), Scalar(json!("TCP")))]),
                "k:{\"port\":80,\"protocol\":\"TCP\"}",
                "[port=80,protocol=\"TCP\"]",
            ),
            (PathElement::Index(3), "i:3", "[3]"),
        ];
        for (element, encoded, printed) in cases {
            assert_eq!(element.encode(), encoded);
            assert_eq!(element.to_string(), printed);
            assert_eq!(PathElement::decode(encoded), Ok(element));
        }
        for bad in ["", "f", "fx", "x:1", "v:{", "k:[]", "i:x"] {
            assert!(PathElement::decode(bad).is_err(), "{bad}");
        }
    }
}
