//! `IntOrString`: a number, or a percentage of something.

use std::fmt;

use serde_json::Value;

use crate::gotext::quote;

/// A field that takes `3` or `"25%"` (or a port's name).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

/// Why an IntOrString has no value, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    #[error("nil value for IntOrString")]
    Missing,
    #[error("invalid value for IntOrString: invalid type: string is not a percentage")]
    NotAPercentage,
    #[error("invalid value for IntOrString: invalid value {}: strconv.Atoi: parsing {}: invalid syntax", quote(.text), quote(.digits))]
    NotANumber { text: String, digits: String },
}

impl IntOrString {
    /// `None` for anything but a 32-bit number or a string.
    pub fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Number(n) => n.as_i64().and_then(|n| i32::try_from(n).ok()).map(Self::Int),
            Value::String(s) => Some(Self::String(s.clone())),
            _ => None,
        }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Self::Int(n) => Value::from(*n),
            Self::String(s) => Value::from(s.as_str()),
        }
    }

    /// The number, or the percentage of `total`, rounded up or down.
    pub fn scaled(&self, total: i64, round_up: bool) -> Result<i64, ScaleError> {
        let text = match self {
            Self::Int(n) => return Ok(i64::from(*n)),
            Self::String(text) => text,
        };
        let digits = text.strip_suffix('%').ok_or(ScaleError::NotAPercentage)?;
        let percent: i64 = digits.parse().map_err(|_| ScaleError::NotANumber { text: text.clone(), digits: digits.to_owned() })?;
        let product = i128::from(percent) * i128::from(total);
        let quotient = product.div_euclid(100);
        let scaled = if round_up && product.rem_euclid(100) != 0 { quotient + 1 } else { quotient };
        Ok(i64::try_from(scaled).unwrap_or(i64::MAX))
    }

    /// Whether this is text ending in a percent sign.
    pub fn is_percent(&self) -> bool {
        matches!(self, Self::String(s) if s.ends_with('%'))
    }
}

/// `intstr.GetScaledValueFromIntOrPercent` over a field of an object; absent and null are errors.
pub fn scaled_field(value: Option<&Value>, total: i64, round_up: bool) -> Result<i64, ScaleError> {
    value.and_then(IntOrString::from_json).ok_or(ScaleError::Missing)?.scaled(total, round_up)
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::String(s) => f.write_str(s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentages_scale() {
        let percent = |s: &str| IntOrString::String(s.to_owned());
        assert_eq!(percent("25%").scaled(10, true), Ok(3));
        assert_eq!(percent("25%").scaled(10, false), Ok(2));
        assert_eq!(percent("100%").scaled(7, false), Ok(7));
        assert_eq!(IntOrString::Int(4).scaled(10, true), Ok(4));
        assert_eq!(
            percent("http").scaled(1, true).unwrap_err().to_string(),
            "invalid value for IntOrString: invalid type: string is not a percentage"
        );
        assert_eq!(
            percent("a%").scaled(1, true).unwrap_err().to_string(),
            "invalid value for IntOrString: invalid value \"a%\": strconv.Atoi: parsing \"a\": invalid syntax"
        );
        assert_eq!(scaled_field(Some(&json!("50%")), 3, true), Ok(2));
        assert_eq!(scaled_field(None, 3, true), Err(ScaleError::Missing));
    }
}
