//! JSON to messages.

use std::convert::Infallible;

use serde_json::Value;

use super::ProtobufError;
use super::wire::{FIXED64, put_bytes, put_nested, put_number, put_tag};
use crate::decode::MAX_DEPTH;
use crate::scalar;
use crate::time::{ApiTime, Layout};
use crate::types::{self, Choice, Field, List, Scalar, Schema, Slot, Struct};

/// Writes the bare message of a type.
pub fn encode(value: &Value, schema: &Schema) -> Result<Vec<u8>, ProtobufError> {
    let mut out = Vec::with_capacity(1024);
    encode_into(value, schema, &mut out)?;
    Ok(out)
}

pub(super) fn encode_into(value: &Value, schema: &Schema, out: &mut Vec<u8>) -> Written {
    let of = schema.as_struct().ok_or_else(|| ProtobufError::NoMessage(format!("{schema:?}")))?;
    structure(value, of, out, 0)
}

type Written = Result<(), ProtobufError>;

fn structure(value: &Value, of: &Struct, out: &mut Vec<u8>, depth: usize) -> Written {
    if of.layout.is_empty() && !of.fields.is_empty() {
        let name = if of.go_name.is_empty() { "a custom resource" } else { &of.go_name };
        return Err(ProtobufError::NoMessage(name.to_owned()));
    }
    if !matches!(value, Value::Object(_) | Value::Null) {
        return Err(mismatch("an object", value));
    }
    if depth > MAX_DEPTH {
        return Err(ProtobufError::Malformed("exceeded max depth"));
    }
    slots(value, of, &of.layout, out, depth)
}

fn slots(value: &Value, of: &Struct, slots_of: &[Slot], out: &mut Vec<u8>, depth: usize) -> Written {
    for slot in slots_of {
        match slot {
            Slot::Field { number, field } => {
                let field = &of.fields[*field as usize];
                let value = value.get(field.name.as_ref()).unwrap_or(&Value::Null);
                put_field(*number, field, value, out, depth).map_err(|e| e.under(&field.name))?;
            }
            Slot::Embedded { number, slots: inner } => {
                put_nested(out, *number, |out| slots(value, of, inner, out, depth + 1))?;
            }
        }
    }
    Ok(())
}

fn put_field(number: u32, field: &Field, value: &Value, out: &mut Vec<u8>, depth: usize) -> Written {
    if value.is_null() {
        // Go writes what is no pointer even when it is zero; nil lists, maps and bytes have nothing to write.
        let silent = matches!(&field.schema, Schema::List(_) | Schema::Map(_) | Schema::Scalar(Scalar::Bytes));
        return if field.pointer || silent { Ok(()) } else { put_value(number, &field.schema, value, out, depth) };
    }
    match (&field.schema, value) {
        (Schema::List(list), Value::Array(items)) if !list.wrapped => {
            items.iter().try_for_each(|item| put_value(number, &list.items, item, out, depth))
        }
        (Schema::List(list), _) if !list.wrapped => Err(mismatch("a list", value)),
        (Schema::Map(map), Value::Object(entries)) => entries.iter().try_for_each(|(key, entry)| {
            put_nested(out, number, |out| {
                put_bytes(out, 1, key.as_bytes());
                if entry.is_null() && matches!(map.values, Schema::List(_) | Schema::Scalar(Scalar::Bytes)) {
                    return Ok(());
                }
                put_value(2, &map.values, entry, out, depth)
            })
            .map_err(|e| e.under(key))
        }),
        (Schema::Map(_), _) => Err(mismatch("a map", value)),
        (schema, value) => put_value(number, schema, value, out, depth),
    }
}

/// One value under its tag; null is the zero value.
fn put_value(number: u32, schema: &Schema, value: &Value, out: &mut Vec<u8>, depth: usize) -> Written {
    match schema {
        Schema::Struct(of) => put_nested(out, number, |out| structure(value, of, out, depth + 1)),
        Schema::Scalar(scalar) => put_scalar(number, *scalar, value, out),
        Schema::Any => put_json(number, value, out),
        Schema::List(list) => put_nested(out, number, |out| named_list(list, value, out, depth + 1)),
        Schema::Map(_) => Err(ProtobufError::NoMessage("a map of maps".to_owned())),
        Schema::Choice(choice) => put_nested(out, number, |out| put_choice(*choice, value, out, depth + 1)),
    }
}

fn named_list(list: &List, value: &Value, out: &mut Vec<u8>, depth: usize) -> Written {
    match value {
        Value::Null => Ok(()),
        Value::Array(items) => items.iter().try_for_each(|item| put_value(1, &list.items, item, out, depth)),
        other => Err(mismatch("a list", other)),
    }
}

