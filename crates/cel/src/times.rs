//! Timestamps and durations.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::error::EvalError;
use crate::value::Value;

pub fn convert<'a>(to: &str, value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let failed = || EvalError::Conversion(format!("type conversion error from '{}' to 'google.protobuf.{to}'", value.type_name()));
    match (to, value) {
        ("timestamp", Value::Timestamp(_)) | ("duration", Value::Duration(_)) => Ok(value.clone()),
        ("timestamp", Value::Int(seconds)) => Timestamp::from_second(*seconds).map(Value::Timestamp).map_err(|_| failed()),
        ("timestamp", _) => value.str()?.parse().map(Value::Timestamp).map_err(|_| failed()),
        _ => parse_duration(value.str()?).map(Value::Duration).ok_or_else(failed),
    }
}

/// Go's form: `1h2m3.5s`.
fn parse_duration(text: &str) -> Option<SignedDuration> {
    let nanoseconds = wheelhouse_meta::duration::GoDuration::parse(text).ok()?.0;
    Some(SignedDuration::from_nanos(nanoseconds))
}

/// Seconds, as protobuf's JSON has them.
pub fn print_duration(duration: SignedDuration) -> String {
    let nanoseconds = duration.subsec_nanos().unsigned_abs();
    if nanoseconds == 0 {
        return format!("{}s", duration.as_secs());
    }
    let sign = if duration.is_negative() { "-" } else { "" };
    let fraction = format!("{nanoseconds:09}");
    format!("{sign}{}.{}s", duration.as_secs().unsigned_abs(), fraction.trim_end_matches('0'))
}

pub fn call<'a>(name: &str, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match (&args[0], &args[1..]) {
        (Value::Timestamp(at), []) => part(name, &at.to_zoned(TimeZone::UTC)),
        (Value::Timestamp(at), [zone]) => {
            let zone = zone.str()?;
            let found = if zone == "UTC" { Ok(TimeZone::UTC) } else { offset(zone) };
            part(name, &at.to_zoned(found?))
        }
        (Value::Duration(duration), []) => {
            let number = match name {
                "getHours" => duration.as_hours(),
                "getMinutes" => duration.as_mins(),
                "getSeconds" => duration.as_secs(),
                "getMilliseconds" => i64::from(duration.subsec_millis()),
                _ => return Err(EvalError::NoOverload),
            };
            Ok(Value::Int(number))
        }
        _ => Err(EvalError::NoOverload),
    }
}

/// `+02:00`; names of zones need a database that the server does not carry.
fn offset(text: &str) -> Result<TimeZone, EvalError> {
    let parsed = || {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let (hours, minutes) = rest.split_once(':')?;
        let seconds = sign * (hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60);
        jiff::tz::Offset::from_seconds(seconds).ok()
    };
    parsed().map(TimeZone::fixed).ok_or_else(|| EvalError::Conversion(format!("unknown time zone {text}")))
}

/// Months, and days by `getDayOfMonth` and of the year, begin with zero, as the language has it.
fn part<'a>(name: &str, at: &Zoned) -> Result<Value<'a>, EvalError> {
    let number = match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return Err(EvalError::NoOverload),
    };
    Ok(Value::Int(number))
}
