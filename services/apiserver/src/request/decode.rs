//! Request bodies into objects, with upstream's refusals.
//!
//! A body is JSON, YAML or protobuf. Its `kind` and `apiVersion` may be missing (the path says what it must be) but not wrong, and what the
//! schema does not know is dropped with a warning, refused, or dropped silently, as `fieldValidation` says.

use bytes::Bytes;
use serde_json::Value;
use wheelhouse_meta::Status;
use wheelhouse_meta::field::{FieldError, Path};
use wheelhouse_meta::gotext::quote;
use wheelhouse_meta::gvk::{GroupKind, GroupVersion};
use wheelhouse_schema::{FieldValidation, Schema, decode, decode_value, protobuf, strict_error};

use super::Answer;
use super::media::Encoding;

/// What a body is expected to be.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub schema: &'a Schema,
    /// Whether it is a custom resource, of whose kinds upstream's decoder knows none.
    pub custom: bool,
}

/// An object as sent, unknown fields gone, apiVersion and kind set.
#[derive(Debug)]
pub struct Decoded {
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Reads a body. 400 for what is not an object of the expected kind, with the text of Go's decoder.
pub fn body(bytes: &Bytes, encoding: Encoding, expected: Expected<'_>, validation: FieldValidation) -> Answer<Decoded> {
    match encoding {
        Encoding::Json => json(bytes, bytes, expected, validation),
        Encoding::Yaml => {
            let document = crate::yaml::parse(bytes).map_err(|error| {
                Status::bad_request(unrecognized(
                    expected,
                    bytes,
                    &format!("couldn't get version/kind; json parse error: error converting YAML to JSON: yaml: {error}"),
                ))
            })?;
            let text = serde_json::to_vec(&document.value).unwrap_or_default();
            if validation == FieldValidation::Strict
                && let Some(why) = repeated_keys(&document.repeated)
            {
                let version = GroupVersion::parse(expected.api_version).unwrap_or_default().version;
                let message = format!(
                    "{} in version {} cannot be handled as a {}: strict decoding error: {why}",
                    expected.kind,
                    quote(&version),
                    expected.kind
                );
                return Err(Status::bad_request(message).into());
            }
            let mut decoded = json(&text.into(), bytes, expected, validation)?;
            if validation == FieldValidation::Warn {
                decoded.warnings.splice(0..0, document.repeated);
            }
            Ok(decoded)
        }
        Encoding::Protobuf => from_protobuf(bytes, expected, validation),
    }
}

/// Keys that a YAML document repeats, in the words of Go's strict decoder; `None` if there are none.
pub fn repeated_keys(repeated: &[String]) -> Option<String> {
    (!repeated.is_empty()).then(|| format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  ")))
}

/// `sent` is what the client wrote, for messages; `text` is its JSON.
fn json(text: &Bytes, sent: &Bytes, expected: Expected<'_>, validation: FieldValidation) -> Answer<Decoded> {
    let (api_version, kind) = match type_of(text) {
        Ok(found) => found,
        Err(why) => {
            return Err(Status::bad_request(unrecognized(expected, sent, &format!("couldn't get version/kind; json parse error: {why}"))).into());
        }
    };
    check_type(&api_version, &kind, expected)?;
    let shown_version = if api_version.is_empty() { expected.api_version } else { &api_version };
    let shown_kind = if kind.is_empty() { expected.kind } else { &kind };
    let version = GroupVersion::parse(shown_version).unwrap_or_default().version;
    let cannot =
        |why: &str| Status::bad_request(format!("{shown_kind} in version {} cannot be handled as a {}: {why}", quote(&version), expected.kind));
    let decoded = decode(text, expected.schema, validation).map_err(|error| cannot(&error.to_string()))?;
    if expected.custom && !kind.is_empty() && kind != expected.kind {
        return Err(wrong_kind(&kind, &decoded.value, expected).into());
    }
    finish(decoded, validation, expected, cannot)
}

/// A custom object of another kind decodes, and is refused as a bad value of its field.
fn wrong_kind(kind: &str, object: &Value, expected: Expected<'_>) -> Status {
    let group = GroupVersion::parse(expected.api_version).unwrap_or_default().group;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let errors = vec![FieldError::invalid(&Path::new("kind"), kind, format!("must be {}", expected.kind))].into();
    Status::invalid(&GroupKind::new(&group, kind), name, &errors)
}

fn finish(
    decoded: wheelhouse_schema::Decoded,
    validation: FieldValidation,
    expected: Expected<'_>,
    cannot: impl Fn(&str) -> Status,
) -> Answer<Decoded> {
    if validation == FieldValidation::Strict
        && let Some(problems) = strict_error(&decoded.problems)
    {
        return Err(cannot(&problems).into());
    }
    let mut object = decoded.value;
    set_type(&mut object, expected.api_version, expected.kind);
    Ok(Decoded { object, warnings: decoded.problems })
}

/// The apiVersion and kind of a JSON object; empty where not given. The error is the text of Go's decoder.
fn type_of(text: &[u8]) -> Result<(String, String), String> {
    #[derive(serde::Deserialize)]
    struct TypeMeta {
        #[serde(rename = "apiVersion", default)]
        api_version: Option<String>,
        #[serde(default)]
        kind: Option<String>,
    }
    let go_struct = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
    if text.is_empty() {
        return Err("unexpected end of JSON input".into());
    }
    match serde_json::from_slice::<TypeMeta>(text) {
        Ok(found) => Ok((found.api_version.unwrap_or_default(), found.kind.unwrap_or_default())),
        Err(error) => match serde_json::from_slice::<Value>(text) {
            Ok(Value::Object(fields)) => {
                // A repeated field is the strict decoder's business: the last one counts here, as in Go.
                let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
                for (name, go_name) in [("apiVersion", "apiVersion"), ("kind", "kind")] {
                    if !matches!(text(name), Value::String(_) | Value::Null) {
                        return Err(format!("json: cannot unmarshal {} into Go struct field .{go_name} of type string", json_type(&text(name))));
                    }
                }
                let word = |name: &str| text(name).as_str().unwrap_or_default().to_owned();
                Ok((word("apiVersion"), word("kind")))
            }
            Ok(other) => Err(format!("json: cannot unmarshal {} into Go value of type {go_struct}", json_type(&other))),
            Err(_) => Err(go_syntax_error(text, &error)),
        },
    }
}

/// JSON types as Go's decoder names them.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What Go's JSON scanner says about text that is not JSON.
pub fn go_syntax_error(text: &[u8], error: &serde_json::Error) -> String {
    wheelhouse_schema::json_syntax_error(text).unwrap_or_else(|| error.to_string())
}

fn from_protobuf(bytes: &Bytes, expected: Expected<'_>, validation: FieldValidation) -> Answer<Decoded> {
    let refused = |why: &str| Status::bad_request(unrecognized(expected, bytes, why));
    let envelope = protobuf::open(bytes).map_err(|error| refused(&error.to_string()))?;
    check_type(&envelope.api_version, &envelope.kind, expected)?;
    if envelope.content_type == super::media::JSON {
        return json(&Bytes::copy_from_slice(envelope.raw), bytes, expected, validation);
    }
    let mut object = protobuf::decode(envelope.raw, expected.schema).map_err(|error| refused(&error.to_string()))?;
    set_type(&mut object, expected.api_version, expected.kind);
    Ok(Decoded { object, warnings: Vec::new() })
}

fn check_type(api_version: &str, kind: &str, expected: Expected<'_>) -> Answer<()> {
    let fits = |sent: &str, wanted: &str| sent.is_empty() || sent == wanted;
    if fits(api_version, expected.api_version) && (fits(kind, expected.kind) || expected.custom) {
        return Ok(());
    }
    if expected.custom {
        let message = format!("the API version in the data ({api_version}) does not match the expected API version ({})", expected.api_version);
        return Err(Status::bad_request(message).into());
    }
    let sent_version = if api_version.is_empty() { expected.api_version } else { api_version };
    let sent_kind = if kind.is_empty() { expected.kind } else { kind };
    let group_version = match GroupVersion::parse(sent_version) {
        Ok(parsed) => parsed,
        Err(error) => return Err(Status::bad_request(error.to_string()).into()),
    };
    // The other version of one kind is understood and then refused for the path it was sent to.
    if sent_kind == expected.kind && wheelhouse_schema::catalog().kind(&group_version.group, &group_version.version, sent_kind).is_some() {
        let message = format!("the API version in the data ({sent_version}) does not match the expected API version ({})", expected.api_version);
        return Err(Status::bad_request(message).into());
    }
    let why = unregistered(sent_version, sent_kind);
    let version = quote(&group_version.version);
    Err(Status::bad_request(format!("{sent_kind} in version {version} cannot be handled as a {}: {why}", expected.kind)).into())
}

/// Upstream names the source line of its scheme; ours is the served version.
pub fn unregistered(api_version: &str, kind: &str) -> String {
    format!("no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"", quote(kind), quote(api_version))
}

fn unrecognized(expected: Expected<'_>, bytes: &[u8], why: &str) -> String {
    format!("the object provided is unrecognized (must be of type {}): {why} ({})", expected.kind, summary(bytes))
}

/// The first bytes in hex, as upstream shows them.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    if bytes.is_empty() {
        return "<empty>".into();
    }
    let hex: String = bytes.iter().take(SHOWN).map(|b| format!("{b:02x}")).collect();
    if bytes.len() > SHOWN { format!("{hex} ...") } else { hex }
}

pub fn set_type(object: &mut Value, api_version: &str, kind: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), api_version.into());
        fields.insert("kind".into(), kind.into());
    }
}

/// Prunes an object that was made and not sent (the result of a patch).
pub fn prune(object: Value, expected: Expected<'_>, validation: FieldValidation) -> Result<Decoded, String> {
    let decoded = decode_value(object, expected.schema, validation).map_err(|error| error.to_string())?;
    if validation == FieldValidation::Strict
        && let Some(problems) = strict_error(&decoded.problems)
    {
        return Err(problems);
    }
    let mut object = decoded.value;
    set_type(&mut object, expected.api_version, expected.kind);
    Ok(Decoded { object, warnings: decoded.problems })
}
