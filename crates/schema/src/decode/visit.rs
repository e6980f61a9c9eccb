//! The visitor behind [`super::decode`].

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::go::{fits_int32, go_type, null_item, zero};
use super::reading::{Reading, Step, stopped};
use super::{DecodeError, FieldValidation};
use crate::scalar;
use crate::time::Layout;
use crate::types::{self, Choice, Field, Presence, Scalar, Schema, Struct};

/// How the canonical text of Go's zero time begins, in either layout.
const ZERO_TIME: &str = "0001-01-01T00:00:00";

/// Reads one value of a schema. `Value::Null` stands for Go's zero value unless the schema keeps nulls.
pub(super) struct Seed<'a, 'r> {
    schema: &'a Schema,
    /// Go's text for the type, where it is not the schema's own.
    go_type: Option<&'a str>,
    verbatim: bool,
    reading: &'r mut Reading<'a>,
}

impl<'a, 'r> Seed<'a, 'r> {
    pub(super) fn root(schema: &'a Schema, reading: &'r mut Reading<'a>) -> Seed<'a, 'r> {
        let verbatim = matches!(schema, Schema::Struct(types::StructRef::Owned(_)));
        Seed { schema, go_type: None, verbatim, reading }
    }

    fn mismatch<E: Error>(self, found: &str) -> E {
        let go_type = match (self.schema, self.go_type) {
            // IntOrString reads a number as int32 and says so.
            (Schema::Scalar(Scalar::IntOrString), _) => "int32".to_owned(),
            (Schema::Scalar(Scalar::Time | Scalar::MicroTime), _) => "string".to_owned(),
            (_, Some(text)) => text.to_owned(),
            (schema, None) => go_type(schema),
        };
        self.reading.mismatch(found, &go_type);
        stopped()
    }

    fn refuse<E: Error>(self, text: String) -> E {
        self.reading.error = Some(DecodeError::Type(text));
        stopped()
    }

