//! Whether a merged object fits its type, in the words of upstream's converter from maps to structs.
//!
//! A strategic merge patch works on maps, so a value of a wrong type shows only when the result becomes a struct again. The first
//! misfit in the order of the struct's fields is reported, without a path. Scalars with a parser of their own (quantities, times) are left
//! to decoding.

use serde_json::Value;
use wheelhouse_schema::{Scalar, Schema};

/// Nesting is bounded when the object is decoded; this bound only keeps the check itself from running deep.
const MAX_DEPTH: usize = 100;

pub(super) fn check(value: &Value, schema: &Schema) -> Result<(), String> {
    check_at(value, schema, 0)
}

fn check_at(value: &Value, schema: &Schema, depth: usize) -> Result<(), String> {
    if value.is_null() || depth > MAX_DEPTH {
        return Ok(());
    }
    match schema {
        Schema::Struct(s) => {
            let map = value.as_object().ok_or_else(|| format!("cannot restore struct from: {}", kind(value)))?;
            for field in &s.fields {
                if let Some(item) = map.get(field.name.as_ref()) {
                    check_at(item, &field.schema, depth + 1)?;
                }
            }
            Ok(())
        }
        Schema::Map(m) => {
            let map = value.as_object().ok_or_else(|| format!("cannot restore map from {}", kind(value)))?;
            map.values().try_for_each(|item| check_at(item, &m.values, depth + 1))
        }
        Schema::List(l) => {
            let items = value.as_array().ok_or_else(|| format!("cannot restore slice from {}", kind(value)))?;
            items.iter().try_for_each(|item| check_at(item, &l.items, depth + 1))
        }
        Schema::Scalar(scalar) => check_scalar(value, *scalar),
        Schema::Any | Schema::Choice(_) => Ok(()),
    }
}

fn check_scalar(value: &Value, scalar: Scalar) -> Result<(), String> {
    let unrecognized = |name: &str| Err(format!("unrecognized type: {name}"));
    match (scalar, value) {
        (Scalar::String, Value::String(_)) | (Scalar::Bool, Value::Bool(_)) | (Scalar::Float, Value::Number(_)) => Ok(()),
        // Go converts integers to strings by code point, which the converter then refuses.
        (Scalar::String, Value::Number(n)) if !n.is_f64() => Err("cannot convert int64 to string".to_owned()),
        (Scalar::String, _) => unrecognized("string"),
        (Scalar::Bool, _) => unrecognized("bool"),
        (Scalar::Float, _) => unrecognized("float64"),
        (Scalar::Int32 | Scalar::Int64, value) => {
            let name = if scalar == Scalar::Int32 { "int32" } else { "int64" };
            match value.as_number() {
                None => unrecognized(name),
                Some(n) if n.is_f64() && n.as_f64().is_some_and(|f| f.fract() != 0.0) => Err(format!("cannot convert float64 to {name}")),
                Some(_) => Ok(()),
            }
        }
        (Scalar::Bytes, Value::String(_) | Value::Array(_)) => Ok(()),
        (Scalar::Bytes, other) => Err(format!("cannot restore slice from {}", kind(other))),
        _ => Ok(()),
    }
}

/// What Go's reflection calls a decoded value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}
