//! Messages to JSON.

use serde_json::{Map, Number, Value};

use super::ProtobufError;
use super::wire::{FIXED64, LENGTH, Reader, VARINT};
use crate::decode::{MAX_DEPTH, MAX_VALUES};
use crate::normalise;
use crate::scalar;
use crate::time::{ApiTime, Layout};
use crate::types::{self, Choice, Field, List, Scalar, Schema, Slot, Struct};

/// First and last second of the years 0 to 9999, which RFC 3339 can write.
const TIME_RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;
/// Go's zero time, 0001-01-01T00:00:00Z.
const ZERO_TIME: i64 = -62_135_596_800;

/// Reads the bare message of a type ([`super::Unknown::raw`]) into JSON, in the form Go would write; apiVersion and kind
/// are the caller's to add.
pub fn decode(raw: &[u8], schema: &Schema) -> Result<Value, ProtobufError> {
    let of = schema.as_struct().ok_or_else(|| ProtobufError::NoMessage(format!("{schema:?}")))?;
    let mut reading = Reading { depth: 0, values: 0 };
    let mut out = Map::new();
    reading.structure(raw, of, &mut out)?;
    let mut value = Value::Object(out);
    normalise(&mut value, schema);
    Ok(value)
}

struct Reading {
    depth: usize,
    values: usize,
}

type Read<T> = Result<T, ProtobufError>;

impl Reading {
    fn structure(&mut self, raw: &[u8], of: &Struct, out: &mut Map<String, Value>) -> Read<()> {
        if of.layout.is_empty() && !of.fields.is_empty() {
            return Err(ProtobufError::NoMessage(of.go_name.to_string()));
        }
        self.slots(raw, of, &of.layout, out)
    }

