//! Label selectors.

use std::fmt;

use serde_json::{Map, Value};

use crate::field::{ErrorList, FieldError, Path};
use crate::gotext::quote;
use crate::validation;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    Exists,
    DoesNotExist,
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    GreaterThan,
    LessThan,
}

/// One condition on the value of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted and unique when parsed from text.
    values: Vec<String>,
}

/// Why a text or object is no selector. The message is upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(super) String);

/// Conditions on labels, sorted by key; the default matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// A selector that was absent where absence selects nothing.
    nothing: bool,
}

impl Requirement {
    /// Checks key and values. The messages are those of a selector in a query.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        let mut errors = ErrorList::new();
        let root = Path::root();
        if let Some(error) = key_error(key, &root.child("key")) {
            errors.push(error);
        }
        let path = root.child("values");
        let list = || Value::from(values.clone());
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                errors.push(FieldError::invalid(&path, list(), "for 'in', 'notin' operators, values set can't be empty"));
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                errors.push(FieldError::invalid(&path, list(), "exact-match compatibility requires one single value"));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                errors.push(FieldError::invalid(&path, list(), "values set must be empty for exists and does not exist"));
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    errors.push(FieldError::invalid(&path, list(), "for 'Gt', 'Lt' operators, exactly one value is required"));
                }
                for (i, value) in values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(FieldError::invalid(&path.index(i), value, detail));
                }
            }
            _ => {}
        }
        for (i, value) in values.iter().enumerate() {
            let messages = validation::label_value(value);
            if !messages.is_empty() {
                errors.push(FieldError::invalid(&path.index(i).key(key), value, messages.join("; ")));
            }
        }
        if !errors.is_empty() {
            return Err(SelectorError(errors.aggregate()));
        }
        Ok(Self { key: key.to_owned(), operator, values })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether the label's value, `None` when absent, satisfies this.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let contains = |value: &str| self.values.iter().any(|v| v == value);
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(contains),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(contains),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |text: Option<&str>| text.and_then(|t| t.parse::<i64>().ok());
                match (number(value), number(self.values.first().map(String::as_str))) {
                    (Some(left), Some(right)) if self.operator == Operator::GreaterThan => left > right,
                    (Some(left), Some(right)) => left < right,
                    _ => false,
                }
            }
        }
    }
}

/// The error for a label key that is not one; all its faults in one text.
pub(super) fn key_error(key: &str, path: &Path<'_>) -> Option<FieldError> {
    let messages = validation::qualified_name(key);
    (!messages.is_empty()).then(|| FieldError::invalid(path, key, messages.join("; ")))
}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    pub fn from_requirements(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// Parses `a=b,c in (d,e),!f,g>1`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        super::parse::parse(text).map(Self::from_requirements)
    }

    /// From a `LabelSelector` object. Null and absent select nothing, an empty one everything.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, SelectorError> {
        let Some(selector) = selector.filter(|s| !s.is_null()) else {
            return Ok(Self::nothing());
        };
        let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
        let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
        let expressions = expressions.map(|expression| {
            let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            (text("key"), text("operator"), values.map(|v| v.as_str().unwrap_or_default().to_owned()).collect())
        });
        Self::from_parts(labels, expressions)
    }

    /// From the parts of a typed `LabelSelector`: labels, and `(key, operator, values)` with the operators of that type.
    pub fn from_parts<'p>(
        labels: impl IntoIterator<Item = (&'p str, &'p str)>,
        expressions: impl IntoIterator<Item = (&'p str, &'p str, Vec<String>)>,
    ) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in labels {
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.to_owned()])?);
        }
        for (key, operator, values) in expressions {
            let operator = match operator {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError(format!("{} is not a valid label selector operator", quote(other)))),
            };
            requirements.push(Requirement::new(key, operator, values)?);
        }
        Ok(Self::from_requirements(requirements))
    }

    /// From a plain map, as Services and ReplicationControllers hold it. Nothing is checked; an empty map matches everything.
    pub fn from_map(labels: &Map<String, Value>) -> Self {
        let requirement = |(key, value): (&String, &Value)| Requirement {
            key: key.clone(),
            operator: Operator::Equals,
            values: vec![value.as_str().unwrap_or_default().to_owned()],
        };
        Self::from_requirements(labels.iter().map(requirement).collect())
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether every set of labels matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Whether no set of labels can match.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Matches against `metadata.labels`; absent labels match as an empty map does.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.matches_by(|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str))
    }

    /// Matches against any lookup of labels.
    pub fn matches_by<'v>(&self, lookup: impl Fn(&str) -> Option<&'v str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(lookup(&r.key)))
    }

    /// The value that the label must have, if the selector names exactly one: lets a list use an index.
    pub fn requires_exact_match(&self, key: &str) -> Option<&str> {
        self.requirements.iter().find(|r| r.key == key).and_then(|r| match r.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In if r.values.len() == 1 => Some(r.values[0].as_str()),
            _ => None,
        })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.operator {
            Operator::DoesNotExist => return write!(f, "!{}", self.key),
            Operator::Exists => return f.write_str(&self.key),
            Operator::Equals => "=",
            Operator::DoubleEquals => "==",
            Operator::NotEquals => "!=",
            Operator::GreaterThan => ">",
            Operator::LessThan => "<",
            Operator::In | Operator::NotIn => {
                let word = if self.operator == Operator::In { "in" } else { "notin" };
                let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
                values.sort_unstable();
                return write!(f, "{} {word} ({})", self.key, values.join(","));
            }
        };
        write!(f, "{}{sign}{}", self.key, self.values.first().map_or("", String::as_str))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

/// A set of labels as tables and messages show it: `a=1,b=2`, or `<none>`.
pub fn labels_to_string(labels: Option<&Map<String, Value>>) -> String {
    let pairs: Vec<String> = labels.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_and_print() {
        let labels = json!({"g": "l", "t": "x", "v": "7"});
        let labels = labels.as_object();
        for (text, matched, printed) in [
            ("", true, ""),
            ("t=x", true, "t=x"),
            ("t==x,g", true, "g,t==x"),
            ("t!=x", false, "t!=x"),
            ("absent!=x", true, "absent!=x"),
            ("t in (y, x)", true, "t in (x,y)"),
            ("t notin (x)", false, "t notin (x)"),
            ("!t", false, "!t"),
            ("!absent", true, "!absent"),
            ("v>5", true, "v>5"),
            ("v<5", false, "v<5"),
            ("g>5", false, "g>5"),
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.matches(labels), matched, "{text}");
            assert_eq!(selector.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn objects_become_selectors() {
        let object = json!({"matchLabels": {"b": "1"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]});
        let selector = LabelSelector::from_object(Some(&object)).unwrap();
        assert_eq!(selector.to_string(), "a in (x,y),b=1");
        assert_eq!(selector.requires_exact_match("b"), Some("1"));
        assert!(LabelSelector::from_object(None).unwrap().is_nothing());
        assert!(!LabelSelector::from_object(None).unwrap().matches(None));
        assert!(LabelSelector::from_object(Some(&json!({}))).unwrap().is_everything());
        let odd = json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]});
        let error = LabelSelector::from_object(Some(&odd)).unwrap_err();
        assert_eq!(error.to_string(), "\"Odd\" is not a valid label selector operator");
    }
}
