//! What Go's decoder knows of a type: its zero value and its name.

use serde_json::{Map, Number, Value};

use crate::types::{List, Scalar, Schema};

pub(super) fn null_item(list: &List) -> Value {
    if list.nullable_items { Value::Null } else { zero(&list.items) }
}

/// Go's zero value where a null stands in a list or map.
pub(super) fn zero(schema: &Schema) -> Value {
    match schema {
        Schema::Scalar(Scalar::String) => Value::String(String::new()),
        Schema::Scalar(Scalar::Bool) => Value::Bool(false),
        Schema::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::IntOrString | Scalar::Float) => Value::from(0),
        Schema::Scalar(Scalar::Quantity) => Value::from("0"),
        Schema::Struct(_) => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

pub(super) fn fits_int32(number: &Number) -> bool {
    number.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
}

/// Go's `reflect.Type.String()` of a schema without named types.
pub(super) fn go_type(schema: &Schema) -> String {
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
