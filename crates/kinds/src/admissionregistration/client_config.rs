//! How a webhook is reached: a URL, or a Service of the cluster.

use wheelhouse_meta::validation as names;

use crate::prelude::*;

const FORM: &str = "; desired format: https://host[/path]";

/// `https://host[:port][/path]` and no more.
pub fn url(url: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(path, scheme, why));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() {
        errors.push(FieldError::invalid(path, host, format!("host must be specified{FORM}")));
    }
    if let Some(user) = user {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
}

/// A Service, with the port and the path of the webhook on it. `http_path` is absent where the root is meant.
pub fn service(name: &str, namespace: &str, http_path: Option<&str>, port: i32, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), "service name is required"));
    }
    if namespace.is_empty() {
        errors.push(FieldError::required(&path.child("namespace"), "service namespace is required"));
    }
    let problems = names::port_number(i64::from(port));
    if !problems.is_empty() {
        errors.push(FieldError::invalid(&path.child("port"), port, format!("port is not valid: {}", problems.join(","))));
    }
    if let Some(http_path) = http_path {
        steps(http_path, &path.child("path"), errors);
    }
}

/// Each step of a webhook's path is like a domain.
fn steps(http_path: &str, path: &Path<'_>, errors: &mut ErrorList) {
    match http_path {
        "" | "/" => return,
        "//" => {
            errors.push(FieldError::invalid(path, http_path, "segment[0] may not be empty"));
            return;
        }
        _ => {}
    }
    if !http_path.starts_with('/') {
        errors.push(FieldError::invalid(path, http_path, "must start with a '/'"));
    }
    let inner = &http_path[1..];
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    for (at, step) in inner.split('/').enumerate() {
        if step.is_empty() {
            errors.push(FieldError::invalid(path, http_path, format!("segment[{at}] may not be empty")));
            continue;
        }
        for problem in names::dns1123_subdomain(step) {
            errors.push(FieldError::invalid(path, http_path, format!("segment[{at}]: {problem}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_an_https_host_and_a_path() {
        let fault = |text: &str| {
            let mut errors = ErrorList::new();
            url(text, &Path::new("url"), &mut errors);
            errors.aggregate()
        };
        assert_eq!(fault("https://x.example.com:8443/p"), "");
        assert!(fault("http://x.example.com").contains("only allowed URL scheme"));
        assert!(fault("https:///p").contains("host must be specified"));
        assert!(fault("https://a:b@x/p").contains("\"a:b\": user information"));
        assert!(fault("https://x/p?q=1#f").contains("\"f\": fragments"));
    }

    #[test]
    fn every_step_of_a_path_is_looked_at() {
        let mut errors = ErrorList::new();
        service("s", "n", Some("/a//B"), 443, &Path::new("service"), &mut errors);
        assert_eq!(errors.len(), 2, "{}", errors.aggregate());
        assert!(errors.aggregate().starts_with("[service.path: Invalid value: \"/a//B\": segment[1] may not be empty, "));
    }
}
