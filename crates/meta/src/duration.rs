//! Go durations (`1h30m`) and the short ages that tables show.

use std::fmt;

use crate::gotext::quote;

/// A signed duration in nanoseconds, as `metav1.Duration` holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub i64);

const NANOSECOND: i64 = 1;
const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// Why a text is no duration, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit { unit: String, text: String },
}

impl GoDuration {
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// `time.ParseDuration`.
    pub fn parse(text: &str) -> Result<Self, ParseDurationError> {
        let invalid = || ParseDurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
            let (whole, after) = rest.split_at(digits(rest));
            let mut fraction = "";
            let mut after = after;
            if let Some(tail) = after.strip_prefix('.') {
                (fraction, after) = tail.split_at(digits(tail));
            }
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let unit_length = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, tail) = after.split_at(unit_length);
            if unit.is_empty() {
                return Err(ParseDurationError::MissingUnit(text.to_owned()));
            }
            let nanos = unit_nanos(unit).ok_or_else(|| ParseDurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() })?;
            let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
            let fraction = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse().unwrap_or(0.0) };
            total = whole
                .checked_mul(i128::from(nanos))
                .and_then(|n| n.checked_add((fraction * nanos as f64) as i128))
                .and_then(|n| n.checked_add(total))
                .ok_or_else(invalid)?;
            rest = tail;
        }
        let signed = if negative { -total } else { total };
        i64::try_from(signed).map(Self).map_err(|_| invalid())
    }
}

fn unit_nanos(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => NANOSECOND,
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// `time.Duration.String`: `1h30m0s`, `1.5s`, `100ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        if nanos < SECOND as u64 {
            let (unit, name) = match nanos {
                n if n < MICROSECOND as u64 => (1, "ns"),
                n if n < MILLISECOND as u64 => (MICROSECOND as u64, "\u{b5}s"),
                _ => (MILLISECOND as u64, "ms"),
            };
            return write!(f, "{}{name}", fraction(nanos, unit));
        }
        let (hours, minutes) = (nanos / HOUR as u64, nanos / MINUTE as u64 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", fraction(nanos % MINUTE as u64, SECOND as u64))
    }
}

/// `nanos / unit` with as many decimals as needed.
fn fraction(nanos: u64, unit: u64) -> String {
    let rest = nanos % unit;
    if rest == 0 {
        return (nanos / unit).to_string();
    }
    let width = unit.ilog10() as usize;
    let decimals = format!("{rest:0width$}");
    format!("{}.{}", nanos / unit, decimals.trim_end_matches('0'))
}

/// `duration.HumanDuration`: about three digits of an age, from `0s` to `5y130d`. A clock that is up to two seconds behind shows `0s`,
/// further behind `<invalid>`.
pub fn human_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    if seconds < 120 {
        return format!("{seconds}s");
    }
    let minutes = seconds / 60;
    if minutes < 10 {
        return with_rest(minutes, "m", seconds % 60, "s");
    }
    if minutes < 180 {
        return format!("{minutes}m");
    }
    let hours = minutes / 60;
    if hours < 8 {
        return with_rest(hours, "h", minutes % 60, "m");
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    let days = hours / 24;
    if hours < 24 * 8 {
        return with_rest(days, "d", hours % 24, "h");
    }
    if hours < 24 * 365 * 2 {
        return format!("{days}d");
    }
    let years = days / 365;
    if hours < 24 * 365 * 8 {
        return with_rest(years, "y", days % 365, "d");
    }
    format!("{years}y")
}

fn with_rest(whole: i64, unit: &str, rest: i64, rest_unit: &str) -> String {
    if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{rest_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_round_trip() {
        for (text, printed) in [
            ("5m", "5m0s"),
            ("1h30m", "1h30m0s"),
            ("1.5s", "1.5s"),
            ("100ms", "100ms"),
            ("1500us", "1.5ms"),
            ("0", "0s"),
            ("-1m", "-1m0s"),
            ("36h", "36h0m0s"),
            (".5s", "500ms"),
        ] {
            assert_eq!(GoDuration::parse(text).unwrap().to_string(), printed, "{text}");
        }
        assert_eq!(GoDuration::parse("5").unwrap_err().to_string(), "time: missing unit in duration \"5\"");
        assert_eq!(GoDuration::parse("5x").unwrap_err().to_string(), "time: unknown unit \"x\" in duration \"5x\"");
        assert_eq!(GoDuration::parse("abc").unwrap_err().to_string(), "time: invalid duration \"abc\"");
        assert_eq!(GoDuration::parse("").unwrap_err().to_string(), "time: invalid duration \"\"");
        assert!(GoDuration::parse("9999999999h").is_err());
    }

    #[test]
    fn ages_are_short() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (179 * 60, "179m"),
            (180 * 60, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (729 * 86400, "729d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (8 * 365 * 86400, "8y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }
}
