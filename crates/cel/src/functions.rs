//! The functions and operators of the standard library, and Kubernetes' list and regex libraries.

use std::cmp::Ordering;
use std::sync::Arc;

use cel::common::ast::operators::{ADD, DIVIDE, GREATER, GREATER_EQUALS, IN, LESS, LESS_EQUALS, LOGICAL_NOT, MODULO, MULTIPLY, NEGATE, SUBSTRACT};
use regex::RegexBuilder;

use crate::error::EvalError;
use crate::value::Value;
use crate::{Budget, quantities, strings, times};

type Outcome<'a> = Result<Value<'a>, EvalError>;

/// A compiled pattern takes at most so many bytes.
const MAX_PATTERN: usize = 256 * 1024;

/// Types that are named like variables.
pub fn type_named<'a>(name: &str) -> Option<Value<'a>> {
    const NAMES: [&str; 11] = ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "google.protobuf.Timestamp"];
    NAMES.iter().find(|known| **known == name).map(|known| Value::Type(known))
}

/// Calls a function by its name; `receiver` tells `a.f(b)` from `f(a, b)`.
pub fn call<'a>(name: &str, receiver: bool, args: &[Value<'a>], budget: &mut Budget) -> Outcome<'a> {
    budget.pay(1 + args.iter().filter_map(Value::size).sum::<usize>() / 10)?;
    if receiver {
        return method(name, args);
    }
    match (name, args) {
        (ADD, [a, b]) => add(a, b, budget),
        (SUBSTRACT | MULTIPLY | DIVIDE | MODULO, [a, b]) => arithmetic(name, a, b),
        (NEGATE, [Value::Int(a)]) => a.checked_neg().map(Value::Int).ok_or(EvalError::Overflow),
        (NEGATE, [Value::Double(a)]) => Ok(Value::Double(-a)),
        (LOGICAL_NOT, [Value::Bool(a)]) => Ok(Value::Bool(!a)),
        (LESS, [a, b]) => Ok(Value::Bool(a.compare(b)? == Ordering::Less)),
        (LESS_EQUALS, [a, b]) => Ok(Value::Bool(a.compare(b)? != Ordering::Greater)),
        (GREATER, [a, b]) => Ok(Value::Bool(a.compare(b)? == Ordering::Greater)),
        (GREATER_EQUALS, [a, b]) => Ok(Value::Bool(a.compare(b)? != Ordering::Less)),
        (IN, [a, b]) => within(a, b).map(Value::Bool),
        ("size", [value]) => size(value),
        ("matches", [text, pattern]) => matches(text, pattern),
        ("type", [value]) => Ok(Value::Type(value.type_name())),
        ("dyn", [value]) => Ok(value.clone()),
        ("optional.of", [value]) => Ok(Value::Optional(Some(Arc::new(value.clone())))),
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.ofNonZeroValue", [value]) => Ok(Value::Optional((!is_zero(value)).then(|| Arc::new(value.clone())))),
        ("sets.contains", [a, b]) => sets(a, b, |a, b| b.iter().all(|b| a.iter().any(|a| a.equals(b)))),
        ("sets.intersects", [a, b]) => sets(a, b, |a, b| b.iter().any(|b| a.iter().any(|a| a.equals(b)))),
        ("sets.equivalent", [a, b]) => {
            let all = |a: &[Value<'a>], b: &[Value<'a>]| b.iter().all(|b| a.iter().any(|a| a.equals(b)));
            sets(a, b, |a, b| all(a, b) && all(b, a))
        }
        ("quantity" | "isQuantity", [text]) => quantities::parse(name, text),
        ("bool" | "int" | "uint" | "double" | "string" | "bytes", [value]) => convert(name, value),
        ("timestamp" | "duration", [value]) => times::convert(name, value),
        _ => Err(EvalError::NoOverload),
    }
}

fn method<'a>(name: &str, args: &[Value<'a>]) -> Outcome<'a> {
    match (name, args) {
        ("size", [value]) => return size(value),
        ("matches", [text, pattern]) => return matches(text, pattern),
        ("find", [text, pattern]) => {
            let found = regex(pattern)?.find(text.str()?).map_or("", |found| found.as_str());
            return Ok(Value::text(found));
        }
        ("findAll", [text, pattern]) => {
            return Ok(Value::list(regex(pattern)?.find_iter(text.str()?).map(|found| Value::text(found.as_str())).collect()));
        }
        ("hasValue", [Value::Optional(value)]) => return Ok(Value::Bool(value.is_some())),
        ("value", [Value::Optional(value)]) => return value.as_ref().map(|value| (**value).clone()).ok_or(EvalError::NoValue),
        _ => {}
    }
    match &args[0] {
        Value::List(_) | Value::JsonList(_) => list(name, args),
        Value::String(_) | Value::Text(_) => strings::call(name, args),
        Value::Timestamp(_) | Value::Duration(_) => times::call(name, args),
        Value::Quantity(quantity) => quantities::call(name, quantity, &args[1..]),
        _ => Err(EvalError::NoOverload),
    }
}

