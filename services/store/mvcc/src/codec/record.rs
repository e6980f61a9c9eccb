//! One record.

use super::wire::{Reader, Writer};
use super::{CodecError, begin, open};
use crate::event::KeyValue;

/// Appends `kv`, its key included.
pub fn encode_record(kv: &KeyValue, out: &mut Vec<u8>) {
    out.reserve(kv.key.len() + kv.value.len() + 32);
    write(&mut begin(out), kv);
}

pub fn decode_record(bytes: &[u8]) -> Result<KeyValue, CodecError> {
    let mut reader = open(bytes)?;
    let kv = read(&mut reader)?;
    reader.end()?;
    Ok(kv)
}

pub(super) fn write(w: &mut Writer<'_>, kv: &KeyValue) {
    w.unsigned(kv.create_revision);
    w.unsigned(kv.mod_revision);
    w.unsigned(kv.version);
    w.signed(kv.lease);
    w.bytes(&kv.key);
    w.bytes(&kv.value);
}

pub(super) fn read(r: &mut Reader<'_>) -> Result<KeyValue, CodecError> {
    let (create_revision, mod_revision, version, lease) = (r.unsigned()?, r.unsigned()?, r.unsigned()?, r.signed()?);
    Ok(KeyValue { key: r.bytes()?, value: r.bytes()?, create_revision, mod_revision, version, lease })
}