    fn number<E: Error>(self, number: Number) -> Result<Value, E> {
        if self.verbatim {
            return Ok(Value::Number(number));
        }
        match self.schema {
            Schema::Scalar(Scalar::Int64) if number.is_i64() => Ok(Value::Number(number)),
            Schema::Scalar(Scalar::Int32 | Scalar::IntOrString) if fits_int32(&number) => Ok(Value::Number(number)),
            Schema::Scalar(Scalar::Float) => Ok(Value::Number(number)),
            Schema::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::IntOrString) => Err(self.mismatch(&format!("number {number}"))),
            Schema::Scalar(Scalar::Quantity) => match scalar::quantity(&number.to_string()) {
                Ok(text) => Ok(Value::String(text)),
                Err(text) => Err(self.refuse(text)),
            },
            schema if schema.is_raw() => Ok(Value::Number(number)),
            _ => Err(self.mismatch("number")),
        }
    }

    fn string<E: Error>(self, text: &str) -> Result<Value, E> {
        if self.verbatim {
            return Ok(Value::String(text.to_owned()));
        }
        let checked = match self.schema {
            schema if schema.is_raw() => Ok(text.to_owned()),
            Schema::Scalar(Scalar::String | Scalar::IntOrString) => Ok(text.to_owned()),
            Schema::Scalar(Scalar::Quantity) => scalar::quantity(text),
            Schema::Scalar(Scalar::Time) => scalar::time(text, Layout::Seconds),
            Schema::Scalar(Scalar::MicroTime) => scalar::time(text, Layout::Micros),
            Schema::Scalar(Scalar::Bytes) => scalar::bytes(text).map(|bytes| scalar::write_bytes(&bytes)),
            _ => return Err(self.mismatch("string")),
        };
        match (checked, self.schema) {
            // Go's zero time is what an unset time reads as.
            (Ok(text), Schema::Scalar(Scalar::Time | Scalar::MicroTime)) if text.starts_with(ZERO_TIME) => Ok(Value::Null),
            (Ok(text), _) => Ok(Value::String(text)),
            (Err(text), _) => Err(self.refuse(text)),
        }
    }

    fn boolean<E: Error>(self, value: bool) -> Result<Value, E> {
        match self.schema {
            Schema::Scalar(Scalar::Bool) | Schema::Choice(Choice::SchemaOrBool) => Ok(Value::Bool(value)),
            schema if self.verbatim || schema.is_raw() => Ok(Value::Bool(value)),
            Schema::Scalar(Scalar::Quantity) => {
                let text = crate::quantity::QuantityError::Format.to_string();
                Err(self.refuse(text))
            }
            _ => Err(self.mismatch("bool")),
        }
    }

    fn list<'de, A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let list = match self.schema {
            Schema::List(list) => list,
            schema if schema.is_raw() => return any_list(items),
            Schema::Choice(Choice::SchemaOrArray | Choice::SchemaOrStringArray) => {
                let value = any_list(items)?;
                return self.choice(value);
            }
            _ if self.verbatim => return any_list(items),
            // A list in base64's place: Go reads it as a list of byte values; nobody sends that.
            _ => return Err(self.mismatch("array")),
        };
        self.reading.enter()?;
        let mut out = Vec::new();
        loop {
            self.reading.trail.push(Step::Index(out.len()));
            let seed = Seed {
                schema: &list.items,
                go_type: self.go_type.and_then(|text| text.strip_prefix("[]")).map(|text| text.trim_start_matches('*')),
                verbatim: self.verbatim,
                reading: self.reading,
            };
            let item = items.next_element_seed(seed)?;
            self.reading.trail.pop();
            match item {
                None => break,
                Some(Value::Null) if !self.verbatim => out.push(null_item(list)),
                Some(item) => out.push(item),
            }
        }
        self.reading.leave();
        Ok(Value::Array(out))
    }

    fn object<'de, A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        match self.schema {
            Schema::Struct(of) => self.structure(of, entries),
            Schema::Map(map) => self.map(&map.values, entries),
            schema if schema.is_raw() => any_object(entries),
            Schema::Choice(_) => {
                let value = any_object(entries)?;
                self.choice(value)
            }
            _ if self.verbatim => any_object(entries),
            Schema::Scalar(Scalar::Quantity) => {
                let text = crate::quantity::QuantityError::Format.to_string();
                Err(self.refuse(text))
            }
            _ => Err(self.mismatch("object")),
        }
    }

    fn structure<'de, A: MapAccess<'de>>(self, of: &'a Struct, mut entries: A) -> Result<Value, A::Error> {
        self.reading.enter()?;
        let owner = of.go_name.split_once('.').map_or("", |(_, name)| name);
        let mut out = Map::new();
        // Which fields have been read, by position; spares a look-up in the growing object for each.
        let mut met = 0u128;
        while let Some(key) = entries.next_key_seed(Key)? {
            let Some(Found { name, schema, position }) = lookup(of, &key) else {
                if of.preserve_unknown {
                    out.insert(key, entries.next_value()?);
                } else {
                    self.reading.note_unknown(&key);
                    entries.next_value::<serde::de::IgnoredAny>()?;
                }
                continue;
            };
            let again = match position {
                Some(at) if at < 128 => {
                    let again = met & (1 << at) != 0;
                    met |= 1 << at;
                    again
                }
                _ => out.contains_key(&key),
            };
            let field = position.map(|at| &of.fields[at]);
            if again {
                self.reading.note_duplicate(&key);
            }
            self.reading.trail.push(Step::Field { name, owner });
            let verbatim = match field {
                Some(field) => field.presence == Presence::Verbatim,
                None => self.verbatim && !matches!(schema, Schema::Struct(types::StructRef::Builtin(_))),
            };
            let seed = Seed { schema, go_type: field.and_then(|f| f.go_type.as_deref()), verbatim, reading: self.reading };
            let value = entries.next_value_seed(seed)?;
            self.reading.trail.pop();
            match value {
                Value::Null if !verbatim => {}
                value if again => merge(&mut out, key, value, schema),
                value => {
                    out.insert(key, value);
                }
            }
        }
        self.reading.leave();
        Ok(Value::Object(out))
    }

    fn map<'de, A: MapAccess<'de>>(self, values: &'a Schema, mut entries: A) -> Result<Value, A::Error> {
        self.reading.enter()?;
        let nested = !matches!(values, Schema::Scalar(_)) && !values.is_raw();
        let mut out = Map::new();
        while let Some(key) = entries.next_key_seed(Key)? {
            if out.contains_key(&key) {
                self.reading.note_duplicate(&key);
            }
            if nested {
                self.reading.trail.push(Step::Key(key.clone()));
            }
            let seed = Seed {
                schema: values,
                go_type: self.go_type.and_then(|t| t.split_once(']')).map(|(_, of)| of).filter(|of| !of.is_empty()),
                verbatim: self.verbatim,
                reading: self.reading,
            };
            let value = entries.next_value_seed(seed)?;
            if nested {
                self.reading.trail.pop();
            }
            let value = match value {
                Value::Null if !self.verbatim => zero(values),
                value => value,
            };
            out.insert(key, value);
        }
        self.reading.leave();
        Ok(Value::Object(out))
    }

    /// The JSONSchemaProps inside a choice are read by a decoder of their own upstream, which knows no strictness.
    fn choice<E: Error>(self, value: Value) -> Result<Value, E> {
        let props = match crate::catalog().definition(types::JSON_SCHEMA_PROPS) {
            Some(props) => props,
            None => return Ok(value),
        };
        let wrong = match (&value, self.schema) {
            (Value::Array(items), Schema::Choice(Choice::SchemaOrStringArray)) => items.iter().any(|item| !item.is_string()),
            _ => false,
        };
        if wrong {
            return Err(self.mismatch("array"));
        }
        let read = |value: Value| match value {
            Value::Object(_) => super::decode_value(value, &props, FieldValidation::Ignore).map(|d| d.value),
            other => Ok(other),
        };
        let read = match value {
            Value::Array(items) => items.into_iter().map(read).collect::<Result<Vec<_>, _>>().map(Value::Array),
            other => read(other),
        };
        read.map_err(|error| {
            self.reading.error = Some(error);
            stopped()
        })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.reading.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the schema")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.boolean(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => self.number(number),
            None => Err(self.mismatch(&format!("number {value}"))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.string(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Value, A::Error> {
        self.list(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        self.object(entries)
    }
}

/// Reads an object's key as an owned string.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<String, E> {
        Ok(text)
    }
}

/// What stands under a key of a struct.
struct Found<'a> {
    name: &'a str,
    schema: &'a Schema,
    /// Among the struct's fields; `None` for what an embedded resource implies.
    position: Option<usize>,
}

