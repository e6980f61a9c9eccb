//! The formats of names and other short strings. Each function returns what is wrong, in upstream's words; empty means valid.

/// A DNS label is at most 63 octets (RFC 1035).
pub const DNS_LABEL_MAX: usize = 63;
/// A DNS name is at most 253 characters in presentation form.
pub const DNS_SUBDOMAIN_MAX: usize = 253;
/// The name part of a label key, and a label value.
pub const LABEL_MAX: usize = 63;
/// IANA service names are at most 15 characters (RFC 6335).
const PORT_NAME_MAX: usize = 15;

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1123_SUBDOMAIN_UNDERSCORE: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_KEY_EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];

/// `WORDS (e.g. 'a',  or 'b', regex used for validation is 'R')`. The double space is upstream's.
pub fn regex_error(words: &str, regex: &str, examples: &[&str]) -> String {
    let mut text = String::from(words);
    text.push_str(" (");
    for (i, example) in examples.iter().enumerate() {
        text.push_str(if i == 0 { "e.g. '" } else { " or '" });
        text.push_str(example);
        text.push_str("', ");
    }
    text.push_str("regex used for validation is '");
    text.push_str(regex);
    text.push_str("')");
    text
}

/// The older of upstream's two texts for strings that are too long.
pub fn max_length_error(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn max_bytes_error(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

pub fn range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn ends_with(value: &[u8], first: fn(u8) -> bool, inner: fn(u8) -> bool, last: fn(u8) -> bool) -> bool {
    match value {
        [] => false,
        [only] => first(*only) && last(*only),
        [start, middle @ .., end] => first(*start) && middle.iter().all(|b| inner(*b)) && last(*end),
    }
}

fn is_dns1123_label(value: &str) -> bool {
    ends_with(value.as_bytes(), is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || b == b'-', is_lower_alphanumeric)
}

fn is_dns1123_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns1123_label)
}

fn is_label_name(value: &str) -> bool {
    ends_with(
        value.as_bytes(),
        |b| b.is_ascii_alphanumeric(),
        |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'),
        |b| b.is_ascii_alphanumeric(),
    )
}

/// A label as of RFC 1123: the names of namespaces, containers and services.
pub fn dns1123_label(value: &str) -> Vec<String> {
    const WORDS: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with \
                         an alphanumeric character";
    let mut errors = Vec::new();
    if value.len() > DNS_LABEL_MAX {
        errors.push(max_length_error(DNS_LABEL_MAX));
    }
    if !is_dns1123_label(value) {
        if is_dns1123_subdomain(value) {
            errors.push("must not contain dots".to_owned());
        } else {
            errors.push(regex_error(WORDS, DNS1123_LABEL, &["my-name", "123-abc"]));
        }
    }
    errors
}

const SUBDOMAIN_WORDS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
                               and end with an alphanumeric character";

/// A subdomain as of RFC 1123: the name of most objects.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        errors.push(max_length_error(DNS_SUBDOMAIN_MAX));
    }
    if !is_dns1123_subdomain(value) {
        errors.push(regex_error(SUBDOMAIN_WORDS, DNS1123_SUBDOMAIN, &["example.com"]));
    }
    errors
}

/// The same rule where upstream counts bytes in its text: prefixes of label keys and kinds with declarative validation.
pub fn dns1123_subdomain_bytes(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        errors.push(max_bytes_error(DNS_SUBDOMAIN_MAX));
    }
    if !is_dns1123_subdomain(value) {
        errors.push(regex_error(SUBDOMAIN_WORDS, DNS1123_SUBDOMAIN, &["example.com"]));
    }
    errors
}

/// A subdomain whose labels may hold underscores: a pod's DNS search paths.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    const WORDS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must \
                         start and end with an alphanumeric character";
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        ends_with(label.as_bytes(), is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || matches!(b, b'-' | b'_'), is_lower_alphanumeric)
    };
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        errors.push(max_length_error(DNS_SUBDOMAIN_MAX));
    }
    if !value.split('.').all(is_label) {
        errors.push(regex_error(WORDS, DNS1123_SUBDOMAIN_UNDERSCORE, &["example.com"]));
    }
    errors
}

/// `*.` and a subdomain: the host of an Ingress rule.
pub fn wildcard_dns1123_subdomain(value: &str) -> Vec<String> {
    const WORDS: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of \
                         lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        errors.push(max_length_error(DNS_SUBDOMAIN_MAX));
    }
    if !value.strip_prefix("*.").is_some_and(is_dns1123_subdomain) {
        errors.push(regex_error(WORDS, &format!("\\*\\.{DNS1123_SUBDOMAIN}"), &["*.example.com"]));
    }
    errors
}

/// A label as of RFC 1035, which starts with a letter.
pub fn dns1035_label(value: &str) -> Vec<String> {
    const WORDS: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
                         and end with an alphanumeric character";
    let mut errors = Vec::new();
    if value.len() > DNS_LABEL_MAX {
        errors.push(max_length_error(DNS_LABEL_MAX));
    }
    if !is_dns1123_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(regex_error(WORDS, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    errors
}

/// `[prefix/]name`: label and annotation keys, finalizers, taint keys, condition types.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match value.matches('/').count() {
        0 => value,
        1 => {
            let (prefix, name) = value.split_once('/').unwrap_or(("", value));
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(dns1123_subdomain_bytes(prefix).into_iter().map(|e| format!("prefix part {e}")));
            }
            name
        }
        _ => {
            let text = regex_error(LABEL_KEY_WORDS, LABEL_KEY, &LABEL_KEY_EXAMPLES);
            errors.push(format!("a valid label key {text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"));
            return errors;
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", max_bytes_error(LABEL_MAX)));
    }
    if !is_label_name(name) {
        errors.push(format!("name part {}", regex_error(LABEL_KEY_WORDS, LABEL_KEY, &LABEL_KEY_EXAMPLES)));
    }
    errors
}