    /// Reads into `out`, which may hold what an earlier part of the same message set.
    fn slots(&mut self, raw: &[u8], of: &Struct, slots: &[Slot], out: &mut Map<String, Value>) -> Read<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ProtobufError::Malformed("exceeded max depth"));
        }
        let mut reader = Reader::new(raw);
        while let Some((number, wire)) = reader.tag()? {
            let Ok(at) = slots.binary_search_by_key(&number, Slot::number) else {
                reader.skip(wire)?;
                continue;
            };
            match &slots[at] {
                Slot::Field { field, .. } => {
                    let field = &of.fields[*field as usize];
                    self.field(&mut reader, wire, field, out).map_err(|e| e.under(&field.name))?;
                }
                Slot::Embedded { slots, .. } => {
                    let nested = length_delimited(&mut reader, wire)?;
                    self.slots(nested, of, slots, out)?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(&mut self, reader: &mut Reader<'_>, wire: u32, field: &Field, out: &mut Map<String, Value>) -> Read<()> {
        self.count()?;
        match &field.schema {
            Schema::List(list) if !list.wrapped => match member(out, &field.name, || Value::Array(Vec::new())) {
                Value::Array(items) => self.item(reader, wire, list, items),
                _ => Ok(()),
            },
            Schema::Map(map) => {
                let entry = length_delimited(reader, wire)?;
                match member(out, &field.name, || Value::Object(Map::new())) {
                    Value::Object(entries) => self.entry(entry, &map.values, entries),
                    _ => Ok(()),
                }
            }
            Schema::Struct(of) => {
                let nested = length_delimited(reader, wire)?;
                match member(out, &field.name, || Value::Object(Map::new())) {
                    Value::Object(inner) => self.structure(nested, of, inner),
                    _ => Ok(()),
                }
            }
            schema => {
                let value = self.value(reader, wire, schema)?;
                out.insert(field.name.to_string(), value);
                Ok(())
            }
        }
    }

    fn item(&mut self, reader: &mut Reader<'_>, wire: u32, list: &List, items: &mut Vec<Value>) -> Read<()> {
        let packable = match &list.items {
            Schema::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Bool) => Some(VARINT),
            Schema::Scalar(Scalar::Float) => Some(FIXED64),
            _ => None,
        };
        if let (Some(each), LENGTH) = (packable, wire) {
            let mut packed = Reader::new(reader.bytes()?);
            while !packed.is_empty() {
                self.count()?;
                items.push(self.value(&mut packed, each, &list.items)?);
            }
            return Ok(());
        }
        items.push(self.value(reader, wire, &list.items)?);
        Ok(())
    }

    fn entry(&mut self, raw: &[u8], values: &Schema, entries: &mut Map<String, Value>) -> Read<()> {
        let mut key = String::new();
        let mut value = None;
        let mut reader = Reader::new(raw);
        while let Some((number, wire)) = reader.tag()? {
            match number {
                1 => key = text(length_delimited(&mut reader, wire)?),
                2 => value = Some(self.value(&mut reader, wire, values)?),
                _ => reader.skip(wire)?,
            }
        }
        let value = value.unwrap_or_else(|| unset(values));
        entries.insert(key, value);
        Ok(())
    }

    fn value(&mut self, reader: &mut Reader<'_>, wire: u32, schema: &Schema) -> Read<Value> {
        Ok(match schema {
            Schema::Scalar(Scalar::Int32) => Value::from(varint(reader, wire)? as i32),
            Schema::Scalar(Scalar::Int64) => Value::from(varint(reader, wire)? as i64),
            Schema::Scalar(Scalar::Bool) => Value::Bool(varint(reader, wire)? != 0),
            Schema::Scalar(Scalar::Float) => {
                if wire != FIXED64 {
                    return Err(WRONG_WIRE);
                }
                Number::from_f64(f64::from_bits(reader.fixed64()?)).map_or(Value::Null, Value::Number)
            }
            Schema::Scalar(Scalar::String) => Value::String(text(length_delimited(reader, wire)?)),
            Schema::Scalar(Scalar::Bytes) => Value::String(scalar::write_bytes(length_delimited(reader, wire)?)),
            Schema::Scalar(Scalar::Time) => time(length_delimited(reader, wire)?, Layout::Seconds)?,
            Schema::Scalar(Scalar::MicroTime) => time(length_delimited(reader, wire)?, Layout::Micros)?,
            Schema::Scalar(Scalar::Quantity) => {
                let text = text(first_bytes(length_delimited(reader, wire)?)?.unwrap_or_default());
                match text.is_empty() {
                    true => Value::from("0"),
                    false => Value::String(scalar::quantity(&text).map_err(ProtobufError::value)?),
                }
            }
            Schema::Scalar(Scalar::IntOrString) => int_or_string(length_delimited(reader, wire)?)?,
            Schema::Any | Schema::Scalar(Scalar::RawObject | Scalar::FieldsV1) => match first_bytes(length_delimited(reader, wire)?)? {
                None | Some([]) => Value::Null,
                Some(json) => serde_json::from_slice(json).map_err(|e| ProtobufError::value(e.to_string()))?,
            },
            Schema::Struct(of) => {
                let mut inner = Map::new();
                self.structure(length_delimited(reader, wire)?, of, &mut inner)?;
                Value::Object(inner)
            }
            Schema::List(list) => {
                // A named list: a message whose field 1 repeats.
                let mut items = Vec::new();
                let mut inner = Reader::new(length_delimited(reader, wire)?);
                while let Some((number, wire)) = inner.tag()? {
                    match number {
                        1 => {
                            self.count()?;
                            self.item(&mut inner, wire, list, &mut items)?;
                        }
                        _ => inner.skip(wire)?,
                    }
                }
                Value::Array(items)
            }
            Schema::Map(_) => return Err(ProtobufError::NoMessage("a map of maps".to_owned())),
            Schema::Choice(choice) => self.choice(length_delimited(reader, wire)?, *choice)?,
        })
    }

    fn choice(&mut self, raw: &[u8], choice: Choice) -> Read<Value> {
        let props = crate::catalog().definition(types::JSON_SCHEMA_PROPS);
        let props = props.ok_or(ProtobufError::Malformed("no JSONSchemaProps"))?;
        let (schema_number, other_number) = match choice {
            Choice::SchemaOrBool => (2, 1),
            Choice::SchemaOrArray | Choice::SchemaOrStringArray => (1, 2),
        };
        let mut schema = None;
        let mut allows = false;
        let mut items = Vec::new();
        let mut reader = Reader::new(raw);
        while let Some((number, wire)) = reader.tag()? {
            self.count()?;
            if number == schema_number {
                schema = Some(self.value(&mut reader, wire, &props)?);
            } else if number != other_number {
                reader.skip(wire)?;
            } else {
                match choice {
                    Choice::SchemaOrBool => allows = varint(&mut reader, wire)? != 0,
                    Choice::SchemaOrArray => items.push(self.value(&mut reader, wire, &props)?),
                    Choice::SchemaOrStringArray => {
                        items.push(self.value(&mut reader, wire, &Schema::Scalar(Scalar::String))?);
                    }
                }
            }
        }
        Ok(match (schema, choice) {
            (Some(schema), _) => schema,
            (None, Choice::SchemaOrBool) => Value::Bool(allows),
            (None, _) => Value::Array(items),
        })
    }

    fn count(&mut self) -> Read<()> {
        self.values += 1;
        if self.values > MAX_VALUES { Err(ProtobufError::Malformed("object has too many values")) } else { Ok(()) }
    }
}

/// What an earlier part of the message put under a name, or a new value.
fn member<'a>(out: &'a mut Map<String, Value>, name: &str, new: impl FnOnce() -> Value) -> &'a mut Value {
    if !out.contains_key(name) {
        out.insert(name.to_owned(), new());
    }
    out.get_mut(name).expect("it was inserted above")
}

