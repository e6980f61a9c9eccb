//! Kubernetes' quantities.

use std::cmp::Ordering;
use std::sync::Arc;

use wheelhouse_meta::quantity::{Format, Quantity};

use crate::error::EvalError;
use crate::value::Value;

/// `quantity(text)` and `isQuantity(text)`.
pub fn parse<'a>(name: &str, text: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let parsed = Quantity::parse(text.str()?);
    if name == "isQuantity" {
        return Ok(Value::Bool(parsed.is_ok()));
    }
    parsed.map(|quantity| Value::Quantity(Arc::new(quantity))).map_err(|error| EvalError::Conversion(error.to_string()))
}

pub fn call<'a>(name: &str, quantity: &Arc<Quantity>, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let order = |other: &Value<'a>| match other {
        Value::Quantity(other) => Ok((**quantity).cmp(other)),
        _ => Err(EvalError::NoOverload),
    };
    match (name, args) {
        ("sign", []) => Ok(Value::Int(i64::from(quantity.sign()))),
        ("isGreaterThan", [other]) => Ok(Value::Bool(order(other)? == Ordering::Greater)),
        ("isLessThan", [other]) => Ok(Value::Bool(order(other)? == Ordering::Less)),
        ("compareTo", [other]) => Ok(Value::Int(order(other)? as i64)),
        ("add" | "sub", [other]) => {
            let other = match other {
                Value::Quantity(other) => (**other).clone(),
                Value::Int(int) => Quantity::new(*int, Format::DecimalSi),
                _ => return Err(EvalError::NoOverload),
            };
            let mut total = (**quantity).clone();
            if name == "add" {
                total.add(&other)
            } else {
                total.sub(&other)
            }
            Ok(Value::Quantity(Arc::new(total)))
        }
        ("asInteger", []) => Ok(Value::Int(quantity.value())),
        ("isInteger", []) => Ok(Value::Bool(quantity.milli_value() % 1000 == 0)),
        ("asApproximateFloat", []) => Ok(Value::Double(quantity.milli_value() as f64 / 1000.0)),
        _ => Err(EvalError::NoOverload),
    }
}
