//! The Swagger document as protobuf ([`super::V2_PROTOBUF_CONTENT_TYPE`]).
//!
//! client-go's `OpenAPISchema` asks for this form only and reads nothing else, so tools that still use v2
//! (`kubectl explain --output=plaintext-openapiv2`, kubectl before 1.27) need it. The messages are gnostic's
//! OpenAPIv2.proto (proto3: zero values are left out); values of any type are carried as YAML text, for which JSON does.

use serde_json::{Map, Value};

use crate::protobuf::wire::{put_bytes, put_nested, put_number};

/// Writing cannot fail; the type only serves [`put_nested`].
type Written = Result<(), std::convert::Infallible>;

/// `document` is what [`super::v2::render`] made.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let written = write_document(&mut out, document);
    match written {
        Ok(()) => out,
        Err(never) => match never {},
    }
}

fn write_document(out: &mut Vec<u8>, document: &Value) -> Written {
    text(out, 1, &document["swagger"]);
    nested(out, 2, |out| {
        text(out, 1, &document["info"]["title"]);
        text(out, 2, &document["info"]["version"]);
        Ok(())
    })?;
    nested(out, 8, |out| entries(&document["paths"]).try_for_each(|(path, item)| named(out, 2, path, |out| path_item(out, item))))?;
    nested(out, 9, |out| entries(&document["definitions"]).try_for_each(|(name, of)| named(out, 1, name, |out| schema(out, of))))?;
    for requirement in items(&document["security"]) {
        nested(out, 12, |out| {
            entries(requirement).try_for_each(|(name, scopes)| {
                named(out, 1, name, |out| {
                    items(scopes).for_each(|scope| text(out, 1, scope));
                    Ok(())
                })
            })
        })?;
    }
    nested(out, 13, |out| {
        entries(&document["securityDefinitions"]).try_for_each(|(name, of)| {
            named(out, 1, name, |out| {
                // ApiKeySecurity is the second of the kinds of security.
                nested(out, 2, |out| {
                    for (number, key) in [(1, "type"), (2, "name"), (3, "in"), (4, "description")] {
                        text(out, number, &of[key]);
                    }
                    Ok(())
                })
            })
        })
    })
}

fn path_item(out: &mut Vec<u8>, item: &Value) -> Written {
    let methods = ["get", "put", "post", "delete", "options", "head", "patch"];
    for (at, method) in methods.into_iter().enumerate() {
        if let Some(operation) = item.get(method) {
            nested(out, at as u32 + 2, |out| write_operation(out, operation))?;
        }
    }
    items(&item["parameters"]).try_for_each(|p| nested(out, 9, |out| parameter(out, p)))
}

fn write_operation(out: &mut Vec<u8>, operation: &Value) -> Written {
    items(&operation["tags"]).for_each(|tag| text(out, 1, tag));
    text(out, 3, &operation["description"]);
    text(out, 5, &operation["operationId"]);
    items(&operation["produces"]).for_each(|media| text(out, 6, media));
    items(&operation["consumes"]).for_each(|media| text(out, 7, media));
    items(&operation["parameters"]).try_for_each(|p| nested(out, 8, |out| parameter(out, p)))?;
    nested(out, 9, |out| {
        entries(&operation["responses"]).try_for_each(|(code, response)| {
            named(out, 1, code, |out| {
                nested(out, 1, |out| {
                    text(out, 1, &response["description"]);
                    match response.get("schema") {
                        Some(of) => nested(out, 2, |out| nested(out, 1, |out| schema(out, of))),
                        None => Ok(()),
                    }
                })
            })
        })
    })?;
    items(&operation["schemes"]).for_each(|scheme| text(out, 10, scheme));
    extensions(out, 13, operation)
}

/// A ParametersItem: a parameter in the body, or one of the query's or the path's.
fn parameter(out: &mut Vec<u8>, of: &Value) -> Written {
    nested(out, 1, |out| match of["in"].as_str() {
        Some("body") => nested(out, 1, |out| {
            text(out, 1, &of["description"]);
            text(out, 2, &of["name"]);
            text(out, 3, &of["in"]);
            flag(out, 4, &of["required"]);
            // The schema of a body stands in it directly.
            nested(out, 5, |out| schema(out, &of["schema"]))
        }),
        place => nested(out, 2, |out| {
            let (kind, of_type, unique) = if place == Some("path") { (4, 5, 19) } else { (3, 6, 20) };
            nested(out, kind, |out| {
                flag(out, 1, &of["required"]);
                text(out, 2, &of["in"]);
                text(out, 3, &of["description"]);
                text(out, 4, &of["name"]);
                text(out, of_type, &of["type"]);
                flag(out, unique, &of["uniqueItems"]);
                Ok(())
            })
        }),
    })
}

fn schema(out: &mut Vec<u8>, of: &Value) -> Written {
    text(out, 1, &of["$ref"]);
    text(out, 2, &of["format"]);
    text(out, 4, &of["description"]);
    if let Some(default) = of.get("default") {
        nested(out, 5, |out| any(out, default))?;
    }
    items(&of["required"]).for_each(|name| text(out, 19, name));
    if let Some(values) = of.get("additionalProperties") {
        nested(out, 21, |out| nested(out, 1, |out| schema(out, values)))?;
    }
    if of["type"].is_string() {
        nested(out, 22, |out| {
            text(out, 1, &of["type"]);
            Ok(())
        })?;
    }
    if let Some(item) = of.get("items") {
        nested(out, 23, |out| nested(out, 1, |out| schema(out, item)))?;
    }
    if of.get("properties").is_some() {
        nested(out, 25, |out| entries(&of["properties"]).try_for_each(|(name, field)| named(out, 1, name, |out| schema(out, field))))?;
    }
    extensions(out, 31, of)
}

/// `x-…` members.
fn extensions(out: &mut Vec<u8>, number: u32, of: &Value) -> Written {
    entries(of).filter(|(key, _)| key.starts_with("x-")).try_for_each(|(key, value)| named(out, number, key, |out| any(out, value)))
}

fn nested(out: &mut Vec<u8>, number: u32, body: impl FnOnce(&mut Vec<u8>) -> Written) -> Written {
    put_nested(out, number, body)
}

fn any(out: &mut Vec<u8>, value: &Value) -> Written {
    put_bytes(out, 2, format!("{value}\n").as_bytes());
    Ok(())
}

/// A NamedX: the name and a nested value.
fn named(out: &mut Vec<u8>, number: u32, name: &str, value: impl FnOnce(&mut Vec<u8>) -> Written) -> Written {
    nested(out, number, |out| {
        put_bytes(out, 1, name.as_bytes());
        nested(out, 2, value)
    })
}

fn text(out: &mut Vec<u8>, number: u32, value: &Value) {
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        put_bytes(out, number, text.as_bytes());
    }
}

fn flag(out: &mut Vec<u8>, number: u32, value: &Value) {
    if value.as_bool() == Some(true) {
        put_number(out, number, 1);
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
