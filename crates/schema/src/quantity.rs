//! The canonical text of a quantity, exactly as upstream's `resource.Quantity` writes what it has parsed.
//!
//! A number is kept as decimal digits and a power of ten, so that neither long nor tiny inputs lose anything before the
//! rule that says how: round up to a billionth. The form is decimal (`100m`), decimal with exponent (`1e3`) or binary
//! (`64Mi`), and is the input's, except that a binary value below 1024 or with a fraction becomes decimal. Upstream keeps
//! some inputs word for word (those it takes for canonical already, such as `+5` or `1100Ki`); so do we.

/// Why a text is no quantity; the texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Exponent,
    Binary,
}

/// value = (-1)^negative * digits * 10^exponent. No leading zeros; empty means zero.
struct Amount {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

struct Parts<'a> {
    /// Sign and digits as written.
    number: &'a str,
    negative: bool,
    integer: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

const SUFFIX_CHARACTERS: &[u8] = b"eEinumkKMGTP";
/// Most decimal digits that surely fit an i64: upstream takes its fast path up to here.
const INT64_DIGITS: i64 = 18;
/// A billionth, the finest amount kept.
const NANO: i64 = -9;

/// Parses and writes a quantity. Zero of any form is `0`.
pub fn canonical_quantity(text: &str) -> Result<String, QuantityError> {
    if text == "0" {
        return Ok(text.to_owned());
    }
    let parts = split(text)?;
    let (form, exponent) = interpret(parts.suffix).ok_or(QuantityError::Suffix)?;
    let fraction_digits = parts.fraction.len() as i64;
    let total_digits = parts.integer.len() as i64 + fraction_digits;
    let small = match form {
        Form::Decimal | Form::Exponent => total_digits <= INT64_DIGITS && exponent - fraction_digits >= NANO,
        Form::Binary => parts.fraction.is_empty() && 14 - parts.integer.len() as i64 - (exponent as f32 * 3.0 / 10.0) as i64 >= 0,
    };
    if small && verbatim(&parts, form, exponent) {
        return Ok(text.to_owned());
    }
    if !small && !parts.number.contains(|c: char| c.is_ascii_digit()) {
        // Upstream takes a missing number for zero only where it need not look closely.
        return Err(QuantityError::Numeric);
    }
    let mut form = form;
    let mut amount = Amount { negative: parts.negative, digits: digits(parts.integer, parts.fraction), exponent: -fraction_digits };
    match form {
        Form::Decimal | Form::Exponent => amount.exponent += exponent,
        Form::Binary => (0..exponent / 10).for_each(|_| amount.multiply_1024()),
    }
    if !small {
        amount.round_up_to_nano();
        if form == Form::Binary {
            amount.cap_at_int64();
            if amount.is_below_one() {
                form = Form::Decimal;
            }
        }
    }
    Ok(amount.write(form))
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let bytes = text.as_bytes();
    if bytes.is_empty() {
        return Err(QuantityError::Format);
    }
    let count = |from: usize, keep: fn(&u8) -> bool| bytes[from..].iter().take_while(|b| keep(b)).count();
    let signed = matches!(bytes[0], b'-' | b'+') as usize;
    let negative = bytes[0] == b'-';
    let start = signed + count(signed, |b| *b == b'0');
    let dot = start + count(start, u8::is_ascii_digit);
    let integer = if dot > start { &text[start..dot] } else { "0" };
    let mut at = dot;
    let mut fraction = "";
    if bytes.get(dot) == Some(&b'.') {
        at = dot + 1 + count(dot + 1, u8::is_ascii_digit);
        fraction = &text[dot + 1..at];
    }
    let suffix_start = at;
    at += count(at, |b| SUFFIX_CHARACTERS.contains(b));
    if matches!(bytes.get(at), Some(b'-' | b'+')) {
        at += 1;
    }
    at += count(at, u8::is_ascii_digit);
    if at != bytes.len() {
        return Err(QuantityError::Format);
    }
    Ok(Parts { number: &text[..suffix_start], negative, integer, fraction, suffix: &text[suffix_start..] })
}

/// The form and the power (of ten, or of two) that a suffix stands for.
fn interpret(suffix: &str) -> Option<(Form, i64)> {
    let (form, exponent) = match suffix {
        "n" => (Form::Decimal, -9),
        "u" => (Form::Decimal, -6),
        "m" => (Form::Decimal, -3),
        "" => (Form::Decimal, 0),
        "k" => (Form::Decimal, 3),
        "M" => (Form::Decimal, 6),
        "G" => (Form::Decimal, 9),
        "T" => (Form::Decimal, 12),
        "P" => (Form::Decimal, 15),
        "E" => (Form::Decimal, 18),
        "Ki" => (Form::Binary, 10),
        "Mi" => (Form::Binary, 20),
        "Gi" => (Form::Binary, 30),
        "Ti" => (Form::Binary, 40),
        "Pi" => (Form::Binary, 50),
        "Ei" => (Form::Binary, 60),
        other => {
            let exponent: i32 = other.strip_prefix(['e', 'E'])?.parse().ok()?;
            (Form::Exponent, i64::from(exponent))
        }
    };
    Some((form, exponent))
}

/// Whether upstream keeps the text as it is: a small number that needs no shifting.
fn verbatim(parts: &Parts<'_>, form: Form, exponent: i64) -> bool {
    match form {
        // An integer not divisible by eight cannot lose a factor of 1024.
        Form::Binary => parts.integer.parse::<i64>().is_ok_and(|v| v & 7 != 0),
        _ => {
            let shifted = format!("{}{}", parts.integer, parts.fraction);
            (exponent - parts.fraction.len() as i64) % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
        }
    }
}

fn digits(integer: &str, fraction: &str) -> Vec<u8> {
    let all = integer.bytes().chain(fraction.bytes()).map(|b| b - b'0');
    all.skip_while(|d| *d == 0).collect()
}

impl Amount {
    fn multiply_1024(&mut self) {
        let mut carry = 0u32;
        for digit in self.digits.iter_mut().rev() {
            let product = u32::from(*digit) * 1024 + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        while carry > 0 {
            self.digits.insert(0, (carry % 10) as u8);
            carry /= 10;
        }
    }

    /// Away from zero, so that a non-zero amount never vanishes.
    fn round_up_to_nano(&mut self) {
        if self.exponent >= NANO || self.digits.is_empty() {
            return;
        }
        let dropped = (NANO - self.exponent) as usize;
        let keep = self.digits.len().saturating_sub(dropped);
        let lost = self.digits.split_off(keep);
        self.exponent = NANO;
        if lost.iter().any(|d| *d != 0) {
            self.increment();
        }
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    /// How many digits stand before the decimal point.
    fn magnitude(&self) -> i64 {
        self.digits.len() as i64 + self.exponent
    }

    fn cap_at_int64(&mut self) {
        let max = i64::MAX.to_string();
        let mut whole = self.digits.clone();
        whole.resize(self.magnitude().clamp(0, 64) as usize, 0);
        let text: String = whole.iter().map(|d| char::from(d + b'0')).collect();
        if text.len() > max.len() || (text.len() == max.len() && text >= max) {
            self.digits = max.bytes().map(|b| b - b'0').collect();
            self.exponent = 0;
        }
    }

    fn is_below_one(&self) -> bool {
        !self.digits.is_empty() && self.magnitude() <= 0
    }

    fn strip_zeros(&mut self) {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
    }

    fn write(mut self, form: Form) -> String {
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        self.strip_zeros();
        let whole = self.exponent >= 0;
        if form == Form::Binary && whole && self.magnitude() <= 20 {
            let value: u128 = self.digits.iter().fold(0, |v, d| v * 10 + u128::from(*d));
            let value = value * 10u128.pow(self.exponent as u32);
            if value >= 1024 {
                return self.write_binary(value);
            }
        }
        let shift = self.exponent.rem_euclid(3);
        self.digits.resize(self.digits.len() + shift as usize, 0);
        self.exponent -= shift;
        let suffix = match (form, self.exponent) {
            (Form::Exponent, 0) => String::new(),
            (Form::Exponent, exponent) => format!("e{exponent}"),
            (_, -9) => "n".to_owned(),
            (_, -6) => "u".to_owned(),
            (_, -3) => "m".to_owned(),
            (_, 3) => "k".to_owned(),
            (_, 6) => "M".to_owned(),
            (_, 9) => "G".to_owned(),
            (_, 12) => "T".to_owned(),
            (_, 15) => "P".to_owned(),
            (_, 18) => "E".to_owned(),
            // Upstream knows no larger suffix and writes none.
            _ => String::new(),
        };
        let number: String = self.digits.iter().map(|d| char::from(d + b'0')).collect();
        format!("{}{number}{suffix}", self.sign())
    }

    fn write_binary(&self, mut value: u128) -> String {
        let mut power = 0;
        while value.is_multiple_of(1024) && power < 6 {
            value /= 1024;
            power += 1;
        }
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power];
        format!("{}{value}{suffix}", self.sign())
    }

    fn sign(&self) -> &'static str {
        if self.negative { "-" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_canonical_as_upstreams_do() {
        let cases = [
            ("0", "0"),
            ("0Mi", "0"),
            ("-0", "0"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("0.1", "100m"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1500m", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("2048", "2048"),
            ("64Mi", "64Mi"),
            ("1000", "1k"),
            ("1000000", "1M"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1000e3", "1e6"),
            ("12e-1", "1200e-3"),
            ("0.0000000001", "1n"),
            ("1.0000000001", "1000000001n"),
            ("-1.5", "-1500m"),
            ("+5", "+5"),
            ("05", "05"),
            ("1.", "1."),
            ("512Ki", "512Ki"),
            ("1100Ki", "1100Ki"),
            ("8Ki", "8Ki"),
            ("0.5Ki", "512"),
            ("0.5Mi", "512Ki"),
            ("10Ei", "9223372036854775807"),
            ("1.1Ki", "1126400m"),
            ("123456789012345678901", "123456789012345678901"),
            ("1Ki", "1Ki"),
            ("1023", "1023"),
            ("100k", "100k"),
            ("1100k", "1100k"),
            ("1.23G", "1230M"),
            ("0.001", "1m"),
        ];
        for (text, want) in cases {
            assert_eq!(canonical_quantity(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_canonical_stays() {
        for text in ["100m", "1500m", "1536Mi", "1Gi", "1e6", "512Ki", "-1500m", "1n", "9223372036854775807", "1k"] {
            assert_eq!(canonical_quantity(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn errors_name_the_rule() {
        for text in ["", "abc", "1..2", "1 Gi", "1m1x", "100mm "] {
            assert_eq!(canonical_quantity(text), Err(QuantityError::Format), "{text:?}");
        }
        for text in ["100mm", "1Zi", "5K", "--1", "1e99999999999999999999"] {
            assert!(canonical_quantity(text).is_err(), "{text}");
        }
        assert_eq!(canonical_quantity("100mm"), Err(QuantityError::Suffix));
        assert_eq!(canonical_quantity("Pi"), Err(QuantityError::Numeric));
        assert_eq!(canonical_quantity("Ki").as_deref(), Ok("0"));
    }

    #[test]
    fn extreme_exponents_cost_nothing() {
        assert_eq!(canonical_quantity("1e-2000000000").as_deref(), Ok("1e-9"));
        assert_eq!(canonical_quantity("1e2000000000").as_deref(), Ok("100e1999999998"));
    }
}
