//! The visitor behind [`super::decode`].

use std::collections::HashSet;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{DecodeError, Decoded, FieldValidation, MAX_DEPTH, MAX_PROBLEMS};
use crate::scalar;
use crate::time::Layout;
use crate::types::{self, Choice, Field, List, Presence, Scalar, Schema, Struct};

/// What one decoding has seen so far.
pub(super) struct Reading<'a> {
    watch_fields: bool,
    /// Above zero while inside a value that upstream decodes without strictness.
    lenient: usize,
    trail: Vec<Step<'a>>,
    depth: usize,
    unknown: Vec<String>,
    /// All problems in the order met.
    problems: Vec<String>,
    seen: HashSet<String>,
    pub(super) error: Option<DecodeError>,
}

/// One step from the root to the value being read.
enum Step<'a> {
    Field { name: &'a str, owner: &'a str },
    Key(String),
    Index(usize),
}

impl<'a> Reading<'a> {
    pub(super) fn new(validation: FieldValidation) -> Reading<'a> {
        Reading {
            watch_fields: validation != FieldValidation::Ignore,
            lenient: 0,
            trail: Vec::new(),
            depth: 0,
            unknown: Vec::new(),
            problems: Vec::new(),
            seen: HashSet::new(),
            error: None,
        }
    }

    /// A custom resource's unknown fields are found by pruning after the decoding, in the order of their names.
    pub(super) fn finish(mut self, value: Value, run_time: bool) -> Decoded {
        if run_time {
            let unknown: HashSet<&String> = self.unknown.iter().collect();
            let mut problems: Vec<String> = self.problems.iter().filter(|p| !unknown.contains(p)).cloned().collect();
            self.unknown.sort();
            problems.append(&mut self.unknown);
            return Decoded { value, problems };
        }
        Decoded { value, problems: self.problems }
    }

    fn note_unknown(&mut self, key: &str) {
        if self.watch_fields && self.lenient == 0 {
            let text = format!("unknown field \"{}\"", self.path(key));
            if self.note(text.clone()) {
                self.unknown.push(text);
            }
        }
    }

    fn note_duplicate(&mut self, key: &str) {
        if self.watch_fields && self.lenient == 0 {
            let text = format!("duplicate field \"{}\"", self.path(key));
            self.note(text);
        }
    }

    fn note(&mut self, text: String) -> bool {
        if self.problems.len() >= MAX_PROBLEMS || !self.seen.insert(text.clone()) {
            return false;
        }
        self.problems.push(text);
        true
    }

    /// `spec.containers[0].key`
    fn path(&self, key: &str) -> String {
        let mut path = String::new();
        for step in &self.trail {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Field { name, .. } => push_name(&mut path, name),
                Step::Key(name) => push_name(&mut path, name),
            }
        }
        push_name(&mut path, key);
        path
    }

    /// Go's UnmarshalTypeError: fields by name only, under the innermost struct's.
    fn mismatch(&mut self, found: &str, go_type: &str) {
        let mut owner = "";
        let mut path = String::new();
        for step in &self.trail {
            if let Step::Field { name, owner: of } = step {
                push_name(&mut path, name);
                owner = of;
            }
        }
        let text = if owner.is_empty() {
            format!("json: cannot unmarshal {found} into Go value of type {go_type}")
        } else {
            format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {go_type}")
        };
        self.error = Some(DecodeError::Type(text));
    }

    fn enter<E: Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.error = Some(DecodeError::TooDeep);
            return Err(stopped());
        }
        Ok(())
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// The reason is in `Reading::error`.
fn stopped<E: Error>() -> E {
    E::custom("stopped")
}

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
            Schema::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::IntOrString) => {
                Err(self.mismatch(&format!("number {number}")))
            }
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
        match checked {
            Ok(text) => Ok(Value::String(text)),
            Err(text) => Err(self.refuse(text)),
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
        self.reading.depth -= 1;
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
            let seed = Seed {
                schema,
                go_type: field.and_then(|f| f.go_type.as_deref()),
                verbatim,
                reading: self.reading,
            };
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
        self.reading.depth -= 1;
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
        self.reading.depth -= 1;
        Ok(Value::Object(out))
    }

    /// The JSONSchemaProps inside a choice are read by a decoder of their own upstream, which knows no strictness.
    fn choice<E: Error>(self, value: Value) -> Result<Value, E> {
        let props = match crate::catalog().definition(types::JSON_SCHEMA_PROPS) {
            Some(props) => props,
            None => return Ok(value),
        };
        let wrong = match (&value, self.schema) {
            (Value::Array(items), Schema::Choice(Choice::SchemaOrStringArray)) => {
                items.iter().any(|item| !item.is_string())
            }
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

fn null_item(list: &List) -> Value {
    if list.nullable_items { Value::Null } else { zero(&list.items) }
}

/// Go's zero value where a null stands in a list or map.
fn zero(schema: &Schema) -> Value {
    match schema {
        Schema::Scalar(Scalar::String) => Value::String(String::new()),
        Schema::Scalar(Scalar::Bool) => Value::Bool(false),
        Schema::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::IntOrString | Scalar::Float) => Value::from(0),
        Schema::Scalar(Scalar::Quantity) => Value::from("0"),
        Schema::Struct(_) => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

fn fits_int32(number: &Number) -> bool {
    number.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
}

/// Go's `reflect.Type.String()` of a schema without named types.
fn go_type(schema: &Schema) -> String {
    match schema {
        Schema::Any => "v1.JSON".to_owned(),
        Schema::Struct(of) => of.go_name.to_string(),
        Schema::List(list) => format!("[]{}{}", if list.nullable_items { "*" } else { "" }, go_type(&list.items)),
        Schema::Map(map) => format!("map[string]{}", go_type(&map.values)),
        Schema::Choice(_) => "v1.JSONSchemaProps".to_owned(),
        Schema::Scalar(scalar) => match scalar {
            Scalar::String | Scalar::Time | Scalar::MicroTime => "string",
            Scalar::Bool => "bool",
            Scalar::Int32 | Scalar::IntOrString => "int32",
            Scalar::Int64 => "int64",
            Scalar::Float => "float64",
            Scalar::Bytes => "[]uint8",
            Scalar::Quantity => "resource.Quantity",
            Scalar::RawObject => "runtime.RawExtension",
            Scalar::FieldsV1 => "v1.FieldsV1",
        }
        .to_owned(),
    }
}
