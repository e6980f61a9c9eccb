//! Bootstrap tokens: `<id>.<secret>`, held in the Secret `kube-system/bootstrap-token-<id>`.
//!
//! Whatever is wrong with a token, the caller learns only that it is not valid.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use wheelhouse_base::Timestamp;

use crate::lookups::Lookups;
use crate::time;
use crate::user::User;

const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const DEFAULT_GROUP: &str = "system:bootstrappers";
const EXTRA_GROUP_PREFIX: &str = "system:bootstrappers:";

/// The longest tail of an extra group's name.
const MAX_GROUP_TAIL: usize = 256;

/// The user of a valid token, with all of its groups but `system:authenticated`.
pub fn authenticate(token: &str, lookups: &dyn Lookups, now: Timestamp) -> Option<User> {
    let (id, secret) = split(token)?;
    let object = lookups.get("", "secrets", "kube-system", &format!("bootstrap-token-{id}"))?;
    let field = |key: &str| data(&object, key).unwrap_or_default();
    let deleted = !object["metadata"]["deletionTimestamp"].is_null();
    if deleted
        || object["type"] != SECRET_TYPE
        || !equal_in_constant_time(field("token-secret").as_bytes(), secret.as_bytes())
        || field("token-id") != id
    {
        return None;
    }
    let expiration = field("expiration");
    if !expiration.is_empty() && time::parse(&expiration).is_none_or(|expires| expires < now) {
        return None;
    }
    if field("usage-bootstrap-authentication") != "true" {
        return None;
    }
    Some(User { name: format!("system:bootstrap:{id}"), groups: groups(&field("auth-extra-groups"))?, ..User::default() })
}

/// Id and secret of a token of the right form.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

fn data(secret: &Value, key: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(secret["data"][key].as_str()?).ok()?).ok()
}

fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(a, b).is_ok()
}

/// Sorted, without repeats; `None` if one of them may not be given away by a token.
fn groups(extra: &str) -> Option<Vec<String>> {
    let mut groups = vec![DEFAULT_GROUP.to_owned()];
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        let tail = group.strip_prefix(EXTRA_GROUP_PREFIX)?;
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b':' | b'-');
        let last = tail.bytes().last()?;
        if tail.len() > MAX_GROUP_TAIL || !tail.bytes().all(inner) || !(last.is_ascii_lowercase() || last.is_ascii_digit()) {
            return None;
        }
        groups.push(group.to_owned());
    }
    groups.sort();
    groups.dedup();
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookups::MemoryLookups;
    use serde_json::json;

    fn secret(edit: impl FnOnce(&mut Value)) -> MemoryLookups {
        let text = |s: &str| STANDARD.encode(s);
        let mut object = json!({
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
            "type": SECRET_TYPE,
            "data": {
                "token-id": text("abcdef"), "token-secret": text("0123456789abcdef"), "usage-bootstrap-authentication": text("true"),
                "expiration": text("2026-01-02T00:00:00Z"), "auth-extra-groups": text("system:bootstrappers:b,system:bootstrappers:a"),
            },
        });
        edit(&mut object);
        MemoryLookups::default().with("", "secrets", object)
    }

    const TOKEN: &str = "abcdef.0123456789abcdef";

    fn now() -> Timestamp {
        time::parse("2026-01-01T00:00:00Z").unwrap()
    }

    #[test]
    fn a_valid_token_names_its_user_and_groups() {
        let user = authenticate(TOKEN, &secret(|_| ()), now()).unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(user.groups, ["system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b"]);
    }

    #[test]
    fn anything_wrong_is_refused() {
        let text = |s: &str| json!(STANDARD.encode(s));
        let edits: [fn(&mut Value); 3] =
            [|o| o["type"] = json!("Opaque"), |o| o["data"] = json!({}), |o| o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")];
        for edit in edits {
            assert_eq!(authenticate(TOKEN, &secret(edit), now()), None);
        }
        for (key, value) in [
            ("token-secret", "0123456789abcdeg"),
            ("token-id", "abcdeg"),
            ("usage-bootstrap-authentication", "false"),
            ("expiration", "2025-12-31T00:00:00Z"),
            ("expiration", "never"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:"),
        ] {
            assert_eq!(authenticate(TOKEN, &secret(|o| o["data"][key] = text(value)), now()), None, "{key}={value}");
        }
        for token in ["abcdef", "abcdef.0123", "ABCDEF.0123456789abcdef", "abcdeh.0123456789abcdef"] {
            assert_eq!(authenticate(token, &secret(|_| ()), now()), None, "{token}");
        }
    }
}
