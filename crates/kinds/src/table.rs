//! What table columns share: the two columns that nearly every kind has, and ages as `kubectl` prints them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;
use wheelhouse_base::Timestamp;

use crate::kind::Column;

pub const NAME: Column =
    Column { name: "Name", kind: "string", format: "name", description: "The object's name, unique in its namespace for its kind.", priority: 0 };

pub const AGE: Column = text("Age", "Time since the object was created.");

/// The second and last column of kinds that have no columns of their own.
pub const CREATED_AT: Column = Column { name: "Created At", kind: "date", format: "", description: "When the object was created.", priority: 0 };

/// A column of text that always shows.
pub const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0 }
}

/// A column of text that shows with `-o wide`.
pub const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 1 }
}

/// A column of whole numbers.
pub const fn integer(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "integer", format: "", description, priority: 0 }
}

/// A column of booleans.
pub const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "boolean", format: "", description, priority: 0 }
}

/// The name cell.
pub fn name(metadata: &ObjectMeta) -> Value {
    metadata.name.as_deref().unwrap_or_default().into()
}

/// The first of a list, and how many there are beyond.
pub fn some_of(all: &[String], shown: usize) -> String {
    if all.len() <= shown {
        return all.join(",");
    }
    format!("{} + {} more...", all[..shown].join(","), all.len() - shown)
}

/// The age cell.
pub fn age(metadata: &ObjectMeta, now: Timestamp) -> Value {
    since(metadata.creation_timestamp.as_ref(), now).into()
}

/// The cell under [`CREATED_AT`].
pub fn created_at(metadata: &ObjectMeta) -> Value {
    metadata.creation_timestamp.as_ref().and_then(|time| serde_json::to_value(time).ok()).unwrap_or(Value::Null)
}

/// How long ago something was, as [`duration`] prints it; `<unknown>` when it never was.
pub fn since(time: Option<&Time>, now: Timestamp) -> String {
    time.map_or_else(|| "<unknown>".to_owned(), |time| duration(now.as_micros() - time.0.as_microsecond()))
}

/// A length of time in microseconds, shortened the more the longer it is: `5s`, `3m20s`, `5h`, `2d4h`, `400d`, `3y20d`.
pub fn duration(micros: i64) -> String {
    let seconds = micros / 1_000_000;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |large: i64, unit: &str, small: i64, part: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{part}") }
    };
    // Clocks differ a little, so that something may seem to lie up to two seconds in the future.
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(hours / 24, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{}d", hours / 24),
        63_072_000..252_288_000 => two(hours / 24 / 365, "y", (hours / 24) % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_lose_detail_as_they_grow() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (187_200, "2d4h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (96_336_000, "3y20d"),
            (252_288_000, "8y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(duration(seconds * 1_000_000), expected, "{seconds}s");
        }
    }
}
