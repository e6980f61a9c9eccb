//! Go's words for JSON that is none.
//!
//! serde_json reads bodies; when it refuses one, this scanner finds the same defect again and says it as encoding/json
//! does (`invalid character 'x' looking for beginning of value`), because clients show that text. It follows the
//! grammar only and keeps no values.

/// Go stops at this depth, and so the scan is bounded too.
const MAX_NESTING: usize = 10_000;

/// The error text for a body that is not JSON; `None` if the grammar is met.
pub fn json_syntax_error(bytes: &[u8]) -> Option<String> {
    let mut scanner = Scanner { bytes, at: 0, open: Vec::new() };
    scanner.document().err()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// `{` or `[` of each value we are inside.
    open: Vec<u8>,
}

type Scan = Result<(), String>;

impl Scanner<'_> {
    fn document(&mut self) -> Scan {
        self.value()?;
        while !self.open.is_empty() {
            self.after_value()?;
        }
        match self.skip_space() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    /// Reads one value, or opens containers up to the first value inside that is complete.
    fn value(&mut self) -> Scan {
        loop {
            match self.need()? {
                b'{' => {
                    self.push(b'{')?;
                    match self.need()? {
                        b'}' => return self.close(),
                        b'"' => self.key()?,
                        _ => return Err(self.unexpected("looking for beginning of object key string")),
                    }
                }
                b'[' => {
                    self.push(b'[')?;
                    if self.need()? == b']' {
                        return self.close();
                    }
                }
                b'"' => return self.string(),
                b't' => return self.literal("true"),
                b'f' => return self.literal("false"),
                b'n' => return self.literal("null"),
                b'-' | b'0'..=b'9' => return self.number(),
                _ => return Err(self.unexpected("looking for beginning of value")),
            }
        }
    }

    fn after_value(&mut self) -> Scan {
        let next = self.need()?;
        if self.open.last() == Some(&b'{') {
            match next {
                b'}' => self.close(),
                b',' => {
                    self.at += 1;
                    if self.need()? != b'"' {
                        return Err(self.unexpected("looking for beginning of object key string"));
                    }
                    self.key()?;
                    self.value()
                }
                _ => Err(self.unexpected("after object key:value pair")),
            }
        } else {
            match next {
                b']' => self.close(),
                b',' => {
                    self.at += 1;
                    self.value()
                }
                _ => Err(self.unexpected("after array element")),
            }
        }
    }

    /// A key and its colon.
    fn key(&mut self) -> Scan {
        self.string()?;
        if self.need()? != b':' {
            return Err(self.unexpected("after object key"));
        }
        self.at += 1;
        Ok(())
    }

    fn push(&mut self, kind: u8) -> Scan {
        self.at += 1;
        self.open.push(kind);
        if self.open.len() > MAX_NESTING { Err("exceeded max depth".to_owned()) } else { Ok(()) }
    }

    fn close(&mut self) -> Scan {
        self.at += 1;
        self.open.pop();
        Ok(())
    }

    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.bytes.get(self.at).copied() {
                None => return Err(end()),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(control) if control < 0x20 => return Err(self.unexpected("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Scan {
        match self.bytes.get(self.at).copied() {
            None => Err(end()),
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    match self.bytes.get(self.at) {
                        None => return Err(end()),
                        Some(b) if b.is_ascii_hexdigit() => self.at += 1,
                        Some(_) => return Err(self.unexpected("in \\u hexadecimal character escape")),
                    }
                }
                Ok(())
            }
            Some(_) => Err(self.unexpected("in string escape code")),
        }
    }

    fn literal(&mut self, word: &str) -> Scan {
        self.at += 1;
        for expected in word.bytes().skip(1) {
            match self.bytes.get(self.at) {
                None => return Err(end()),
                Some(b) if *b == expected => self.at += 1,
                Some(_) => {
                    let context = format!("in literal {word} (expecting {})", quoted(u32::from(expected)));
                    return Err(self.unexpected(&context));
                }
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            None => return Err(end()),
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            Some(_) => return Err(self.unexpected("in numeric literal")),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, context: &str) -> Scan {
        match self.bytes.get(self.at) {
            None => Err(end()),
            Some(b) if b.is_ascii_digit() => {
                self.digits();
                Ok(())
            }
            Some(_) => Err(self.unexpected(context)),
        }
    }

    fn skip_space(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn need(&mut self) -> Result<u8, String> {
        self.skip_space().ok_or_else(end)
    }

    /// Go looks at bytes: a character beyond ASCII is named by its first byte.
    fn unexpected(&self, context: &str) -> String {
        let byte = self.bytes.get(self.at).copied().unwrap_or_default();
        format!("invalid character {} {context}", quoted(u32::from(byte)))
    }
}

fn end() -> String {
    "unexpected end of JSON input".to_owned()
}

/// A character in single quotes as Go's `quoteChar` writes it.
fn quoted(character: u32) -> String {
    match char::from_u32(character) {
        Some('\'') => "'\\''".to_owned(),
        Some('"') => "'\"'".to_owned(),
        Some('\n') => "'\\n'".to_owned(),
        Some('\r') => "'\\r'".to_owned(),
        Some('\t') => "'\\t'".to_owned(),
        Some('\\') => "'\\\\'".to_owned(),
        Some(c) if c.is_ascii_control() => format!("'\\x{character:02x}'"),
        Some(_) if (0x80..0xa0).contains(&character) => format!("'\\u{character:04x}'"),
        Some(c) => format!("'{c}'"),
        None => "'?'".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::json_syntax_error;

    #[test]
    fn defects_are_named_as_go_names_them() {
        let cases = [
            ("{", "unexpected end of JSON input"),
            ("", "unexpected end of JSON input"),
            ("[1,", "unexpected end of JSON input"),
            ("\"abc", "unexpected end of JSON input"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\":2}", "invalid character '\"' after object key:value pair"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("-a", "invalid character 'a' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("\u{81}", "invalid character 'Â' looking for beginning of value"),
        ];
        for (text, want) in cases {
            assert_eq!(json_syntax_error(text.as_bytes()).as_deref(), Some(want), "{text}");
        }
        assert_eq!(json_syntax_error(b"\x81").as_deref(), Some("invalid character '\\u0081' looking for beginning of value"));
    }

    #[test]
    fn json_is_not_complained_about() {
        for text in ["{}", " [1, 2.5e-3, -0, true, false, null, \"a\\u00e9\\n\", {\"b\": [[]]}] ", "0"] {
            assert_eq!(json_syntax_error(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = "[".repeat(1_000_000);
        assert_eq!(json_syntax_error(deep.as_bytes()).as_deref(), Some("exceeded max depth"));
    }
}
