//! Times as API objects carry them: UTC, RFC 3339, whole seconds (`Time`) or six digits (`MicroTime`).

use serde_json::Value;
use wheelhouse_base::Timestamp;

const SECONDS_PER_DAY: i64 = 86_400;

/// `2024-01-01T00:00:00Z`; fractions are cut off, as `metav1.Time` does.
pub fn rfc3339(at: Timestamp) -> String {
    let seconds = at.as_secs();
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// `2024-01-01T00:00:00.000000Z`
pub fn rfc3339_micro(at: Timestamp) -> String {
    let mut text = rfc3339(at);
    text.pop();
    format!("{text}.{:06}Z", at.as_micros().rem_euclid(1_000_000))
}

/// Reads either form, with any offset and any number of digits. `None` for anything else.
pub fn parse(text: &str) -> Option<Timestamp> {
    // jiff also reads a space or a lower-case t, which Go refuses.
    if text.as_bytes().get(10) != Some(&b'T') {
        return None;
    }
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp::from_micros(at.as_microsecond()))
}

/// Reads a time out of an object's field; null and absent are `None`.
pub fn from_json(value: Option<&Value>) -> Option<Timestamp> {
    value.and_then(Value::as_str).and_then(parse)
}

/// The date of a day counted from 1970-01-01, in the proleptic Gregorian calendar. Years are counted from March in 400-year eras, so
/// that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_print_and_parse() {
        let at = Timestamp::from_micros(1_709_164_800_123_456);
        assert_eq!(rfc3339(at), "2024-02-29T00:00:00Z");
        assert_eq!(rfc3339_micro(at), "2024-02-29T00:00:00.123456Z");
        assert_eq!(parse("2024-02-29T01:00:00.123456+01:00"), Some(at));
        assert_eq!(rfc3339(Timestamp::from_micros(-1)), "1969-12-31T23:59:59Z");
        for bad in ["", "yesterday", "2024-01-01", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn micro_times_round_trip(micros in -62_000_000_000_000_000i64..250_000_000_000_000_000) {
            let at = Timestamp::from_micros(micros);
            prop_assert_eq!(parse(&rfc3339_micro(at)), Some(at));
        }
    }
}
