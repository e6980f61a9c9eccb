//! Names of drivers, pools, attributes.

use wheelhouse_meta::validation as names;

use crate::core::pod::validate::volumes::csi_driver_name;
use crate::prelude::*;

/// In bytes.
const MAX_POOL: usize = 253;
const MAX_IDENTIFIER: usize = 32;

/// The same rule as for storage drivers.
pub fn driver(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    csi_driver_name(name, path, errors);
}

pub fn label(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    validation::texts(names::dns1123_label(name), name, path, errors);
}

/// Domains with slashes between.
pub fn pool(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > MAX_POOL {
        errors.push(FieldError::too_long(path, MAX_POOL));
    }
    for part in name.split('/') {
        validation::texts(names::dns1123_subdomain(part), part, path, errors);
    }
}

/// `identifier`, or `domain/identifier`.
pub fn qualified(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let Some((domain, rest)) = name.split_once('/') else {
        identifier(name, path, errors);
        return;
    };
    if domain.is_empty() {
        errors.push(FieldError::invalid(path, "", "the domain must not be empty"));
    } else {
        driver(domain, path, errors);
    }
    if rest.is_empty() {
        errors.push(FieldError::invalid(path, "", "the name must not be empty"));
    } else {
        identifier(rest, path, errors);
    }
}

/// With a domain in any case.
pub fn fully_qualified(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    qualified(name, path, errors);
    if !name.contains('/') {
        errors.push(FieldError::invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash"));
    }
}

fn identifier(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.len() > MAX_IDENTIFIER {
        errors.push(FieldError::too_long(path, MAX_IDENTIFIER));
    }
    validation::texts(names::c_identifier(name), name, path, errors);
}

/// A UUID in lower case with dashes (RFC 4122).
pub fn uuid(value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let groups: Vec<&str> = value.split('-').collect();
    let is_hex = |group: &&str| group.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    if groups.iter().map(|g| g.len()).ne(GROUPS) || !groups.iter().all(is_hex) {
        let why = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        errors.push(FieldError::invalid(path, value, why));
    }
}
