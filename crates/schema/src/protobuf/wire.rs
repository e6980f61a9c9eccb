//! The wire format: varints, tags, lengths.

use super::ProtobufError;

pub(crate) const VARINT: u32 = 0;
pub(crate) const FIXED64: u32 = 1;
pub(crate) const LENGTH: u32 = 2;
const START_GROUP: u32 = 3;
const END_GROUP: u32 = 4;
const FIXED32: u32 = 5;

/// Go's io.ErrUnexpectedEOF.
const EOF: ProtobufError = ProtobufError::Malformed("unexpected EOF");
const OVERFLOW: ProtobufError = ProtobufError::Malformed("proto: integer overflow");

/// A message being read.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next field's number and wire type; `None` at the end.
    pub(crate) fn tag(&mut self) -> Result<Option<(u32, u32)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        if number == 0 {
            return Err(ProtobufError::Malformed("proto: illegal tag 0"));
        }
        match (tag & 7) as u32 {
            END_GROUP => Err(ProtobufError::Malformed("proto: wiretype end group for non-group")),
            wire => Ok(Some((number, wire))),
        }
    }

    pub(crate) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0u64;
        for (at, byte) in self.rest.iter().enumerate() {
            if at == 10 {
                return Err(OVERFLOW);
            }
            value |= u64::from(byte & 0x7f) << (7 * at).min(63);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() >= 10 { OVERFLOW } else { EOF })
    }

    pub(crate) fn fixed64(&mut self) -> Result<u64, ProtobufError> {
        let (bytes, rest) = self.rest.split_first_chunk::<8>().ok_or(EOF)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ProtobufError> {
        let length = self.varint()?;
        let length = usize::try_from(length).ok().filter(|n| *n <= self.rest.len()).ok_or(EOF)?;
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Passes over a field that the reader does not know.
    pub(crate) fn skip(&mut self, wire: u32) -> Result<(), ProtobufError> {
        match wire {
            VARINT => self.varint().map(drop),
            FIXED64 => self.fixed64().map(drop),
            LENGTH => self.bytes().map(drop),
            FIXED32 => {
                self.rest = self.rest.get(4..).ok_or(EOF)?;
                Ok(())
            }
            START_GROUP => self.skip_group(),
            _ => Err(ProtobufError::Malformed("proto: illegal wireType")),
        }
    }

    /// Groups nest; a counter stands in for recursion.
    fn skip_group(&mut self) -> Result<(), ProtobufError> {
        let mut open = 1u32;
        while open > 0 {
            let tag = self.varint()?;
            match (tag & 7) as u32 {
                START_GROUP => open += 1,
                END_GROUP => open -= 1,
                wire => self.skip(wire)?,
            }
        }
        Ok(())
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_tag(out: &mut Vec<u8>, number: u32, wire: u32) {
    put_varint(out, u64::from(number << 3 | wire));
}

/// A varint field; negative numbers take ten bytes, as proto2's int32 and int64 do.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u32, value: i64) {
    put_tag(out, number, VARINT);
    put_varint(out, value as u64);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, LENGTH);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A length-delimited field whose content `body` writes. One byte is kept for the length, which is enough for most
/// messages; longer content is moved, which is cheaper than a first pass that only counts.
pub(crate) fn put_nested<E>(out: &mut Vec<u8>, number: u32, body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
    put_tag(out, number, LENGTH);
    let at = out.len();
    out.push(0);
    body(out)?;
    let mut rest = (out.len() - at - 1) as u64;
    let mut place = at;
    while rest >= 0x80 {
        out[place] = rest as u8 | 0x80;
        rest >>= 7;
        place += 1;
        out.insert(place, 0);
    }
    out[place] = rest as u8;
    Ok(())
}
