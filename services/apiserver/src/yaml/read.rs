//! YAML in, as Go's decoder reads it: YAML 1.1's words and numbers, the last of two equal keys, and libyaml's complaints.
//!
//! ```text
//! text -> events (saphyr) -> value, repeated keys        text that it refuses -> libyaml, for its complaint
//! ```

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};
use wheelhouse_schema::{MAX_DEPTH, MAX_VALUES};

/// Flow collections may nest this deep before the parser is not even asked: it takes time that grows with the square of their depth. Objects
/// nest a tenth of this; the rest is for brackets inside texts, which are counted too.
const MAX_FLOW_DEPTH: usize = 1000;

/// Integers above this are not exact in a float, and stay one.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A document.
#[derive(Debug, Default, PartialEq)]
pub struct Document {
    pub value: Value,
    /// `line 7: key "k" already set in map`, in order.
    pub repeated: Vec<String>,
}

/// Reads the first document of a text. The error is what follows `yaml: ` in upstream's messages.
pub fn parse(text: &[u8]) -> Result<Document, String> {
    // Clients mostly send JSON under this name, which is YAML too and faster to read as what it is.
    if text.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| *b == b'{')
        && let Ok(value) = serde_json::from_slice(text)
    {
        return Ok(Document { value, repeated: Vec::new() });
    }
    let mut depth = 0usize;
    for byte in text {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_FLOW_DEPTH {
            return Err("exceeded max depth".into());
        }
    }
    let events = std::str::from_utf8(text).ok().and_then(|text| Reader::default().read(text).transpose());
    match events {
        Some(read) => read,
        None => match serde_norway::from_slice(text) {
            Ok(value) => Ok(Document { value, repeated: Vec::new() }),
            Err(error) => Err(complaint(&error.to_string())),
        },
    }
}

/// A collection that is not closed yet.
enum Open {
    List(Vec<Value>),
    Map {
        fields: Map<String, Value>,
        key: Option<String>,
        /// What `<<` brought; fields of the map itself win.
        merged: Map<String, Value>,
    },
}

#[derive(Default)]
struct Reader {
    open: Vec<Pending>,
    /// Each with the number of values in it.
    anchors: HashMap<usize, (Value, usize)>,
    /// Values made so far. A copy that is kept for an alias counts, and so does every use of it.
    values: usize,
    repeated: Vec<String>,
}

struct Pending {
    open: Open,
    anchor: usize,
    /// [`Reader::values`] before it.
    before: usize,
}

impl Reader {
    /// `Ok(None)` for a text that the parser refuses, which libyaml then judges.
    fn read(mut self, text: &str) -> Result<Option<Document>, String> {
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { return Ok(None) };
            let line = span.start.line();
            let value = match event {
                Event::Scalar(text, style, anchor, tag) => {
                    let is_text = style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
                    let value = if is_text { Value::from(text.as_ref()) } else { plain(&text) };
                    self.count(1)?;
                    self.remember(anchor, &value, 1)?;
                    value
                }
                Event::Alias(anchor) => {
                    let Some(size) = self.anchors.get(&anchor).map(|(_, size)| *size) else { return Ok(None) };
                    self.count(size)?;
                    self.anchors[&anchor].0.clone()
                }
                Event::SequenceStart(anchor, _) => {
                    self.begin(Open::List(Vec::new()), anchor)?;
                    continue;
                }
                Event::MappingStart(anchor, _) => {
                    self.begin(Open::Map { fields: Map::new(), key: None, merged: Map::new() }, anchor)?;
                    continue;
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    let Some(Pending { open, anchor, before }) = self.open.pop() else { return Ok(None) };
                    let value = close(open);
                    self.count(1)?;
                    self.remember(anchor, &value, self.values - before)?;
                    value
                }
                Event::DocumentEnd | Event::StreamEnd => break,
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => continue,
            };
            match self.open.last_mut() {
                None => return Ok(Some(Document { value, repeated: self.repeated })),
                Some(Pending { open, .. }) => {
                    if let Some(repeated) = put(open, value) {
                        self.repeated.push(format!("line {line}: key {} already set in map", wheelhouse_meta::gotext::quote(&repeated)));
                    }
                }
            }
        }
        Ok(Some(Document { value: Value::Null, repeated: self.repeated }))
    }

    fn begin(&mut self, open: Open, anchor: usize) -> Result<(), String> {
        if self.open.len() >= MAX_DEPTH {
            return Err("exceeded max depth".into());
        }
        self.open.push(Pending { open, anchor, before: self.values });
        Ok(())
    }

    fn remember(&mut self, anchor: usize, value: &Value, size: usize) -> Result<(), String> {
        if anchor != 0 {
            self.count(size)?;
            self.anchors.insert(anchor, (value.clone(), size));
        }
        Ok(())
    }

    /// Counts values before they are made.
    fn count(&mut self, more: usize) -> Result<(), String> {
        self.values += more;
        if self.values > MAX_VALUES { Err("document contains excessive aliasing".into()) } else { Ok(()) }
    }
}

fn close(open: Open) -> Value {
    match open {
        Open::List(items) => items.into(),
        Open::Map { fields, mut merged, .. } => {
            merged.extend(fields);
            merged.into()
        }
    }
}

