//! Little binary encoding: variable-length integers and length-prefixed bytes. Decoding never panics and never reads past the end.

use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("cut short")]
    Short,
    #[error("an integer runs over 64 bits")]
    Overflow,
    #[error("unknown {what} {value}")]
    Unknown { what: &'static str, value: u64 },
    #[error("{0} bytes are left over")]
    Trailing(usize),
    #[error("{0}")]
    Invalid(&'static str),
}

/// Appends to a buffer.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn bool(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    pub fn u64(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Small magnitudes of either sign stay short.
    pub fn i64(&mut self, value: i64) {
        self.u64(((value << 1) ^ (value >> 63)) as u64);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn finish(self) -> Bytes {
        Bytes::from(self.0)
    }
}

/// Takes from a buffer; byte strings share it.
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self { rest: bytes.into() }
    }

    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Unknown { what: "boolean", value: u64::from(other) }),
        }
    }

    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for (i, byte) in self.rest.iter().copied().enumerate() {
            if i == 9 && byte > 1 {
                return Err(DecodeError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                let _ = self.rest.split_to(i + 1);
                return Ok(value);
            }
        }
        Err(DecodeError::Short)
    }

    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        let value = self.u64()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let length = usize::try_from(self.u64()?).map_err(|_| DecodeError::Short)?;
        self.take(length)
    }

    /// A count of items that follow; each takes at least one byte, so a hostile count cannot reserve memory.
    pub fn count(&mut self) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.u64()?).map_err(|_| DecodeError::Short)?;
        if count > self.rest.len() {
            return Err(DecodeError::Short);
        }
        Ok(count)
    }

    pub fn take(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.rest.len() {
            return Err(DecodeError::Short);
        }
        Ok(self.rest.split_to(length))
    }

    pub fn rest(self) -> Bytes {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.rest.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back() {
        let mut w = Writer::default();
        let unsigned = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let signed = [0, 1, -1, 63, -64, i64::MAX, i64::MIN];
        unsigned.iter().for_each(|v| w.u64(*v));
        signed.iter().for_each(|v| w.i64(*v));
        let mut r = Reader::new(w.finish());
        for v in unsigned {
            assert_eq!(r.u64(), Ok(v));
        }
        for v in signed {
            assert_eq!(r.i64(), Ok(v));
        }
        assert_eq!(r.finish(), Ok(()));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        assert_eq!(Reader::new(vec![0xff; 11]).u64(), Err(DecodeError::Overflow));
        assert_eq!(Reader::new(vec![0x80]).u64(), Err(DecodeError::Short));
        assert_eq!(Reader::new(vec![5, 1]).bytes(), Err(DecodeError::Short));
        let mut huge = Writer::default();
        huge.u64(u64::MAX);
        assert_eq!(Reader::new(huge.finish()).count(), Err(DecodeError::Short));
    }
}
