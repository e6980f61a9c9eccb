//! IP addresses and CIDR prefixes.
//!
//! Old fields accept what Go accepted before 1.17: leading zeros in IPv4 octets and IPv4-mapped IPv6. New fields demand the canonical
//! form (KEP-4858).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{ErrorList, FieldError, Path};
use crate::gotext::quote;

/// Reads an address as the old parser did: octets may have leading zeros, which do not mean octal.
pub fn parse_ip(value: &str) -> Option<IpAddr> {
    if value.contains(':') {
        return value.parse::<Ipv6Addr>().ok().map(|v6| match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(v6),
        });
    }
    let mut octets = [0u8; 4];
    let mut parts = value.split('.');
    for octet in &mut octets {
        *octet = parse_decimal(parts.next()?)?;
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

fn parse_decimal(text: &str) -> Option<u8> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.trim_start_matches('0').parse().ok().or_else(|| text.bytes().all(|b| b == b'0').then_some(0))
}

/// Reads a prefix as the old parser did. The address comes back masked, with the prefix length.
pub fn parse_cidr(value: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = value.split_once('/')?;
    if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length = parse_decimal(length)?;
    let is_six = address.contains(':');
    if length > if is_six { 128 } else { 32 } {
        return None;
    }
    if is_six {
        let bits = u128::from(address.parse::<Ipv6Addr>().ok()?);
        let mask = if length == 0 { 0 } else { u128::MAX << (128 - u32::from(length)) };
        return Some((IpAddr::V6(Ipv6Addr::from(bits & mask)), length));
    }
    let IpAddr::V4(v4) = parse_ip(address)? else { return None };
    let mask = if length == 0 { 0 } else { u32::MAX << (32 - u32::from(length)) };
    Some((IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask)), length))
}

const BAD_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// The lenient rule of fields older than 1.33.
pub fn ip(value: &str, path: &Path<'_>) -> ErrorList {
    match parse_ip(value) {
        Some(_) => ErrorList::new(),
        None => vec![FieldError::invalid(path, value, BAD_IP)].into(),
    }
}

/// The strict rule: canonical form only.
pub fn ip_strict(value: &str, path: &Path<'_>) -> ErrorList {
    let Some(address) = parse_ip(value) else {
        return vec![FieldError::invalid(path, value, BAD_IP)].into();
    };
    match value.parse::<IpAddr>() {
        Err(_) => return vec![FieldError::invalid(path, value, "must not have leading 0s")].into(),
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
            return vec![FieldError::invalid(path, value, "must not be an IPv4-mapped IPv6 address")].into();
        }
        Ok(_) => {}
    }
    canonical(value, address.to_string(), path)
}

/// The lenient rule of fields older than 1.33.
pub fn cidr(value: &str, path: &Path<'_>) -> ErrorList {
    match parse_cidr(value) {
        Some(_) => ErrorList::new(),
        None => vec![FieldError::invalid(path, value, BAD_CIDR)].into(),
    }
}

/// The strict rule: canonical form, no bits beyond the prefix length.
pub fn cidr_strict(value: &str, path: &Path<'_>) -> ErrorList {
    let Some((network, length)) = parse_cidr(value) else {
        return vec![FieldError::invalid(path, value, BAD_CIDR)].into();
    };
    let (address, length_text) = value.split_once('/').unwrap_or((value, ""));
    let has_leading_zero = length_text.len() > 1 && length_text.starts_with('0');
    let problem = match address.parse::<IpAddr>() {
        Err(_) => Some("must not have leading 0s in IP or prefix length"),
        Ok(_) if has_leading_zero => Some("must not have leading 0s in IP or prefix length"),
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => Some("must not have an IPv4-mapped IPv6 address"),
        Ok(parsed) if parsed != network => Some("must not have bits set beyond the prefix length"),
        Ok(_) => None,
    };
    match problem {
        Some(problem) => vec![FieldError::invalid(path, value, problem)].into(),
        None => canonical(value, format!("{network}/{length}"), path),
    }
}

fn canonical(value: &str, canonical: String, path: &Path<'_>) -> ErrorList {
    if value == canonical {
        return ErrorList::new();
    }
    vec![FieldError::invalid(path, value, format!("must be in canonical form ({})", quote(&canonical)))].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(errors: &ErrorList) -> String {
        errors.iter().map(|e| e.detail.clone()).collect()
    }

    #[test]
    fn addresses() {
        let path = Path::new("ip");
        assert!(ip("010.1.1.1", &path).is_empty());
        assert_eq!(body(&ip_strict("010.1.1.1", &path)), "must not have leading 0s");
        assert_eq!(body(&ip_strict("::ffff:1.2.3.4", &path)), "must not be an IPv4-mapped IPv6 address");
        assert_eq!(body(&ip_strict("2001:DB8::1", &path)), "must be in canonical form (\"2001:db8::1\")");
        assert_eq!(body(&ip("notanip", &path)), BAD_IP);
        assert_eq!(body(&ip("1.2.3.256", &path)), BAD_IP);
        assert!(ip_strict("10.0.0.1", &path).is_empty());
    }

    #[test]
    fn prefixes() {
        let path = Path::new("cidr");
        assert!(cidr("10.9.8.7/24", &path).is_empty());
        assert_eq!(body(&cidr_strict("10.9.8.7/24", &path)), "must not have bits set beyond the prefix length");
        assert!(cidr_strict("10.9.8.0/24", &path).is_empty());
        assert!(cidr_strict("0.0.0.0/0", &path).is_empty());
        assert!(cidr_strict("2001:db8::/64", &path).is_empty());
        assert_eq!(body(&cidr("10.0.0.0/33", &path)), BAD_CIDR);
        assert_eq!(parse_cidr("2001:db8:1:2:3::/64"), Some(("2001:db8:1:2::".parse().unwrap(), 64)));
    }
}
