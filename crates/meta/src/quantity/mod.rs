//! `resource.Quantity`: exact numbers with a unit suffix, canonicalised as Go does.
//!
//! A value is `mantissa * 10^exponent` in 128 bits, so every amount up to 38 digits is exact; digits below one billionth are
//! rounded away from zero, as upstream does. Numbers beyond 38 digits, which no resource reaches, are capped rather than kept by a big
//! integer.

mod format;
mod parse;

use std::cmp::Ordering;
use std::fmt;

pub use parse::ParseQuantityError;

/// How a quantity prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    #[default]
    DecimalSi,
}

/// The decimal exponent of a unit, as [`Quantity::round_up`] and [`Quantity::scaled_value`] take it.
pub mod scale {
    pub const NANO: i32 = -9;
    pub const MICRO: i32 = -6;
    pub const MILLI: i32 = -3;
    pub const UNIT: i32 = 0;
    pub const KILO: i32 = 3;
}

/// An amount of a resource. `PartialEq` and `Ord` compare amounts, not texts: `1` equals `1000m`.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    /// Not reduced: `1.500` stays 1500 * 10^-3, because upstream prints such a value as it was written.
    mantissa: i128,
    exponent: i32,
    format: Format,
    /// The text as parsed, where upstream prints that instead of the canonical form.
    verbatim: Option<Box<str>>,
}

impl Quantity {
    pub fn new(value: i64, format: Format) -> Self {
        Self { mantissa: i128::from(value), exponent: 0, format, verbatim: None }
    }

    /// Thousandths, in decimal units: `from_milli(1500)` is `1500m`.
    pub fn from_milli(value: i64) -> Self {
        Self { mantissa: i128::from(value), exponent: scale::MILLI, format: Format::DecimalSi, verbatim: None }
    }

    pub fn zero(format: Format) -> Self {
        Self::new(0, format)
    }

    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        parse::parse(text)
    }

    /// Reads a JSON string or number as upstream does; surrounding space is dropped, null is zero.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, ParseQuantityError> {
        match value {
            serde_json::Value::Null => Ok(Self::default()),
            serde_json::Value::String(text) => Self::parse(text.trim()),
            other => Self::parse(&other.to_string()),
        }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.mantissa.signum() as i32
    }

    /// The amount in whole units, rounded away from zero and capped to 64 bits.
    pub fn value(&self) -> i64 {
        self.scaled_value(scale::UNIT)
    }

    /// The amount in thousandths, rounded away from zero and capped to 64 bits.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(scale::MILLI)
    }

    /// The amount in units of `10^scale`, rounded away from zero and capped to 64 bits.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        let (mantissa, _) = rescale(self.mantissa, self.exponent, scale);
        i64::try_from(mantissa).unwrap_or(if mantissa > 0 { i64::MAX } else { i64::MIN })
    }

    /// The value if it is a whole number of 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        let (mantissa, exact) = rescale(self.mantissa, self.exponent, 0);
        if exact { i64::try_from(mantissa).ok() } else { None }
    }

    /// The nearest float; for ratios and metrics only.
    pub fn as_f64(&self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.exponent)
    }

    /// Rounds away from zero to a multiple of `10^scale`. False if that lost precision.
    pub fn round_up(&mut self, scale: i32) -> bool {
        if self.exponent >= scale {
            return true;
        }
        let (mantissa, exact) = rescale(self.mantissa, self.exponent, scale);
        self.verbatim = None;
        self.mantissa = mantissa;
        self.exponent = scale;
        exact
    }

    /// Adds in place. A zero takes the other's format.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i128::saturating_add);
    }

    /// Subtracts in place. A zero takes the other's format.
    pub fn sub(&mut self, other: &Self) {
        self.combine(other, i128::saturating_sub);
    }

    fn combine(&mut self, other: &Self, operation: fn(i128, i128) -> i128) {
        self.verbatim = None;
        if self.is_zero() {
            self.format = other.format;
        }
        if other.is_zero() {
            return;
        }
        if self.is_zero() {
            self.exponent = other.exponent;
        }
        let exponent = self.exponent.min(other.exponent);
        let (left, _) = rescale(self.mantissa, self.exponent, exponent);
        let (right, _) = rescale(other.mantissa, other.exponent, exponent);
        self.mantissa = operation(left, right);
        self.exponent = exponent;
    }

    /// Multiplies in place, capped at 128 bits. False if the mantissa left 64 bits, as upstream reports it.
    pub fn mul(&mut self, factor: i64) -> bool {
        self.verbatim = None;
        self.mantissa = self.mantissa.saturating_mul(i128::from(factor));
        i64::try_from(self.mantissa).is_ok()
    }

    pub fn neg(&mut self) {
        self.verbatim = None;
        self.mantissa = self.mantissa.saturating_neg();
    }

    pub fn cmp_i64(&self, other: i64) -> Ordering {
        compare(self.mantissa, self.exponent, i128::from(other), 0)
    }

    /// The canonical text, whatever was parsed.
    pub fn canonical(&self) -> String {
        format::canonical(self)
    }
}

/// The mantissa at another exponent, rounded away from zero, and whether nothing was lost. Capped at 128 bits.
fn rescale(mantissa: i128, from: i32, to: i32) -> (i128, bool) {
    if mantissa == 0 || from == to {
        return (mantissa, true);
    }
    let distance = from.abs_diff(to);
    if from > to {
        let capped = if mantissa > 0 { i128::MAX } else { i128::MIN };
        let grown = 10i128.checked_pow(distance).and_then(|factor| mantissa.checked_mul(factor));
        return grown.map_or((capped, false), |m| (m, true));
    }
    let Some(divisor) = 10i128.checked_pow(distance) else {
        return (mantissa.signum(), false);
    };
    let quotient = mantissa / divisor;
    if mantissa % divisor == 0 { (quotient, true) } else { (quotient + mantissa.signum(), false) }
}

fn compare(a: i128, a_exponent: i32, b: i128, b_exponent: i32) -> Ordering {
    if a.signum() != b.signum() || a == 0 {
        return a.signum().cmp(&b.signum());
    }
    // Same sign, not zero: the one with more digits before the point is further from zero.
    let magnitude = |m: i128, e: i32| i64::from(m.unsigned_abs().ilog10()) + i64::from(e);
    let by_magnitude = magnitude(a, a_exponent).cmp(&magnitude(b, b_exponent));
    if by_magnitude != Ordering::Equal {
        return if a > 0 { by_magnitude } else { by_magnitude.reverse() };
    }
    // Equal magnitudes differ in exponent by at most 38, so the longer one has room to spare: shrink it to its significant digits.
    let (a, a_exponent) = reduced(a, a_exponent);
    let (b, b_exponent) = reduced(b, b_exponent);
    let exponent = a_exponent.min(b_exponent);
    let (left, _) = rescale(a, a_exponent, exponent);
    let (right, _) = rescale(b, b_exponent, exponent);
    left.cmp(&right)
}

/// Moves trailing zeros into the exponent.
fn reduced(mut mantissa: i128, mut exponent: i32) -> (i128, i32) {
    while mantissa != 0 && mantissa % 10 == 0 {
        mantissa /= 10;
        exponent = exponent.saturating_add(1);
    }
    (mantissa, exponent)
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.mantissa, self.exponent, other.mantissa, other.exponent)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verbatim {
            Some(text) => f.write_str(text),
            None => f.write_str(&format::canonical(self)),
        }
    }
}

impl serde::Serialize for Quantity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Quantity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Self::from_json(&value).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
