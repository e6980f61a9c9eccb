//! RFC 3339 as API objects carry it.

use jiff::tz::TimeZone;
use wheelhouse_base::Timestamp;

/// `2026-01-02T03:04:05Z`: a `metav1.Time`, in whole seconds.
pub fn rfc3339(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_second(time.as_secs()).unwrap_or_default();
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `2026-01-02T03:04:05.000006Z`: a `metav1.MicroTime`.
pub fn rfc3339_micro(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(time.as_micros()).unwrap_or_default();
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Any RFC 3339 time. `None` if it is none.
pub fn parse(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp::from_micros(time.as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_and_parse() {
        let time = Timestamp::from_micros(1_767_323_045_000_006);
        assert_eq!(rfc3339(time), "2026-01-02T03:04:05Z");
        assert_eq!(rfc3339_micro(time), "2026-01-02T03:04:05.000006Z");
        assert_eq!(parse("2026-01-02T03:04:05.000006Z"), Some(time));
        assert_eq!(parse("2026-01-02T04:04:05.000006+01:00"), Some(time));
        assert_eq!(parse("tomorrow"), None);
    }
}