/// The value of a label; may be empty.
pub fn label_value(value: &str) -> Vec<String> {
    const WORDS: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
                         end with an alphanumeric character";
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(max_bytes_error(LABEL_MAX));
    }
    if !value.is_empty() && !is_label_name(value) {
        errors.push(regex_error(WORDS, &format!("({LABEL_KEY})?"), &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// A C identifier.
pub fn c_identifier(value: &str) -> Vec<String> {
    const WORDS: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'";
    let mut bytes = value.bytes();
    let valid = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_') && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if valid { Vec::new() } else { vec![regex_error(WORDS, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])] }
}

/// The strict rule for environment variable names, still used where objects predate the relaxed one.
pub fn env_var_name(value: &str) -> Vec<String> {
    const WORDS: &str = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not \
                         start with a digit";
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let mut errors = Vec::new();
    let starts_well = value.bytes().next().is_some_and(|b| inner(b) && !b.is_ascii_digit());
    if !starts_well || !value.bytes().all(inner) {
        errors.push(regex_error(WORDS, "[-._a-zA-Z][-._a-zA-Z0-9]*", &["my.env-name", "MY_ENV.NAME", "MyEnvName1"]));
    }
    errors.extend(parent_directory(value));
    errors
}

/// The relaxed rule, general since 1.34 (KEP-4369): any printable ASCII but `=`.
pub fn relaxed_env_var_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if !value.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        errors.push("a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned());
    }
    errors
}

/// The keys of a ConfigMap's or Secret's data.
pub fn config_map_key(value: &str) -> Vec<String> {
    const WORDS: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        errors.push(max_length_error(DNS_SUBDOMAIN_MAX));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        errors.push(regex_error(WORDS, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    errors.extend(parent_directory(value));
    errors
}

/// Names that would climb out of a mounted directory.
fn parent_directory(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// Names that may be anything that fits into a path: RBAC objects, custom resources' versions.
pub fn path_segment_name(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    path_segment_prefix(value)
}

/// As [`path_segment_name`] for a `generateName`, whose suffix can still mend it.
pub fn path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"].iter().filter(|part| value.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// A port's name (RFC 6335).
pub fn port_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > PORT_NAME_MAX {
        errors.push(max_length_error(PORT_NAME_MAX));
    }
    if value.is_empty() || !value.bytes().all(|b| is_lower_alphanumeric(b) || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

pub fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) { Vec::new() } else { vec![range_error(low, high)] }
}

/// User and group ids are 31 bits wide, as in the kernel's interface.
pub fn user_or_group_id(id: i64) -> Vec<String> {
    in_range(id, 0, i64::from(i32::MAX))
}

/// `50%`
pub fn percent(value: &str) -> Vec<String> {
    const WORDS: &str = "a valid percent string must be a numeric string followed by an ending '%'";
    let digits = value.strip_suffix('%').unwrap_or("");
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(WORDS, "[0-9]+%", &["1%", "93%"])]
}

pub fn http_header_name(value: &str) -> Vec<String> {
    const WORDS: &str = "a valid HTTP header must consist of alphanumeric characters or '-'";
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![regex_error(WORDS, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// A `generateName` as upstream checks it: its trailing hyphen, and the character before, give way to one letter, because the suffix
/// to come makes a final hyphen harmless.
pub fn mask_trailing_dash(name: &str) -> String {
    let Some(rest) = name.strip_suffix('-').filter(|rest| !rest.is_empty()) else {
        return name.to_owned();
    };
    let kept = if rest.ends_with(|c: char| c.is_ascii()) { &rest[..rest.len() - 1] } else { rest };
    format!("{kept}a")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_accepted_and_refused() {
        for good in ["a", "a-b", "0", "a.b-c.d"] {
            assert!(dns1123_subdomain(good).is_empty(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a..b", ".a", "a_b"] {
            assert!(!dns1123_subdomain(bad).is_empty(), "{bad}");
        }
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert!(dns1035_label("0a")[0].starts_with("a DNS-1035 label must consist"));
        assert!(dns1123_subdomain_with_underscore("_srv.a_b.c").is_empty());
        assert!(wildcard_dns1123_subdomain("*.a.b").is_empty());
        assert!(!wildcard_dns1123_subdomain("*").is_empty());
    }

    #[test]
    fn label_keys_and_values() {
        assert!(qualified_name("example.com/My_Name.1").is_empty());
        assert_eq!(qualified_name("/x"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("a/")[0], "name part must be non-empty");
        assert_eq!(qualified_name(&"x".repeat(64)), ["name part must be no more than 63 bytes"]);
        assert_eq!(label_value(&"x".repeat(64)), ["must be no more than 63 bytes"]);
        assert!(label_value("").is_empty());
        assert!(!label_value("bad value!").is_empty());
    }

    #[test]
    fn keys_and_variables() {
        assert!(config_map_key("a..b").is_empty());
        assert_eq!(config_map_key(".."), ["must not be '..'"]);
        assert_eq!(config_map_key("..a"), ["must not start with '..'"]);
        assert!(relaxed_env_var_name("1 a b!").is_empty());
        assert!(!relaxed_env_var_name("a=b").is_empty());
        assert!(!env_var_name("1a").is_empty());
        assert!(c_identifier("_a1").is_empty() && !c_identifier("1").is_empty());
        assert_eq!(port_name("bad port name that is long").len(), 2);
        assert!(percent("50%").is_empty() && !percent("%").is_empty());
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
        assert_eq!(path_segment_name("a/b%c"), ["may not contain '/'", "may not contain '%'"]);
    }
}
