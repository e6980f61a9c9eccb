//! The alphabet of the encoding: variable-length integers, byte strings, flags.

use bytes::Bytes;

use super::CodecError;

pub(super) struct Writer<'b>(pub(super) &'b mut Vec<u8>);

impl Writer<'_> {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    /// Seven bits a byte, least significant first, the top bit set on all but the last.
    pub(super) fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Zigzag, so that small negative numbers stay short.
    pub(super) fn signed(&mut self, value: i64) {
        self.unsigned(((value << 1) ^ (value >> 63)) as u64);
    }

    pub(super) fn len(&mut self, len: usize) {
        self.unsigned(len as u64);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.extend_from_slice(bytes);
    }
}

pub(super) struct Reader<'b>(pub(super) &'b [u8]);

impl Reader<'_> {
    pub(super) fn byte(&mut self) -> Result<u8, CodecError> {
        let (first, rest) = self.0.split_first().ok_or(CodecError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, CodecError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(CodecError::UnknownTag { what, tag }),
        }
    }

    pub(super) fn unsigned(&mut self) -> Result<u64, CodecError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && byte > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CodecError::Overlong)
    }

    pub(super) fn signed(&mut self) -> Result<i64, CodecError> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A count of things that take at least one byte each, so that a broken length cannot ask for memory that the input does not hold.
    pub(super) fn len(&mut self) -> Result<usize, CodecError> {
        let len = usize::try_from(self.unsigned()?).map_err(|_| CodecError::Truncated)?;
        if len > self.0.len() { Err(CodecError::Truncated) } else { Ok(len) }
    }

    /// Copied out, so that a small record does not hold on to the large buffer it arrived in.
    pub(super) fn bytes(&mut self) -> Result<Bytes, CodecError> {
        let len = self.len()?;
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(Bytes::copy_from_slice(bytes))
    }

    pub(super) fn end(&self) -> Result<(), CodecError> {
        if self.0.is_empty() { Ok(()) } else { Err(CodecError::Trailing(self.0.len())) }
    }
}
