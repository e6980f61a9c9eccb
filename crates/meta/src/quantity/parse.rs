//! Reading a quantity.

use super::{Format, Quantity, reduced, rescale, scale};

/// Why a text is no quantity. The texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Digits that upstream handles in 64 bits; it prints shorter numbers as they were written.
const FAST_DIGITS: i32 = 18;

/// Significant digits that always fit into 127 bits.
const MAX_DIGITS: usize = 38;

struct Parts<'a> {
    negative: bool,
    /// Digits before the point, leading zeros gone, never empty.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    /// Whether there was a digit at all.
    has_digits: bool,
    suffix: &'a str,
}

struct Suffix {
    binary: bool,
    exponent: i32,
    format: Format,
}

pub(super) fn parse(text: &str) -> Result<Quantity, ParseQuantityError> {
    if text.is_empty() {
        return Err(ParseQuantityError::Format);
    }
    let parts = split(text)?;
    let suffix = interpret(parts.suffix).ok_or(ParseQuantityError::Suffix)?;
    match fast(text, &parts, &suffix) {
        Some(quantity) => Ok(quantity),
        None => slow(&parts, &suffix),
    }
}

fn split(text: &str) -> Result<Parts<'_>, ParseQuantityError> {
    let (negative, rest) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let (number, mut tail) = rest.split_at(digits(rest));
    let mut fraction = "";
    if let Some(after) = tail.strip_prefix('.') {
        (fraction, tail) = after.split_at(digits(after));
    }
    let whole = match number.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let suffix = tail;
    let letters = tail.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let after = tail[letters..].strip_prefix(['-', '+']).unwrap_or(&tail[letters..]);
    if !after.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseQuantityError::Format);
    }
    Ok(Parts { negative, whole, fraction, has_digits: !number.is_empty() || !fraction.is_empty(), suffix })
}

fn interpret(suffix: &str) -> Option<Suffix> {
    let decimal = |exponent| Some(Suffix { binary: false, exponent, format: Format::DecimalSi });
    let binary = |exponent| Some(Suffix { binary: true, exponent, format: Format::BinarySi });
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
            Some(Suffix { binary: false, exponent, format: Format::DecimalExponent })
        }
    }
}

/// Short numbers keep their exponent and, where they look canonical, their text. `None` sends the number the long way.
fn fast(text: &str, parts: &Parts<'_>, suffix: &Suffix) -> Option<Quantity> {
    let length = (parts.whole.len() + parts.fraction.len()) as i32;
    let (precision, factor) = if suffix.binary {
        if !parts.fraction.is_empty() {
            return None;
        }
        (15 - parts.whole.len() as i32 - suffix.exponent * 3 / 10 - 1, 1i64 << suffix.exponent)
    } else {
        (FAST_DIGITS - length, 1)
    };
    let exponent = if suffix.binary { 0 } else { suffix.exponent.checked_sub(parts.fraction.len() as i32)? };
    if precision < 0 || exponent < scale::NANO {
        return None;
    }
    let shifted = format!("{}{}", parts.whole, parts.fraction);
    let value: i64 = shifted.parse().ok()?;
    let magnitude = i128::from(value) * i128::from(factor);
    let looks_canonical = match suffix.format {
        Format::BinarySi => value & 7 != 0,
        _ => exponent % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
    };
    let mut quantity = Quantity { mantissa: if parts.negative { -magnitude } else { magnitude }, exponent, format: suffix.format, verbatim: None };
    if looks_canonical && quantity.canonical() != text {
        quantity.verbatim = Some(text.into());
    }
    Some(quantity)
}

/// Long or fractional numbers: rounded away from zero to billionths; binary ones capped to 63 bits.
fn slow(parts: &Parts<'_>, suffix: &Suffix) -> Result<Quantity, ParseQuantityError> {
    if !parts.has_digits {
        return Err(ParseQuantityError::Number);
    }
    let all = format!("{}{}", parts.whole, parts.fraction);
    let all = all.trim_start_matches('0');
    let kept = all.len().min(MAX_DIGITS);
    let mut mantissa: i128 = if kept == 0 { 0 } else { all[..kept].parse().map_err(|_| ParseQuantityError::Number)? };
    let dropped = all.len() - kept;
    if all[kept..].bytes().any(|b| b != b'0') {
        mantissa += 1;
    }
    let mut exponent = dropped as i32 - parts.fraction.len() as i32;
    let mut format = suffix.format;
    if suffix.binary {
        (mantissa, exponent) = times_power_of_two(mantissa, exponent, suffix.exponent);
    } else {
        exponent = exponent.saturating_add(suffix.exponent);
    }
    if exponent < scale::NANO {
        (mantissa, _) = rescale(mantissa, exponent, scale::NANO);
        exponent = scale::NANO;
    }
    let mut quantity = Quantity { mantissa, exponent, format, verbatim: None };
    if suffix.binary {
        let cap = Quantity::new(i64::MAX, format);
        if quantity > cap {
            quantity = cap;
        }
        if quantity.cmp_i64(1).is_lt() && !quantity.is_zero() {
            format = Format::DecimalSi;
        }
    }
    quantity.format = format;
    if parts.negative {
        quantity.mantissa = -quantity.mantissa;
    }
    Ok(quantity)
}

/// Multiplies by `2^bits`. Near the end of 128 bits the last decimal digits give way.
fn times_power_of_two(mantissa: i128, exponent: i32, bits: i32) -> (i128, i32) {
    let (mut mantissa, mut exponent) = reduced(mantissa, exponent);
    loop {
        match mantissa.checked_mul(1i128 << bits) {
            Some(product) => return (product, exponent),
            None => {
                (mantissa, _) = rescale(mantissa, 0, 1);
                exponent += 1;
            }
        }
    }
}
