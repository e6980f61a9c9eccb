//! Values. What comes from an object is read where it is; what an expression makes is shared.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Number, Value as Json, json};
use wheelhouse_meta::quantity::Quantity;

use crate::error::EvalError;

#[derive(Clone, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Text(&'a str),
    Bytes(Arc<[u8]>),
    List(Arc<Vec<Value<'a>>>),
    JsonList(&'a [Json]),
    Map(Arc<BTreeMap<Key, Value<'a>>>),
    JsonMap(&'a Map<String, Json>),
    /// `Object{…}` and its like: a type's name and its fields.
    Object(Arc<str>, Arc<BTreeMap<Key, Value<'a>>>),
    Timestamp(Timestamp),
    Duration(SignedDuration),
    Quantity(Arc<Quantity>),
    Type(&'static str),
    Optional(Option<Arc<Value<'a>>>),
}

/// Keys of maps. Numbers of different kinds are equal if their values are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Arc<str>),
}

impl<'a> Value<'a> {
    pub fn json(json: &'a Json) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Value::Int(int),
                (None, Some(uint)) => Value::Uint(uint),
                (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::Text(text),
            Json::Array(list) => Value::JsonList(list),
            Json::Object(map) => Value::JsonMap(map),
        }
    }

    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Value::String(text.into())
    }

    pub fn list(items: Vec<Value<'a>>) -> Self {
        Value::List(Arc::new(items))
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(b) = self { Some(*b) } else { None }
    }

    pub(crate) fn str(&self) -> Result<&str, EvalError> {
        self.as_str().ok_or(EvalError::NoOverload)
    }

    pub(crate) fn int(&self) -> Result<i64, EvalError> {
        if let Value::Int(int) = self { Ok(*int) } else { Err(EvalError::NoOverload) }
    }

    /// The elements of a list.
    pub(crate) fn items(&self) -> Result<Vec<Value<'a>>, EvalError> {
        match self {
            Value::List(items) => Ok(items.to_vec()),
            Value::JsonList(items) => Ok(items.iter().map(Value::json).collect()),
            _ => Err(EvalError::NoOverload),
        }
    }

    /// How many elements, entries, characters or bytes.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Value::String(_) | Value::Text(_) => self.as_str().map(|text| text.chars().count()),
            Value::Bytes(bytes) => Some(bytes.len()),
            Value::List(items) => Some(items.len()),
            Value::JsonList(items) => Some(items.len()),
            Value::Map(map) | Value::Object(_, map) => Some(map.len()),
            Value::JsonMap(map) => Some(map.len()),
            _ => None,
        }
    }

    /// The field or entry; `None` if it is not there.
    pub(crate) fn field(&self, name: &str) -> Result<Option<Value<'a>>, EvalError> {
        match self {
            Value::JsonMap(map) => Ok(map.get(name).map(Value::json)),
            Value::Map(map) | Value::Object(_, map) => Ok(map.get(&Key::String(name.into())).cloned()),
            Value::Optional(Some(value)) => Ok(value.field(name)?.map(|found| Value::Optional(Some(Arc::new(found))))),
            Value::Optional(None) => Ok(Some(Value::Optional(None))),
            Value::Null => Err(EvalError::NoSuchKey(name.to_owned())),
            _ => Err(EvalError::NoOverload),
        }
    }

    pub(crate) fn entry(&self, key: &Key) -> Result<Option<Value<'a>>, EvalError> {
        match (self, key) {
            (Value::JsonMap(_), Key::String(name)) => self.field(name),
            (Value::JsonMap(_), _) => Ok(None),
            (Value::Map(map), key) => Ok(map.get(key).cloned()),
            _ => Err(EvalError::NoOverload),
        }
    }

    pub(crate) fn key(&self) -> Result<Key, EvalError> {
        match self {
            Value::Bool(b) => Ok(Key::Bool(*b)),
            Value::Int(int) => Ok(Key::Int(*int)),
            // One key for one number.
            Value::Uint(uint) => Ok(i64::try_from(*uint).map_or(Key::Uint(*uint), Key::Int)),
            Value::String(text) => Ok(Key::String(text.clone())),
            Value::Text(text) => Ok(Key::String((*text).into())),
            _ => Err(EvalError::NoOverload),
        }
    }

    /// The keys of a map.
    pub(crate) fn keys(&self) -> Option<Vec<Value<'a>>> {
        match self {
            Value::JsonMap(map) => Some(map.keys().map(|key| Value::Text(key)).collect()),
            Value::Map(map) => Some(map.keys().map(Key::value).collect()),
            _ => None,
        }
    }

    pub(crate) fn equals(&self, other: &Self) -> bool {
        if let (Some(a), Some(b)) = (self.as_str(), other.as_str()) {
            return a == b;
        }
        if let Some(ordering) = self.number_order(other) {
            return ordering == Some(Ordering::Equal);
        }
        if let (Ok(a), Ok(b)) = (self.items(), other.items()) {
            return a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.equals(b));
        }
        if let (Some(keys), Some(others)) = (self.keys(), other.keys()) {
            let same = |key: &Value<'a>| {
                let key = key.key().ok()?;
                Some(self.entry(&key).ok()??.equals(&other.entry(&key).ok()??))
            };
            return keys.len() == others.len() && keys.iter().all(|key| same(key) == Some(true));
        }
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Quantity(a), Value::Quantity(b)) => a == b,
            (Value::Type(a), Value::Type(b)) => a == b,
            (Value::Object(of, a), Value::Object(as_, b)) => {
                of == as_ && a.len() == b.len() && a.iter().zip(b.iter()).all(|((k, v), (l, w))| k == l && v.equals(w))
            }
            (Value::Optional(a), Value::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (None, None) => true,
                _ => false,
            },
            _ => false,
        }
    }

    /// The order of two numbers, by value; `None` if one is no number.
    fn number_order(&self, other: &Self) -> Option<Option<Ordering>> {
        let wide = |value: &Self| match value {
            Value::Int(int) => Some(i128::from(*int)),
            Value::Uint(uint) => Some(i128::from(*uint)),
            _ => None,
        };
        if let (Some(a), Some(b)) = (wide(self), wide(other)) {
            return Some(Some(a.cmp(&b)));
        }
        let real = |value: &Self| match value {
            Value::Double(double) => Some(*double),
            other => wide(other).map(|int| int as f64),
        };
        Some(real(self)?.partial_cmp(&real(other)?))
    }

    pub(crate) fn compare(&self, other: &Self) -> Result<Ordering, EvalError> {
        if let Some(ordering) = self.number_order(other) {
            return ordering.ok_or(EvalError::NoOverload);
        }
        if let (Some(a), Some(b)) = (self.as_str(), other.as_str()) {
            return Ok(a.cmp(b));
        }
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
            (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
            (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.cmp(b)),
            (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
            (Value::Quantity(a), Value::Quantity(b)) => Ok(a.cmp(b)),
            _ => Err(EvalError::NoOverload),
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) | Value::Text(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) | Value::JsonList(_) => "list",
            Value::Map(_) | Value::JsonMap(_) | Value::Object(..) => "map",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
        }
    }

    /// As JSON, the way an object would hold it. `None` for what no object can hold.
    pub fn to_json(&self) -> Option<Json> {
        Some(match self {
            Value::Null => Json::Null,
            Value::Bool(b) => json!(b),
            Value::Int(int) => json!(int),
            Value::Uint(uint) => json!(uint),
            Value::Double(double) => Number::from_f64(*double).map_or(Json::Null, Json::Number),
            Value::String(_) | Value::Text(_) => json!(self.as_str()?),
            Value::List(items) => items.iter().map(Value::to_json).collect::<Option<Vec<_>>>()?.into(),
            Value::JsonList(items) => items.to_vec().into(),
            Value::JsonMap(map) => Json::Object((*map).clone()),
            Value::Map(map) | Value::Object(_, map) => {
                let entry = |(key, value): (&Key, &Value<'a>)| match key {
                    Key::String(name) => Some((name.to_string(), value.to_json()?)),
                    _ => None,
                };
                map.iter().map(entry).collect::<Option<Map<_, _>>>()?.into()
            }
            Value::Timestamp(at) => json!(at.to_string()),
            Value::Duration(duration) => json!(crate::times::print_duration(*duration)),
            Value::Quantity(quantity) => json!(quantity.to_string()),
            Value::Optional(Some(value)) => value.to_json()?,
            Value::Bytes(_) | Value::Type(_) | Value::Optional(None) => return None,
        })
    }
}

impl Key {
    fn value<'a>(&self) -> Value<'a> {
        match self {
            Key::Bool(b) => Value::Bool(*b),
            Key::Int(int) => Value::Int(*int),
            Key::Uint(uint) => Value::Uint(*uint),
            Key::String(text) => Value::String(text.clone()),
        }
    }

    pub(crate) fn print(&self) -> String {
        match self {
            Key::Bool(b) => b.to_string(),
            Key::Int(int) => int.to_string(),
            Key::Uint(uint) => uint.to_string(),
            Key::String(text) => text.to_string(),
        }
    }
}