fn lookup<'a>(of: &'a Struct, key: &str) -> Option<Found<'a>> {
    let found = |field: &'a Field, position| Found { name: &field.name, schema: &field.schema, position };
    if let Some(at) = of.position(key) {
        return Some(found(&of.fields[at], Some(at)));
    }
    if !of.embedded_resource {
        return None;
    }
    let implied: &'static Struct = crate::catalog().partial_object().as_struct()?;
    implied.field(key).map(|field| found(field, None))
}

fn any_list<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Value, A::Error> {
    let mut out = Vec::new();
    while let Some(item) = items.next_element()? {
        out.push(item);
    }
    Ok(Value::Array(out))
}

fn any_object<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Value, A::Error> {
    let mut out = Map::new();
    while let Some((key, value)) = entries.next_entry()? {
        out.insert(key, value);
    }
    Ok(Value::Object(out))
}

/// A second value for a key lands in the struct or map that the first one filled, as in Go; anything else is replaced.
fn merge(out: &mut Map<String, Value>, key: String, value: Value, schema: &Schema) {
    match (out.get_mut(&key), value, schema) {
        (Some(Value::Object(old)), Value::Object(new), Schema::Struct(_) | Schema::Map(_)) => {
            for (name, value) in new {
                match schema.child(&name) {
                    Some(inner) if matches!(schema, Schema::Struct(_)) && old.contains_key(&name) => {
                        merge(old, name, value, inner);
                    }
                    _ => {
                        old.insert(name, value);
                    }
                }
            }
        }
        (_, value, _) => {
            out.insert(key, value);
        }
    }
}
