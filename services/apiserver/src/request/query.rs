//! The query string and upstream's reading of its values.
//!
//! Booleans are lenient (`watch=maybe` is true, `watch=0` and `watch=false` are not), integers are strict and answer Go's `strconv` text.

use wheelhouse_meta::Status;

use super::Answer;
use super::path::hex_pair;

/// Decoded `name=value` pairs in the order sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(raw: &str) -> Self {
        let pairs = raw.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decode(name), form_decode(value))
        });
        Self(pairs.collect())
    }

    /// All pairs, decoded.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// The first value of a parameter. A parameter that is absent and one that is empty differ.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self, name: &str) -> &str {
        self.first(name).unwrap_or("")
    }

    /// Upstream's lenient boolean: set, and neither `false` nor `0`.
    pub fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    pub fn optional_flag(&self, name: &str) -> Option<bool> {
        self.first(name).map(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// A strict 64-bit integer; an empty value counts as absent.
    pub fn integer(&self, name: &str) -> Answer<Option<i64>> {
        match self.first(name) {
            None | Some("") => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(number) => Ok(Some(number)),
                Err(error) => Err(Status::bad_request(go_parse_error("ParseInt", text, error.kind())).into()),
            },
        }
    }
}

/// Go's `strconv` error text.
fn go_parse_error(function: &str, text: &str, kind: &std::num::IntErrorKind) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = if matches!(kind, PosOverflow | NegOverflow) { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {}: {why}", wheelhouse_meta::gotext::quote(text))
}

/// A resource version as clients send it: empty means "not given". The error is Go's text without a subject.
pub fn parse_revision(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    // Rust accepts a leading plus sign, Go does not.
    if text.starts_with('+') {
        return Err(go_parse_error("ParseUint", text, &std::num::IntErrorKind::InvalidDigit));
    }
    text.parse().map(Some).map_err(|error: std::num::ParseIntError| go_parse_error("ParseUint", text, error.kind()))
}

fn form_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten().and_then(hex_pair);
        match (bytes[at], escaped) {
            (b'+', _) => out.push(b' '),
            (_, Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (byte, None) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_decode() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&limit=5&x=a+b&flag&empty=");
        assert_eq!(query.text("labelSelector"), "a=b,c");
        assert_eq!(query.text("x"), "a b");
        assert_eq!(query.integer("limit"), Ok(Some(5)));
        assert_eq!(query.integer("empty"), Ok(None));
        assert!(query.flag("flag"));
    }

    #[test]
    fn booleans_are_lenient_and_integers_strict() {
        for (value, expected) in [("1", true), ("true", true), ("maybe", true), ("", true), ("0", false), ("FALSE", false)] {
            assert_eq!(Query::parse(&format!("watch={value}")).flag("watch"), expected, "{value}");
        }
        let error = Query::parse("limit=abc").integer("limit").unwrap_err();
        assert_eq!(error.message, "strconv.ParseInt: parsing \"abc\": invalid syntax");
        let error = Query::parse("limit=99999999999999999999").integer("limit").unwrap_err();
        assert_eq!(error.message, "strconv.ParseInt: parsing \"99999999999999999999\": value out of range");
        assert_eq!(parse_revision("-1").unwrap_err(), "strconv.ParseUint: parsing \"-1\": invalid syntax");
    }
}
