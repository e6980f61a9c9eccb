//! Whether a text may be a name of some sort. Each check returns upstream's complaints, in its words and order; none means fine.

/// Limits of DNS names in bytes.
pub const DNS_LABEL_MAX: usize = 63;
pub const DNS_SUBDOMAIN_MAX: usize = 253;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// `must be no more than 63 bytes`
pub fn max_length_error(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn edges_and_middle(text: &str, edge: fn(u8) -> bool, middle: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => edge(*one),
        [first, inner @ .., last] => edge(*first) && edge(*last) && inner.iter().all(|b| middle(*b)),
    }
}

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn label_shape(text: &str) -> bool {
    edges_and_middle(text, lower_alnum, |b| lower_alnum(b) || b == b'-')
}

fn qualified_shape(text: &str) -> bool {
    edges_and_middle(text, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > DNS_LABEL_MAX {
        problems.push(max_length_error(DNS_LABEL_MAX));
    }
    if !label_shape(text) {
        // A dotted name gets the more telling complaint.
        let dotted = text.contains('.') && text.split('.').all(label_shape);
        problems.push(if dotted { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    problems
}

pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > DNS_LABEL_MAX {
        problems.push(max_length_error(DNS_LABEL_MAX));
    }
    if !label_shape(text) || !text.as_bytes()[0].is_ascii_lowercase() {
        problems.push(LABEL_1035.to_owned());
    }
    problems
}

pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > DNS_SUBDOMAIN_MAX {
        problems.push(max_length_error(DNS_SUBDOMAIN_MAX));
    }
    if !text.split('.').all(label_shape) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

/// `name` or `prefix/name`, as label keys, resources and finalizers are named.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(dns1123_subdomain(prefix).into_iter().map(|p| format!("prefix part {p}")));
            }
            name
        }
        _ => {
            problems.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                QUALIFIED
            ).replacen("a valid label key must", "a qualified name must", 1));
            return problems;
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > DNS_LABEL_MAX {
        problems.push(format!("name part {}", max_length_error(DNS_LABEL_MAX)));
    }
    if !qualified_shape(name) {
        problems.push(format!("name part {QUALIFIED}"));
    }
    problems
}

pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > DNS_LABEL_MAX {
        problems.push(max_length_error(DNS_LABEL_MAX));
    }
    if !text.is_empty() && !qualified_shape(text) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > DNS_SUBDOMAIN_MAX {
        problems.push(max_length_error(DNS_SUBDOMAIN_MAX));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        problems.push(CONFIG_KEY.to_owned());
    }
    match text {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        text if text.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

/// One segment of a URL path, as the RBAC kinds are named.
pub fn path_segment_name(text: &str) -> Vec<String> {
    match text {
        "." | ".." => return vec![format!("may not be '{text}'")],
        _ => {}
    }
    ['/', '%'].iter().filter(|c| text.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// `0` is refused.
pub fn port_number(port: i64) -> Vec<String> {
    if (1..=65_535).contains(&port) { Vec::new() } else { vec![range_error(1, 65_535)] }
}

/// The name of a container's port: an IANA service name.
pub fn port_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 15 {
        problems.push("must be no more than 15 characters".to_owned());
    }
    if !text.bytes().all(|b| lower_alnum(b) || b == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        problems.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        problems.push("must not begin or end with a hyphen".to_owned());
    }
    problems
}

/// `must be between 1 and 65535, inclusive`
pub fn range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}
