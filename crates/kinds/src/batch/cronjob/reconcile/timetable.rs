//! When a schedule ticks next, in its time zone.
//!
//! As with the parser that upstream uses: where both days are restricted either may match, a time that a clock change skips does not come that day,
//! and one that it repeats comes twice.

use std::time::Duration;

use k8s_openapi::jiff;
use k8s_openapi::jiff::tz::TimeZone;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::duration::GoDuration;

use super::super::schedule::{FIELDS, check, range};

/// A schedule that does not tick for so long never does: `0 0 31 2 *`.
const HORIZON_YEARS: i16 = 5;

#[derive(Debug)]
pub enum Timetable {
    /// `@every`: so long after the time before.
    Every(Duration),
    /// Sets of minutes, hours, days, months and weekdays.
    Fields { sets: [u64; 5], any_day: bool, any_weekday: bool },
}

impl Timetable {
    pub fn parse(text: &str) -> Result<Self, String> {
        check(text)?;
        if let Some(duration) = text.strip_prefix("@every ") {
            let duration = GoDuration::parse(duration).map_err(|error| error.to_string())?;
            let seconds = u64::try_from(duration.0 / 1_000_000_000).unwrap_or(0).max(1);
            return Ok(Self::Every(Duration::from_secs(seconds)));
        }
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let mut sets = [0u64; 5];
        let mut any = [false; 5];
        for (at, (text, field)) in text.split_whitespace().zip(&FIELDS).enumerate() {
            for part in text.split(',') {
                let (first, last, step) = range(part, field)?;
                let mut value = first;
                while value <= last {
                    sets[at] |= 1 << value;
                    value = value.saturating_add(step);
                }
                any[at] |= part.starts_with(['*', '?']) && step == 1;
            }
        }
        Ok(Self::Fields { sets, any_day: any[2], any_weekday: any[4] })
    }

    /// The first tick after `after`.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(duration) => Some(Timestamp::from_secs(after.as_secs()).plus(*duration)),
            Self::Fields { sets, any_day, any_weekday } => next(sets, *any_day, *any_weekday, after, zone),
        }
    }
}

fn next(sets: &[u64; 5], any_day: bool, any_weekday: bool, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let has = |field: usize, value: i8| u32::try_from(value).is_ok_and(|value| sets[field] & (1 << value) != 0);
    // From the next whole minute on.
    let mut at = jiff::Timestamp::from_second((after.as_secs().div_euclid(60) + 1) * 60).ok()?;
    let last_year = zone.to_datetime(at).year() + HORIZON_YEARS;
    loop {
        let local = zone.to_datetime(at);
        if local.year() > last_year {
            return None;
        }
        let weekday = local.weekday().to_sunday_zero_offset();
        let (day, weekday) = (has(2, local.day()), has(4, weekday));
        let day = if any_day || any_weekday { day && weekday } else { day || weekday };
        let skip_to = if !has(3, local.month()) {
            Some(local.date().last_of_month().tomorrow().ok()?)
        } else if !day {
            Some(local.date().tomorrow().ok()?)
        } else {
            None
        };
        if let Some(date) = skip_to {
            let start = zone.to_ambiguous_timestamp(date.to_datetime(jiff::civil::Time::midnight())).compatible().ok()?;
            // A clock change at midnight must not lead back.
            at = start.max(at.checked_add(jiff::SignedDuration::from_secs(60)).ok()?);
            continue;
        }
        let minutes = if has(1, local.hour()) { 1 } else { 60 - i64::from(local.minute()) };
        if minutes == 1 && has(1, local.hour()) && has(0, local.minute()) {
            return Some(Timestamp::from_secs(at.as_second()));
        }
        at = at.checked_add(jiff::SignedDuration::from_secs(minutes * 60)).ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::zone;
    use super::*;

    fn ticks(schedule: &str, zone_name: &str, from: &str, count: usize) -> Vec<String> {
        let (table, zone) = (Timetable::parse(schedule).unwrap(), zone::load(zone_name).unwrap());
        let mut at = Timestamp::from_secs(from.parse::<jiff::Timestamp>().unwrap().as_second());
        let mut found = Vec::new();
        for _ in 0..count {
            let Some(next) = table.next(at, &zone) else { break };
            found.push(jiff::Timestamp::from_second(next.as_secs()).unwrap().to_string());
            at = next;
        }
        found
    }

    #[test]
    fn ticks_come_by_every_field() {
        assert_eq!(ticks("*/20 * * * *", "UTC", "2026-01-01T00:10:30Z", 3), ["2026-01-01T00:20:00Z", "2026-01-01T00:40:00Z", "2026-01-01T01:00:00Z"]);
        assert_eq!(ticks("0 0 * * *", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-02T00:00:00Z"]);
        assert_eq!(ticks("30 6-16/4 * * 1-5", "UTC", "2026-01-02T14:30:00Z", 2), ["2026-01-05T06:30:00Z", "2026-01-05T10:30:00Z"]);
        assert_eq!(ticks("0 0 29 feb *", "UTC", "2026-01-01T00:00:00Z", 1), ["2028-02-29T00:00:00Z"]);
        assert_eq!(ticks("0 0 13 * 5", "UTC", "2026-01-01T00:00:00Z", 2), ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"], "either day");
        assert!(ticks("59 23 31 2 *", "UTC", "2026-01-01T00:00:00Z", 1).is_empty());
        assert_eq!(ticks("@weekly", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-04T00:00:00Z"]);
        assert_eq!(ticks("@every 1h30m", "UTC", "2026-01-01T00:00:10Z", 1), ["2026-01-01T01:30:10Z"]);
    }

    #[test]
    fn clocks_that_change_skip_and_repeat() {
        assert_eq!(ticks("0 12 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 2), ["2026-03-28T11:00:00Z", "2026-03-29T10:00:00Z"]);
        assert_eq!(ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 1), ["2026-03-30T00:30:00Z"], "there is no 2:30 that day");
        assert_eq!(ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2), ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]);
    }
}
