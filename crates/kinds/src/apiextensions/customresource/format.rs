//! The `format` of a text. A format that upstream does not know constrains nothing.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wheelhouse_meta::duration::GoDuration;

/// Whether a text is of a format.
pub fn fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => GoDuration::parse(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(format, text),
        "mac" => is_mac(text),
        "hostname" => is_hostname(text),
        "email" => is_email(text),
        "uri" => is_uri(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Ok(length) = length.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && length <= 32) || (address.parse::<Ipv6Addr>().is_ok() && length <= 128)
}

/// Hexadecimal digits in five groups, whose dashes may be missing; versions 3, 4 and 5 say so in the third group.
fn is_uuid(format: &str, text: &str) -> bool {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let dashes = text.match_indices('-').all(|(at, _)| matches!(at, 8 | 13 | 18 | 23));
    if digits.len() != 32 || !dashes || !digits.iter().all(u8::is_ascii_hexdigit) {
        return false;
    }
    match format.strip_prefix("uuid").and_then(|version| version.bytes().next()) {
        Some(version) => digits[12] == version,
        None => true,
    }
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let groups: Vec<&str> = text.split(separator).collect();
    matches!(groups.len(), 6 | 8) && groups.iter().all(|group| group.len() == 2 && group.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 255 && text.split('.').all(label)
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    !local.is_empty() && !local.contains(char::is_whitespace) && is_hostname(domain)
}

/// An absolute reference: a scheme and something behind it, or an absolute path.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let first = scheme.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    first && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) && !rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_their_formats() {
        for (format, good, bad) in [
            ("date-time", "2024-01-01T00:00:00Z", "yesterday"),
            ("date", "2024-01-01", "2024-13-01"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "fd00::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("byte", "YQ==", "?"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("mac", "01:23:45:67:89:ab", "01:23"),
            ("email", "a@b.c", "a"),
            ("uri", "https://x.io/y", "no scheme"),
            ("duration", "1h5m", "soon"),
        ] {
            assert!(fits(format, good), "{format} {good}");
            assert!(!fits(format, bad), "{format} {bad}");
        }
        assert!(fits("odd", "anything"));
    }
}
