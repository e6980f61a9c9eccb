//! Go's text forms, where upstream's messages show them.
//!
//! Messages quote strings with `%q`, print numbers with `%v` and maps as `map[a:1]`. Clients and recorded answers hold these texts, so
//! they are reproduced to the byte.

use std::fmt::Write as _;

use serde_json::Value;

/// A string as `%q` prints it: double quotes, Go's escapes, printable Unicode unchanged.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        push_escaped(&mut out, c);
    }
    out.push('"');
    out
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        c if is_printable(c) => out.push(c),
        c if (c as u32) < 0x20 || c as u32 == 0x7f => {
            let _ = write!(out, "\\x{:02x}", c as u32);
        }
        c if (c as u32) < 0x10000 => {
            let _ = write!(out, "\\u{:04x}", c as u32);
        }
        c => {
            let _ = write!(out, "\\U{:08x}", c as u32);
        }
    }
}

/// Whether Go prints the character as it is. Only the ASCII space counts as printable among spaces.
pub fn is_printable(c: char) -> bool {
    if c == ' ' {
        return true;
    }
    if c.is_control() || c.is_whitespace() {
        return false;
    }
    // Soft hyphen, zero-width and directional marks, surrogates' private use and unassigned tails: Go calls these unprintable.
    !matches!(c as u32, 0xad | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb | 0xe000..=0xf8ff | 0xe0000..=0x10ffff)
}

/// A decoded JSON value as `%v` prints it: `map[a:1 b:[x y]]`, `<nil>`, bare strings.
pub fn plain(value: &Value) -> String {
    let mut out = String::new();
    push_plain(&mut out, value);
    out
}

fn push_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => {
            let _ = write!(out, "{b}");
        }
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() => out.push_str(&float(f)),
            _ => {
                let _ = write!(out, "{n}");
            }
        },
        Value::String(s) => out.push_str(s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                push_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            // Go sorts map keys when it prints them; ours are sorted already.
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                push_plain(out, item);
            }
            out.push(']');
        }
    }
}

/// A float as `%v` prints it (`strconv.FormatFloat(f, 'g', -1, 64)` with exponents from 21 digits on).
pub fn float(f: f64) -> String {
    if f.is_nan() {
        return "NaN".to_owned();
    }
    if f.is_infinite() {
        return if f > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{f:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..21).contains(&exponent) {
        return format!("{f}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// JSON as Go's encoder writes it: `<`, `>`, `&` and the two line separators are escaped.
pub fn json(value: &Value) -> String {
    escape_html(&value.to_string())
}

/// Applies Go's HTML-safe escaping to JSON text. Those characters occur only inside strings, so the whole text can be treated alike.
pub fn escape_html(json: &str) -> String {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_are_quoted_as_go_does() {
        assert_eq!(quote("a\"b\\c\n\u{1}\u{7f}é\u{200b}"), "\"a\\\"b\\\\c\\n\\x01\\x7fé\\u200b\"");
    }

    #[test]
    fn values_print_as_go_prints_interfaces() {
        assert_eq!(plain(&json!({"b": [1, "x"], "a": null, "c": {"d": 1.5}})), "map[a:<nil> b:[1 x] c:map[d:1.5]]");
        assert_eq!(float(1e21), "1e+21");
        assert_eq!(float(0.00001), "1e-05");
        assert_eq!(float(100000.0), "100000");
    }

    #[test]
    fn json_is_html_safe() {
        assert_eq!(json(&json!("<a&b>")), "\"\\u003ca\\u0026b\\u003e\"");
    }
}
