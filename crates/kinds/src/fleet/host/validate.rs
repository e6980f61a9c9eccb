//! What a Host must say of itself.

use wheelhouse_base::HostName;
use wheelhouse_meta::field::{FieldError, Path};

use super::Host;
use crate::kind::Verdict;

pub(super) fn host(host: &Host) -> Verdict {
    let mut verdict = Verdict::default();
    if let Err(error) = host.name().parse::<HostName>() {
        let metadata = Path::new("metadata");
        verdict.errors.push(FieldError::invalid(&metadata.child("name"), host.name(), error.to_string()));
    }
    let spec = Path::new("spec");
    let addresses = spec.child("addresses");
    let given = &host.spec.addresses;
    for (name, value, required) in [("clients", &given.clients, true), ("peers", &given.peers, true), ("metrics", &given.metrics, false)] {
        let path = addresses.child(name);
        if value.is_empty() {
            if required {
                verdict.errors.push(FieldError::required(&path, ""));
            }
        } else if !is_address(value) {
            verdict.errors.push(FieldError::invalid(&path, value, "must be of the form host:port"));
        }
    }
    verdict
}

/// A name or IP address and a port that is not 0; IPv6 addresses stand in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let host_fits = !host.is_empty() && (bracketed || !host.contains(':')) && !host.contains(char::is_whitespace);
    host_fits && port.parse::<u16>().is_ok_and(|p| p > 0)
}

#[cfg(test)]
mod tests {
    use super::super::{HostAddresses, HostSpec};
    use super::*;
    use crate::fleet::Object;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["10.0.0.1:6444", "a.example:1", "[::1]:6444"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["", "a", ":1", "a:0", "a:65536", "::1:6444", "a b:1"] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn every_error_is_reported() {
        let spec = HostSpec { addresses: HostAddresses { metrics: "x".into(), ..HostAddresses::default() }, ..HostSpec::default() };
        let verdict = host(&Object::new("Host", "", "Host_A", spec));
        let fields: Vec<&str> = verdict.errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["metadata.name", "spec.addresses.clients", "spec.addresses.peers", "spec.addresses.metrics"]);
    }
}