fn list<'a>(name: &str, args: &[Value<'a>]) -> Outcome<'a> {
    let items = args[0].items()?;
    let extreme = |wanted: Ordering| {
        let mut best: Option<&Value<'a>> = None;
        for item in &items {
            if best.is_none_or(|best| item.compare(best) == Ok(wanted)) {
                best = Some(item);
            }
        }
        best.cloned().ok_or_else(|| EvalError::Conversion(format!("{} called on empty list", if wanted == Ordering::Less { "min" } else { "max" })))
    };
    let position = |at: Option<usize>| Ok(Value::Int(at.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX))));
    match (name, &args[1..]) {
        ("isSorted", []) => {
            for pair in items.windows(2) {
                if pair[0].compare(&pair[1])? == Ordering::Greater {
                    return Ok(Value::Bool(false));
                }
            }
            Ok(Value::Bool(true))
        }
        ("min", []) => extreme(Ordering::Less),
        ("max", []) => extreme(Ordering::Greater),
        ("sum", []) => {
            let mut total = items.first().cloned().unwrap_or(Value::Int(0));
            for item in items.iter().skip(1) {
                total = plus(&total, item)?;
            }
            Ok(total)
        }
        ("indexOf", [value]) => position(items.iter().position(|item| item.equals(value))),
        ("lastIndexOf", [value]) => position(items.iter().rposition(|item| item.equals(value))),
        ("join", rest) => {
            let separator = rest.first().map_or(Ok(""), Value::str)?;
            let parts: Vec<&str> = items.iter().map(Value::str).collect::<Result<_, _>>()?;
            Ok(Value::text(parts.join(separator)))
        }
        _ => Err(EvalError::NoOverload),
    }
}

fn size<'a>(value: &Value<'a>) -> Outcome<'a> {
    let size = value.size().ok_or(EvalError::NoOverload)?;
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn sets<'a>(a: &Value<'a>, b: &Value<'a>, holds: impl Fn(&[Value<'a>], &[Value<'a>]) -> bool) -> Outcome<'a> {
    Ok(Value::Bool(holds(&a.items()?, &b.items()?)))
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) => true,
        Value::Double(double) => *double == 0.0,
        other => other.size() == Some(0),
    }
}

/// `a[b]`; `None` for a key that is not there.
pub fn index<'a>(of: &Value<'a>, index: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
    match of {
        Value::List(_) | Value::JsonList(_) => {
            let at = match index {
                Value::Double(double) if double.fract() == 0.0 => *double as i64,
                other => other.int()?,
            };
            let found = match (of, usize::try_from(at)) {
                (Value::List(items), Ok(at)) => items.get(at).cloned(),
                (Value::JsonList(items), Ok(at)) => items.get(at).map(Value::json),
                _ => None,
            };
            found.map(Some).ok_or(EvalError::OutOfBounds(at))
        }
        other => other.entry(&index.key()?),
    }
}

fn within<'a>(value: &Value<'a>, of: &Value<'a>) -> Result<bool, EvalError> {
    match of {
        Value::List(items) => Ok(items.iter().any(|item| item.equals(value))),
        Value::JsonList(items) => Ok(items.iter().any(|item| Value::json(item).equals(value))),
        other => Ok(other.entry(&value.key()?)?.is_some()),
    }
}

fn add<'a>(a: &Value<'a>, b: &Value<'a>, budget: &mut Budget) -> Outcome<'a> {
    if let (Some(a), Some(b)) = (a.size(), b.size()) {
        budget.pay(a + b)?;
    }
    plus(a, b)
}

fn plus<'a>(a: &Value<'a>, b: &Value<'a>) -> Outcome<'a> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return Ok(Value::text([a, b].concat()));
    }
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.checked_add(*b).map(Value::Int).ok_or(EvalError::Overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_add(*b).map(Value::Uint).ok_or(EvalError::Overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&a[..], &b[..]].concat().into())),
        (Value::Timestamp(at), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(at)) => {
            at.checked_add(*by).map(Value::Timestamp).map_err(|_| EvalError::Overflow)
        }
        (Value::Duration(a), Value::Duration(b)) => a.checked_add(*b).map(Value::Duration).ok_or(EvalError::Overflow),
        (Value::List(_) | Value::JsonList(_), Value::List(_) | Value::JsonList(_)) => {
            let mut items = a.items()?;
            items.extend(b.items()?);
            Ok(Value::list(items))
        }
        _ => Err(EvalError::NoOverload),
    }
}