fn put_scalar(number: u32, scalar: Scalar, value: &Value, out: &mut Vec<u8>) -> Written {
    match scalar {
        Scalar::String => put_bytes(out, number, string(value)?.as_bytes()),
        Scalar::Bytes => put_bytes(out, number, &scalar::bytes(string(value)?).map_err(ProtobufError::value)?),
        Scalar::Bool => put_number(out, number, boolean(value)?.into()),
        Scalar::Int32 | Scalar::Int64 => put_number(out, number, integer(value)?),
        Scalar::Float => {
            let float = match value {
                Value::Null => 0.0,
                other => other.as_f64().ok_or_else(|| mismatch("a number", other))?,
            };
            put_tag(out, number, FIXED64);
            out.extend_from_slice(&float.to_bits().to_le_bytes());
        }
        Scalar::Quantity => {
            let text = match value {
                Value::Null => "0".to_owned(),
                Value::Number(number) => number.to_string(),
                other => string(other)?.to_owned(),
            };
            let canonical = scalar::quantity(&text).map_err(ProtobufError::value)?;
            sure(put_nested(out, number, |out| {
                put_bytes(out, 1, canonical.as_bytes());
                Ok(())
            }));
        }
        Scalar::IntOrString => return put_int_or_string(number, value, out),
        Scalar::Time => return put_time(number, value, Layout::Seconds, out),
        Scalar::MicroTime => return put_time(number, value, Layout::Micros, out),
        Scalar::RawObject | Scalar::FieldsV1 => return put_json(number, value, out),
    }
    Ok(())
}

fn put_int_or_string(number: u32, value: &Value, out: &mut Vec<u8>) -> Written {
    let (which, int, string) = match value {
        Value::String(text) => (1, 0, text.as_str()),
        other => (0, integer(other)?, ""),
    };
    sure(put_nested(out, number, |out| {
        put_number(out, 1, which);
        put_number(out, 2, int);
        put_bytes(out, 3, string.as_bytes());
        Ok(())
    }));
    Ok(())
}

fn put_time(number: u32, value: &Value, layout: Layout, out: &mut Vec<u8>) -> Written {
    if value.is_null() {
        put_bytes(out, number, b"");
        return Ok(());
    }
    let time = ApiTime::parse(string(value)?, layout).map_err(|e| ProtobufError::value(e.to_string()))?;
    // Times of whole seconds are whole on the wire too.
    let nanos = if layout == Layout::Seconds { 0 } else { time.nanos };
    sure(put_nested(out, number, |out| {
        put_number(out, 1, time.seconds);
        put_number(out, 2, nanos.into());
        Ok(())
    }));
    Ok(())
}

/// A message whose only field is JSON text; null is a message without it.
fn put_json(number: u32, value: &Value, out: &mut Vec<u8>) -> Written {
    put_nested(out, number, |out| {
        if !value.is_null() {
            let text = serde_json::to_vec(value).map_err(|e| ProtobufError::value(e.to_string()))?;
            put_bytes(out, 1, &text);
        }
        Ok(())
    })
}

fn put_choice(choice: Choice, value: &Value, out: &mut Vec<u8>, depth: usize) -> Written {
    let props = crate::catalog().definition(types::JSON_SCHEMA_PROPS);
    let props = props.ok_or(ProtobufError::Malformed("no JSONSchemaProps"))?;
    let props = &props;
    let text = &Schema::Scalar(Scalar::String);
    match (choice, value) {
        (Choice::SchemaOrBool, Value::Object(_)) => {
            put_number(out, 1, 1);
            put_value(2, props, value, out, depth)
        }
        (Choice::SchemaOrBool, other) => {
            put_number(out, 1, boolean(other)?.into());
            Ok(())
        }
        (_, Value::Object(_)) => put_value(1, props, value, out, depth),
        (Choice::SchemaOrArray, Value::Array(items)) => items.iter().try_for_each(|item| put_value(2, props, item, out, depth)),
        (Choice::SchemaOrStringArray, Value::Array(items)) => items.iter().try_for_each(|item| put_value(2, text, item, out, depth)),
        (_, Value::Null) => Ok(()),
        (_, other) => Err(mismatch("a schema or a list", other)),
    }
}

fn sure(written: Result<(), Infallible>) {
    match written {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

fn string(value: &Value) -> Result<&str, ProtobufError> {
    match value {
        Value::Null => Ok(""),
        other => other.as_str().ok_or_else(|| mismatch("a string", other)),
    }
}

fn boolean(value: &Value) -> Result<bool, ProtobufError> {
    match value {
        Value::Null => Ok(false),
        other => other.as_bool().ok_or_else(|| mismatch("a boolean", other)),
    }
}

fn integer(value: &Value) -> Result<i64, ProtobufError> {
    match value {
        Value::Null => Ok(0),
        other => other.as_i64().ok_or_else(|| mismatch("an integer", other)),
    }
}

fn mismatch(wanted: &str, found: &Value) -> ProtobufError {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ProtobufError::value(format!("expected {wanted}, found {kind}"))
}