/// Puts a value where it belongs in a collection; answers the key that had a value already.
fn put(open: &mut Open, value: Value) -> Option<String> {
    match open {
        Open::List(items) => items.push(value),
        Open::Map { fields, key, merged } => match key.take() {
            None => {
                let text = match value {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                let repeated = fields.contains_key(&text).then(|| text.clone());
                *key = Some(text);
                return repeated;
            }
            Some(name) if name == "<<" && (value.is_object() || value.is_array()) => {
                let maps = match value {
                    Value::Array(maps) => maps,
                    one => vec![one],
                };
                for map in maps {
                    for (name, value) in map.as_object().into_iter().flatten() {
                        merged.entry(name.clone()).or_insert_with(|| value.clone());
                    }
                }
            }
            Some(name) => {
                fields.insert(name, value);
            }
        },
    }
    None
}

/// What YAML 1.1 makes of a text without quotes.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return true.into(),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return false.into(),
        _ => {}
    }
    let first = text.bytes().next().unwrap_or_default();
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return text.into();
    }
    number(&text.replace('_', "")).map_or_else(|| text.into(), Value::Number)
}

/// Integers with Go's prefixes, octal after a mere zero too, and decimal floats.
fn number(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits_only) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    let whole = !digits_only.is_empty() && digits_only.bytes().all(|b| b.is_ascii_alphanumeric());
    if let Some(amount) = u64::from_str_radix(digits_only, radix).ok().filter(|_| whole) {
        if !negative {
            return Some(amount.into());
        }
        let signed = i128::from(amount).checked_neg().and_then(|n| i64::try_from(n).ok());
        if let Some(signed) = signed {
            return Some(signed.into());
        }
    }
    let is_float =
        digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-')) && digits.bytes().any(|b| b.is_ascii_digit());
    let float: f64 = text.parse().ok().filter(|_| is_float)?;
    // Go passes documents on as JSON, where a float without a fraction is an integer.
    if float.fract() == 0.0 && float.abs() < MAX_EXACT { Some((float as i64).into()) } else { Number::from_f64(float) }
}

/// libyaml's complaint with the line that Go's port of it names.
fn complaint(text: &str) -> String {
    let (problem, context) = text.split_once(", while ").unwrap_or((text, ""));
    // Lines count from one here and from nought in libyaml.
    let place = |part: &str| -> Option<(String, usize)> {
        let (what, at) = part.rsplit_once(" at line ")?;
        let line: usize = at.split(' ').next()?.parse().ok()?;
        Some((what.to_owned(), line.saturating_sub(1)))
    };
    let Some((what, line)) = place(problem) else { return text.to_owned() };
    let line = place(context).map(|(_, line)| line).filter(|line| *line != 0).unwrap_or(line);
    if line == 0 {
        return what;
    }
    let line = if context.starts_with("scanning") { line + 1 } else { line };
    format!("line {line}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}")).value
    }

    #[test]
    fn words_and_numbers_are_those_of_yaml_1_1() {
        let text = "a: y\nb: No\nc: 'y'\nd: 010\ne: 0x1F\nf: 1_000\ng: -2\nh: 1.5\ni: 1e3\nj: ~\nk: 2024-01-01\nl: 1.2.3\nm: 0o17\nr: .5\no: '5'\np: 08\n5: x\ny: z\n";
        let expected = json!({
            "a": true, "b": false, "c": "y", "d": 8, "e": 31, "f": 1000, "g": -2, "h": 1.5, "i": 1000, "j": null, "k": "2024-01-01", "l": "1.2.3",
            "m": 15, "r": 0.5, "o": "5", "p": 8, "5": "x", "true": "z",
        });
        assert_eq!(read(text), expected);
        assert_eq!(read("- [a, {b: c}]\n- |\n  text\n- >-\n  folded\n  text\n"), json!([["a", {"b": "c"}], "text\n", "folded text"]));
        assert_eq!((read(""), read("# nothing\n"), read("---\na: 1\n---\nb: 2\n")), (json!(null), json!(null), json!({"a": 1})));
    }

    #[test]
    fn the_last_of_two_keys_counts_and_both_are_told_of() {
        let document = parse(b"data:\n  k: \"v\"\n  k: \"w\"\n").unwrap();
        assert_eq!((document.value, document.repeated), (json!({"data": {"k": "w"}}), vec!["line 3: key \"k\" already set in map".to_owned()]));
    }

    #[test]
    fn anchors_repeat_and_merge() {
        assert_eq!(
            read("a: &x {p: 1, q: 2}\nb: *x\nc:\n  <<: *x\n  q: 3\n"),
            json!({"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 2}, "c": {"p": 1, "q": 3}})
        );
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert_eq!(parse(bomb.as_bytes()).unwrap_err(), "document contains excessive aliasing");
        assert_eq!(parse("- ".repeat(5000).as_bytes()).unwrap_err(), "exceeded max depth");
    }

    #[test]
    fn complaints_are_gos() {
        let error = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert_eq!(error("a: [b\n"), "line 1: did not find expected ',' or ']'");
        assert!(!error("a: b: c\n").is_empty());
        assert!(!error("a: \"\n").is_empty());
    }
}
