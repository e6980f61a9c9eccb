//! Writing a quantity in canonical form: no fraction, the largest unit that leaves a whole number.

use super::{Format, Quantity, reduced, rescale};

pub(super) fn canonical(quantity: &Quantity) -> String {
    if quantity.is_zero() {
        return "0".to_owned();
    }
    match quantity.format {
        Format::BinarySi => binary(quantity).unwrap_or_else(|| decimal(quantity, Format::DecimalSi)),
        format => decimal(quantity, format),
    }
}

/// `None` for values within 1023 of zero and for fractions: those print in decimal units rather than lose anything.
fn binary(quantity: &Quantity) -> Option<String> {
    if quantity.cmp_i64(-1024).is_gt() && quantity.cmp_i64(1024).is_lt() {
        return None;
    }
    let (mut whole, exact) = rescale(quantity.mantissa, quantity.exponent, 0);
    if !exact {
        return None;
    }
    let mut unit = 0;
    while unit < BINARY_UNITS.len() - 1 && whole % 1024 == 0 {
        whole /= 1024;
        unit += 1;
    }
    Some(format!("{whole}{}", BINARY_UNITS[unit]))
}

const BINARY_UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn decimal(quantity: &Quantity, format: Format) -> String {
    let (mut mantissa, mut exponent) = reduced(quantity.mantissa, quantity.exponent);
    let mut zeros = 0;
    while exponent % 3 != 0 {
        zeros += 1;
        exponent -= 1;
    }
    // A mantissa of 38 digits may have no room for the zeros; they are text then.
    let mut padding = "";
    match mantissa.checked_mul(10i128.pow(zeros)) {
        Some(padded) => mantissa = padded,
        None => padding = &"00"[..zeros as usize],
    }
    let suffix = match (format, exponent) {
        (_, 0) => String::new(),
        (Format::DecimalExponent, e) => format!("e{e}"),
        (_, -9) => "n".to_owned(),
        (_, -6) => "u".to_owned(),
        (_, -3) => "m".to_owned(),
        (_, 3) => "k".to_owned(),
        (_, 6) => "M".to_owned(),
        (_, 9) => "G".to_owned(),
        (_, 12) => "T".to_owned(),
        (_, 15) => "P".to_owned(),
        (_, 18) => "E".to_owned(),
        // No unit is that large or small, so the exponent is written out.
        (_, e) => format!("e{e}"),
    };
    format!("{mantissa}{padding}{suffix}")
}
