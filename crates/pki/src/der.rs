//! DER as far as certificates need it: every function returns one complete element.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// Tag, length, contents.
pub(crate) fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match contents.len() {
        short @ 0..0x80 => out.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let significant = &bytes[bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len() - 1)..];
            out.push(0x80 | significant.len() as u8);
            out.extend_from_slice(significant);
        }
    }
    out.extend_from_slice(contents);
    out
}

pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

pub(crate) fn set(parts: &[&[u8]]) -> Vec<u8> {
    element(SET, &parts.concat())
}

/// `[n] EXPLICIT`, around a complete element.
pub(crate) fn explicit(number: u8, inner: &[u8]) -> Vec<u8> {
    element(0xa0 | number, inner)
}

/// `[n] IMPLICIT` of a primitive type.
pub(crate) fn implicit(number: u8, contents: &[u8]) -> Vec<u8> {
    element(0x80 | number, contents)
}

/// A positive integer from its big-endian bytes.
pub(crate) fn integer(magnitude: &[u8]) -> Vec<u8> {
    let start = magnitude.iter().position(|b| *b != 0).unwrap_or(magnitude.len());
    let significant = &magnitude[start..];
    let mut contents = Vec::with_capacity(significant.len() + 1);
    // Zero is one zero byte, and a set top bit would make the number negative.
    if significant.first().is_none_or(|b| b & 0x80 != 0) {
        contents.push(0);
    }
    contents.extend_from_slice(significant);
    element(0x02, &contents)
}

pub(crate) fn boolean(value: bool) -> Vec<u8> {
    element(0x01, &[if value { 0xff } else { 0 }])
}

pub(crate) fn octets(contents: &[u8]) -> Vec<u8> {
    element(0x04, contents)
}

/// A BIT STRING of whole bytes.
pub(crate) fn bits(contents: &[u8]) -> Vec<u8> {
    element(0x03, &[&[0], contents].concat())
}

/// A BIT STRING of named bits, bit 0 first, without trailing zeros as DER demands.
pub(crate) fn named_bits(set: &[u8]) -> Vec<u8> {
    let mut contents = vec![0_u8; 1 + set.iter().max().map_or(0, |top| usize::from(*top) / 8 + 1)];
    for bit in set {
        contents[1 + usize::from(*bit) / 8] |= 0x80 >> (bit % 8);
    }
    contents[0] = contents.last().filter(|_| contents.len() > 1).map_or(0, |last| last.trailing_zeros() as u8);
    element(0x03, &contents)
}

pub(crate) fn utf8(text: &str) -> Vec<u8> {
    element(0x0c, text.as_bytes())
}

/// An object identifier from its arcs.
pub(crate) fn oid(arcs: &[u32]) -> Vec<u8> {
    let (first, second) = (arcs.first().copied().unwrap_or(0), arcs.get(1).copied().unwrap_or(0));
    let mut contents = vec![(first * 40 + second) as u8];
    for arc in arcs.iter().skip(2) {
        let mut groups = vec![(arc & 0x7f) as u8];
        let mut rest = arc >> 7;
        while rest > 0 {
            groups.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        groups.reverse();
        contents.extend_from_slice(&groups);
    }
    element(0x06, &contents)
}

/// A Time: UTCTime up to 2049, GeneralizedTime from then on (RFC 5280, 4.1.2.5). Seconds since the epoch.
pub(crate) fn time(secs: i64) -> Vec<u8> {
    let at = jiff::Timestamp::from_second(secs).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_zoned(jiff::tz::TimeZone::UTC);
    let clock = format!("{:02}{:02}{:02}{:02}{:02}Z", at.month(), at.day(), at.hour(), at.minute(), at.second());
    match at.year() {
        year @ 1950..2050 => element(0x17, format!("{:02}{clock}", year % 100).as_bytes()),
        year => element(0x18, format!("{year:04}{clock}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_the_shortest_form() {
        assert_eq!(element(4, &[1, 2]), [4, 2, 1, 2]);
        assert_eq!(element(4, &[0; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(element(4, &[0; 0x1234])[..4], [4, 0x82, 0x12, 0x34]);
    }

    #[test]
    fn integers_are_positive_and_minimal() {
        assert_eq!(integer(&[0, 0, 0x7f]), [2, 1, 0x7f]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[]), [2, 1, 0]);
    }

    #[test]
    fn named_bits_say_how_many_are_unused() {
        // keyCertSign (5) and cRLSign (6): one byte, one unused bit.
        assert_eq!(named_bits(&[5, 6]), [3, 2, 1, 0x06]);
        assert_eq!(named_bits(&[0]), [3, 2, 7, 0x80]);
    }

    #[test]
    fn object_identifiers_use_base_128() {
        assert_eq!(oid(&[1, 2, 840, 10045, 4, 3, 2]), [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
    }

    #[test]
    fn times_change_form_in_2050() {
        assert_eq!(time(0), b"\x17\x0d700101000000Z");
        assert_eq!(time(2_524_608_000), b"\x18\x0f20500101000000Z");
    }
}
