//! The envelope around every object and the frames of a watch.

use std::convert::Infallible;

use serde_json::Value;

use super::ProtobufError;
use super::wire::{LENGTH, Reader, put_bytes, put_nested};
use super::write::encode_into;
use crate::types::Schema;

/// What every enveloped object begins with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// A `runtime.Unknown`: the envelope behind [`MAGIC`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unknown<'a> {
    pub api_version: String,
    pub kind: String,
    /// The object's message, or JSON when `content_type` says so.
    pub raw: &'a [u8],
    pub content_encoding: String,
    pub content_type: String,
}

/// Opens an enveloped body. Fails without the magic bytes.
pub fn open(bytes: &[u8]) -> Result<Unknown<'_>, ProtobufError> {
    let body = bytes
        .strip_prefix(MAGIC)
        .ok_or(ProtobufError::Malformed("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"))?;
    let mut unknown = Unknown::default();
    let mut reader = Reader::new(body);
    while let Some((number, wire)) = reader.tag()? {
        match (number, wire) {
            (1, LENGTH) => type_meta(reader.bytes()?, &mut unknown)?,
            (2, LENGTH) => unknown.raw = reader.bytes()?,
            (3, LENGTH) => unknown.content_encoding = text(reader.bytes()?),
            (4, LENGTH) => unknown.content_type = text(reader.bytes()?),
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(unknown)
}

fn type_meta(bytes: &[u8], unknown: &mut Unknown<'_>) -> Result<(), ProtobufError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.tag()? {
        match (number, wire) {
            (1, LENGTH) => unknown.api_version = text(reader.bytes()?),
            (2, LENGTH) => unknown.kind = text(reader.bytes()?),
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes [`MAGIC`] and an envelope around a bare message.
pub fn seal(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + api_version.len() + kind.len() + 24);
    out.extend_from_slice(MAGIC);
    put_head(&mut out, api_version, kind);
    put_bytes(&mut out, 2, raw);
    put_tail(&mut out);
    out
}

/// Writes [`MAGIC`] and the envelope of an object; apiVersion and kind are taken from the value.
pub fn encode_object(value: &Value, schema: &Schema) -> Result<Vec<u8>, ProtobufError> {
    let member = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(MAGIC);
    put_head(&mut out, member("apiVersion"), member("kind"));
    put_nested(&mut out, 2, |out| encode_into(value, schema, out))?;
    put_tail(&mut out);
    Ok(out)
}

/// An enveloped list whose items are bare messages ([`super::encode`]) already; every list kind has its metadata as
/// field 1 and its items as field 2. `metadata` is a ListMeta in JSON.
pub fn list_object<'a>(api_version: &str, kind: &str, metadata: &Value, items: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>, ProtobufError> {
    let list_meta = crate::catalog().list_meta();
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(MAGIC);
    put_head(&mut out, api_version, kind);
    put_nested(&mut out, 2, |out| {
        put_nested(out, 1, |out| encode_into(metadata, &list_meta, out))?;
        for item in items {
            put_bytes(out, 2, item);
        }
        Ok(())
    })?;
    put_tail(&mut out);
    Ok(out)
}

/// One frame of a protobuf watch: four bytes of length, then an envelope without magic that holds a WatchEvent whose
/// object is `object`, itself enveloped with magic (what [`encode_object`] wrote).
pub fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 64);
    out.extend_from_slice(&[0; 4]);
    put_head(&mut out, "", "");
    let written: Result<(), Infallible> = put_nested(&mut out, 2, |out| {
        put_bytes(out, 1, event_type.as_bytes());
        put_nested(out, 2, |out| {
            put_bytes(out, 1, object);
            Ok(())
        })
    });
    match written {
        Ok(()) => {}
        Err(never) => match never {},
    }
    put_tail(&mut out);
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

fn put_head(out: &mut Vec<u8>, api_version: &str, kind: &str) {
    let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    put_bytes(&mut type_meta, 1, api_version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    put_bytes(out, 1, &type_meta);
}

/// contentEncoding and contentType, which are never set by the server.
fn put_tail(out: &mut Vec<u8>) {
    put_bytes(out, 3, b"");
    put_bytes(out, 4, b"");
}