fn arithmetic<'a>(operator: &str, a: &Value<'a>, b: &Value<'a>) -> Outcome<'a> {
    let zero = || if operator == DIVIDE { EvalError::DivisionByZero } else { EvalError::ModulusByZero };
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => match operator {
            SUBSTRACT => a.checked_sub(*b),
            MULTIPLY => a.checked_mul(*b),
            _ if *b == 0 => return Err(zero()),
            DIVIDE => a.checked_div(*b),
            _ => a.checked_rem(*b),
        }
        .map(Value::Int)
        .ok_or(EvalError::Overflow),
        (Value::Uint(a), Value::Uint(b)) => match operator {
            SUBSTRACT => a.checked_sub(*b),
            MULTIPLY => a.checked_mul(*b),
            _ if *b == 0 => return Err(zero()),
            DIVIDE => a.checked_div(*b),
            _ => a.checked_rem(*b),
        }
        .map(Value::Uint)
        .ok_or(EvalError::Overflow),
        (Value::Double(a), Value::Double(b)) => match operator {
            SUBSTRACT => Ok(Value::Double(a - b)),
            MULTIPLY => Ok(Value::Double(a * b)),
            DIVIDE => Ok(Value::Double(a / b)),
            _ => Err(EvalError::NoOverload),
        },
        (Value::Timestamp(a), Value::Timestamp(b)) if operator == SUBSTRACT => Ok(Value::Duration(a.duration_since(*b))),
        (Value::Timestamp(a), Value::Duration(b)) if operator == SUBSTRACT => {
            a.checked_sub(*b).map(Value::Timestamp).map_err(|_| EvalError::Overflow)
        }
        (Value::Duration(a), Value::Duration(b)) if operator == SUBSTRACT => a.checked_sub(*b).map(Value::Duration).ok_or(EvalError::Overflow),
        _ => Err(EvalError::NoOverload),
    }
}

fn regex(pattern: &Value<'_>) -> Result<regex::Regex, EvalError> {
    let built = RegexBuilder::new(pattern.str()?).size_limit(MAX_PATTERN).build();
    built.map_err(|error| EvalError::Conversion(format!("error parsing regexp: {error}")))
}

fn matches<'a>(text: &Value<'a>, pattern: &Value<'a>) -> Outcome<'a> {
    Ok(Value::Bool(regex(pattern)?.is_match(text.str()?)))
}

fn convert<'a>(to: &str, value: &Value<'a>) -> Outcome<'a> {
    let failed = |why: &str| EvalError::Conversion(format!("type conversion error from '{}' to '{to}'{why}", value.type_name()));
    let text = value.as_str();
    match to {
        "bool" => match (value, text) {
            (Value::Bool(_), _) => Ok(value.clone()),
            (_, Some("1" | "t" | "T" | "true" | "TRUE" | "True")) => Ok(Value::Bool(true)),
            (_, Some("0" | "f" | "F" | "false" | "FALSE" | "False")) => Ok(Value::Bool(false)),
            _ => Err(failed("")),
        },
        "int" => match (value, text) {
            (Value::Int(_), _) => Ok(value.clone()),
            (Value::Uint(uint), _) => i64::try_from(*uint).map(Value::Int).map_err(|_| EvalError::Overflow),
            (Value::Double(double), _) if double.abs() < 9.2e18 => Ok(Value::Int(*double as i64)),
            (Value::Double(_), _) => Err(EvalError::Overflow),
            (Value::Timestamp(at), _) => Ok(Value::Int(at.as_second())),
            (_, Some(text)) => text.parse().map(Value::Int).map_err(|_| failed("")),
            _ => Err(failed("")),
        },
        "uint" => match (value, text) {
            (Value::Uint(_), _) => Ok(value.clone()),
            (Value::Int(int), _) => u64::try_from(*int).map(Value::Uint).map_err(|_| EvalError::Overflow),
            (Value::Double(double), _) if (0.0..1.8e19).contains(double) => Ok(Value::Uint(*double as u64)),
            (Value::Double(_), _) => Err(EvalError::Overflow),
            (_, Some(text)) => text.parse().map(Value::Uint).map_err(|_| failed("")),
            _ => Err(failed("")),
        },
        "double" => match (value, text) {
            (Value::Double(_), _) => Ok(value.clone()),
            (Value::Int(int), _) => Ok(Value::Double(*int as f64)),
            (Value::Uint(uint), _) => Ok(Value::Double(*uint as f64)),
            (_, Some(text)) => text.parse().map(Value::Double).map_err(|_| failed("")),
            _ => Err(failed("")),
        },
        "bytes" => match (value, text) {
            (Value::Bytes(_), _) => Ok(value.clone()),
            (_, Some(text)) => Ok(Value::Bytes(text.as_bytes().into())),
            _ => Err(failed("")),
        },
        _ => match value {
            Value::String(_) | Value::Text(_) => Ok(value.clone()),
            Value::Bool(b) => Ok(Value::text(b.to_string())),
            Value::Int(int) => Ok(Value::text(int.to_string())),
            Value::Uint(uint) => Ok(Value::text(uint.to_string())),
            Value::Double(double) => Ok(Value::text(double.to_string())),
            Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).map(Value::text).map_err(|_| failed("")),
            Value::Timestamp(at) => Ok(Value::text(at.to_string())),
            Value::Duration(duration) => Ok(Value::text(times::print_duration(*duration))),
            Value::Quantity(quantity) => Ok(Value::text(quantity.to_string())),
            _ => Err(failed("")),
        },
    }
}