const WRONG_WIRE: ProtobufError = ProtobufError::Malformed("proto: wrong wireType for field");

fn varint(reader: &mut Reader<'_>, wire: u32) -> Read<u64> {
    if wire == VARINT { reader.varint() } else { Err(WRONG_WIRE) }
}

fn length_delimited<'a>(reader: &mut Reader<'a>, wire: u32) -> Read<&'a [u8]> {
    if wire == LENGTH { reader.bytes() } else { Err(WRONG_WIRE) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes of field 1, which the small messages with one field have.
fn first_bytes(raw: &[u8]) -> Read<Option<&[u8]>> {
    let mut found = None;
    let mut reader = Reader::new(raw);
    while let Some((number, wire)) = reader.tag()? {
        match (number, wire) {
            (1, LENGTH) => found = Some(reader.bytes()?),
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(found)
}

fn time(raw: &[u8], layout: Layout) -> Read<Value> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(raw);
    while let Some((number, wire)) = reader.tag()? {
        match (number, wire) {
            (1, VARINT) => seconds = reader.varint()? as i64,
            (2, VARINT) => nanos = reader.varint()? as i32,
            (_, wire) => reader.skip(wire)?,
        }
    }
    if seconds == ZERO_TIME && nanos == 0 {
        return Ok(Value::Null);
    }
    if !TIME_RANGE.contains(&seconds) {
        return Err(ProtobufError::value("time out of range"));
    }
    let nanos = nanos.clamp(0, 999_999_999) as u32;
    Ok(Value::String(ApiTime { seconds, nanos }.format(layout)))
}

fn int_or_string(raw: &[u8]) -> Read<Value> {
    let (mut which, mut int, mut string) = (0, 0, String::new());
    let mut reader = Reader::new(raw);
    while let Some((number, wire)) = reader.tag()? {
        match (number, wire) {
            (1, VARINT) => which = reader.varint()?,
            (2, VARINT) => int = reader.varint()? as i32,
            (3, LENGTH) => string = text(reader.bytes()?),
            (_, wire) => reader.skip(wire)?,
        }
    }
    match which {
        0 => Ok(Value::from(int)),
        1 => Ok(Value::String(string)),
        _ => Err(ProtobufError::value("impossible IntOrString.Type")),
    }
}

/// What a map entry without a value stands for.
fn unset(values: &Schema) -> Value {
    match values {
        Schema::Scalar(Scalar::String | Scalar::Bytes) => Value::from(""),
        Schema::Scalar(Scalar::Bool) => Value::from(false),
        Schema::Scalar(Scalar::Quantity) => Value::from("0"),
        Schema::Scalar(_) => Value::from(0),
        Schema::List(_) => Value::Array(Vec::new()),
        _ => Value::Object(Map::new()),
    }
}
