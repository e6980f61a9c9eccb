//! Times as the API writes them, and Go's complaints about those it cannot read.

use std::fmt;

/// A point in time: seconds since 1970 UTC and the fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiTime {
    pub seconds: i64,
    pub nanos: u32,
}

/// Which of the two layouts a field uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `2006-01-02T15:04:05Z07:00`; a fraction is read and dropped when written.
    Seconds,
    /// `2006-01-02T15:04:05.000000Z07:00`: exactly six digits.
    Micros,
}

/// Go's `time.ParseError` text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TimeError(String);

impl Layout {
    fn text(self) -> &'static str {
        match self {
            Layout::Seconds => "2006-01-02T15:04:05Z07:00",
            Layout::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

impl ApiTime {
    /// Year 0 to 9999, as RFC 3339 allows; offsets are folded into UTC.
    pub fn parse(text: &str, layout: Layout) -> Result<ApiTime, TimeError> {
        Reader { whole: text, rest: text, layout }.timestamp()
    }

    /// UTC, with `Z`.
    pub fn format(&self, layout: Layout) -> String {
        let days = self.seconds.div_euclid(86_400);
        let clock = self.seconds.rem_euclid(86_400);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
        match layout {
            Layout::Seconds => format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"),
            Layout::Micros => {
                let micros = self.nanos / 1000;
                format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
            }
        }
    }
}

struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
    layout: Layout,
}

impl Reader<'_> {
    fn timestamp(mut self) -> Result<ApiTime, TimeError> {
        let year = self.number(4, "2006")?;
        self.literal("-")?;
        let month = self.ranged(2, "01", 1..=12, "month")?;
        self.literal("-")?;
        let day = self.number(2, "02")?;
        self.literal("T")?;
        let hour = self.ranged(2, "15", 0..=23, "hour")?;
        self.literal(":")?;
        let minute = self.ranged(2, "04", 0..=59, "minute")?;
        self.literal(":")?;
        let second = self.ranged(2, "05", 0..=59, "second")?;
        let nanos = self.fraction()?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(TimeError(format!("parsing time {:?}: extra text: {:?}", self.whole, self.rest)));
        }
        if day < 1 || day > days_in_month(year, month) {
            return Err(self.out_of_range("day"));
        }
        let days = days_from_civil(year, month, day);
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
        Ok(ApiTime { seconds, nanos })
    }

    fn bad(&self, element: &str) -> TimeError {
        TimeError(format!("parsing time {:?} as {:?}: cannot parse {:?} as {element:?}", self.whole, self.layout.text(), self.rest))
    }

    fn out_of_range(&self, what: &str) -> TimeError {
        TimeError(format!("parsing time {:?}: {what} out of range", self.whole))
    }

    fn number(&mut self, width: usize, element: &str) -> Result<i64, TimeError> {
        let digits = self.rest.bytes().take(width).take_while(u8::is_ascii_digit).count();
        if digits != width {
            return Err(self.bad(element));
        }
        let (number, rest) = self.rest.split_at(width);
        self.rest = rest;
        Ok(number.bytes().fold(0, |n, b| n * 10 + i64::from(b - b'0')))
    }

    fn ranged(&mut self, width: usize, element: &str, range: std::ops::RangeInclusive<i64>, what: &str) -> Result<i64, TimeError> {
        let number = self.number(width, element)?;
        if range.contains(&number) { Ok(number) } else { Err(self.out_of_range(what)) }
    }

    fn literal(&mut self, text: &str) -> Result<(), TimeError> {
        self.rest = self.rest.strip_prefix(text).ok_or_else(|| self.bad(text))?;
        Ok(())
    }

    fn fraction(&mut self) -> Result<u32, TimeError> {
        let digits = match self.rest.as_bytes() {
            [b'.' | b',', rest @ ..] => rest.iter().take_while(|b| b.is_ascii_digit()).count(),
            _ => 0,
        };
        let width = match self.layout {
            Layout::Micros if digits < 6 || !self.rest.starts_with('.') => return Err(self.bad(".000000")),
            Layout::Micros => 6,
            Layout::Seconds if digits == 0 => return Ok(0),
            Layout::Seconds => digits,
        };
        let kept = &self.rest[1..=width.min(9)];
        let nanos = kept.bytes().fold(0u32, |n, b| n * 10 + u32::from(b - b'0')) * 10u32.pow(9 - kept.len() as u32);
        self.rest = &self.rest[1 + width..];
        Ok(nanos)
    }

    /// Seconds east of UTC.
    fn offset(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..] = *self.rest.as_bytes() else {
            return Err(self.bad("Z07:00"));
        };
        if ![h1, h2, m1, m2].iter().all(u8::is_ascii_digit) {
            return Err(self.bad("Z07:00"));
        }
        let pair = |a: u8, b: u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
        let (hours, minutes) = (pair(h1, h2), pair(m1, m2));
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        self.rest = &self.rest[6..];
        let seconds = hours * 3600 + minutes * 60;
        Ok(if sign == b'-' { -seconds } else { seconds })
    }
}

impl fmt::Display for ApiTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format(Layout::Seconds))
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar; years start in March here, so that the leap day
/// comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Result<String, String> {
        ApiTime::parse(text, Layout::Seconds).map(|t| t.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn any_offset_and_fraction_is_read_and_utc_is_written() {
        assert_eq!(seconds("2024-02-29T12:00:00Z").as_deref(), Ok("2024-02-29T12:00:00Z"));
        assert_eq!(seconds("2024-01-01T01:30:00.987654321+02:00").as_deref(), Ok("2023-12-31T23:30:00Z"));
        assert_eq!(seconds("1969-12-31T23:59:59-00:30").as_deref(), Ok("1970-01-01T00:29:59Z"));
        assert_eq!(seconds("0001-01-01T00:00:00Z").as_deref(), Ok("0001-01-01T00:00:00Z"));
        let micro = ApiTime::parse("2024-01-01T00:00:01.123456Z", Layout::Micros).unwrap();
        assert_eq!((micro.seconds, micro.nanos), (1_704_067_201, 123_456_000));
        assert_eq!(micro.format(Layout::Micros), "2024-01-01T00:00:01.123456Z");
    }

    #[test]
    fn complaints_are_gos() {
        let micro = ApiTime::parse("2024-01-01", Layout::Micros).unwrap_err().to_string();
        assert_eq!(micro, r#"parsing time "2024-01-01" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "" as "T""#);
        assert_eq!(
            seconds("yesterday").unwrap_err(),
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#
        );
        assert_eq!(seconds("2024-13-01T00:00:00Z").unwrap_err(), r#"parsing time "2024-13-01T00:00:00Z": month out of range"#);
        assert_eq!(seconds("2023-02-29T00:00:00Z").unwrap_err(), r#"parsing time "2023-02-29T00:00:00Z": day out of range"#);
        assert_eq!(seconds("2024-01-01T00:00:00Zulu").unwrap_err(), r#"parsing time "2024-01-01T00:00:00Zulu": extra text: "ulu""#);
        assert!(seconds("2024-01-01T00:00:00").unwrap_err().ends_with(r#"cannot parse "" as "Z07:00""#));
        assert!(ApiTime::parse("2024-01-01T00:00:00Z", Layout::Micros).is_err());
        assert!(seconds("2024-01-01T00:00:é0Z").is_err(), "no panic inside a character");
    }

    #[test]
    fn every_day_of_four_centuries_round_trips() {
        for days in -200_000..200_000 {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }
}
