//! YAML in and out.
//!
//! Out, it is as Go's encoder writes it: sorted keys, lists flush with their key, and quotes around every text that YAML 1.1 would read as something else.

mod read;

use serde_json::Value;

pub use read::parse;

/// A whole document.
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => block(&mut out, value, 0),
        Value::Array(items) if !items.is_empty() => block(&mut out, value, 0),
        plain => {
            scalar(&mut out, plain, 0);
            out.push('\n');
        }
    }
    out
}

/// The lines of a non-empty map or list at an indentation.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) => {
            for (at, (key, item)) in fields.iter().enumerate() {
                if at > 0 || !out.ends_with("- ") {
                    pad(out, indent);
                }
                text(out, key, indent);
                out.push(':');
                entry(out, item, indent, false);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 || !out.ends_with("- ") {
                    pad(out, indent);
                }
                out.push('-');
                entry(out, item, indent, true);
            }
        }
        _ => {}
    }
}

/// What follows a key's colon or an item's dash.
fn entry(out: &mut String, value: &Value, indent: usize, in_list: bool) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push(if in_list { ' ' } else { '\n' });
            block(out, value, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push(if in_list { ' ' } else { '\n' });
            // A list stands flush with its key.
            block(out, value, if in_list { indent + 2 } else { indent });
        }
        plain => {
            out.push(' ');
            scalar(out, plain, indent);
            out.push('\n');
        }
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(string) => text(out, string, indent),
        plain => out.push_str(&plain.to_string()),
    }
}

/// A text: plain where it reads back as itself, as a literal block where it has lines, quoted otherwise.
fn text(out: &mut String, string: &str, indent: usize) {
    let printable = string.chars().all(|c| c == '\n' || c == '\t' || !c.is_control());
    if string.is_empty() {
        out.push_str("\"\"");
    } else if string.contains('\n') && printable && !string.starts_with([' ', '\n']) && !string.contains(" \n") {
        literal(out, string, indent);
    } else if is_plain(string) {
        out.push_str(string);
    } else if printable && !string.contains(['\n', '\t']) && !reads_as_other(string) && !string.contains('\'') {
        out.push('\'');
        out.push_str(string);
        out.push('\'');
    } else {
        // JSON's escapes are YAML's.
        out.push_str(&Value::from(string).to_string());
    }
}

fn literal(out: &mut String, string: &str, indent: usize) {
    let body = string.trim_end_matches('\n');
    out.push_str(match string.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(out, indent + 2);
            out.push_str(line);
        }
    }
    out.extend(std::iter::repeat_n('\n', (string.len() - body.len()).saturating_sub(1)));
}

/// Whether the text can stand without quotes.
fn is_plain(string: &str) -> bool {
    let safe = |c: char| !c.is_control() && c != '\n';
    !string.is_empty()
        && string.chars().all(safe)
        && !string.starts_with(|c: char| {
            " -?:,[]{}#&*!|>'\"%@`".contains(c) && !(matches!(c, '-' | '?' | ':') && string.len() > 1 && !string[1..].starts_with(' '))
        })
        && !string.ends_with([' ', ':'])
        && !string.contains(": ")
        && !string.contains(" #")
        && !reads_as_other(string)
}

/// Whether YAML 1.1 takes the text for a boolean, a null, a number or a time.
fn reads_as_other(string: &str) -> bool {
    const WORDS: &[&str] = &["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", ".inf", ".nan", "-.inf", "+.inf"];
    if WORDS.contains(&string.to_ascii_lowercase().as_str()) || string == "=" || string == "<<" {
        return true;
    }
    let number = string.trim_start_matches(['-', '+']);
    let digits = number.bytes().next().is_some_and(|b| b.is_ascii_digit() || b == b'.');
    if !digits {
        return false;
    }
    let plain_number = number.replace('_', "");
    plain_number.parse::<f64>().is_ok() || ["0x", "0b", "0o"].iter().any(|prefix| number.to_ascii_lowercase().starts_with(prefix)) || is_time(string)
}

/// `2024-01-01`, alone or with a time of day.
fn is_time(string: &str) -> bool {
    let bytes = string.as_bytes();
    bytes.len() >= 8 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-' && bytes[5].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_read_as_gos() {
        let value = json!({
            "metadata": {"creationTimestamp": "2024-01-01T00:00:00Z", "labels": {"a": "y", "b": "1", "c": "x y"}, "managedFields": [{"f": {".": {}}, "g": []}]},
            "data": {"k": "line\nline2\n", "m": "a\nb", "q": "- x", "e": "", "colon": "a: b", "quote": "it's: \"x\""},
            "list": ["a", 1, null, true, [1]],
        });
        let expected = "data:\n  colon: 'a: b'\n  e: \"\"\n  k: |\n    line\n    line2\n  m: |-\n    a\n    b\n  q: '- x'\n  quote: \"it's: \\\"x\\\"\"\n\
                        list:\n- a\n- 1\n- null\n- true\n- - 1\n\
                        metadata:\n  creationTimestamp: \"2024-01-01T00:00:00Z\"\n  labels:\n    a: \"y\"\n    b: \"1\"\n    c: x y\n  \
                        managedFields:\n  - f:\n      .: {}\n    g: []\n";
        assert_eq!(to_string(&value), expected);
    }

    #[test]
    fn what_is_written_reads_back() {
        let texts = [
            "",
            " ",
            "a",
            "-",
            "- a",
            "-a",
            "?",
            ":",
            "a:",
            "#",
            "a #b",
            "1e3",
            "0x1",
            "1_000",
            "~",
            "é",
            "\t",
            "\u{1}",
            "a\n",
            "\n",
            "a\n\nb\n\n",
            " a\nb",
            "*x",
            "&x",
            "{",
            "}",
            "'",
            "\"",
            "|",
            "%",
            "@",
            "2024-01-01",
            "Yes",
            ".5",
            "+1",
            "a\\b",
        ];
        for text in texts {
            let value = json!({"k": text, "l": [text]});
            let read: Value = serde_norway::from_str(&to_string(&value)).unwrap_or_else(|error| panic!("{text:?}: {error}: {}", to_string(&value)));
            assert_eq!(read, value, "{}", to_string(&value));
        }
    }
}
