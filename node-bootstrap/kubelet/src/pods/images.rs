//! Images: whether to pull, with which credentials, and one pull at a time for the same image.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Container, Secret};
use serde::Deserialize;

use crate::cri::api::AuthConfig;

/// What to do about an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Pull,
    Use,
    /// It is not here and may not be fetched.
    Never,
}

pub(super) fn wanted(policy: &str, present: bool) -> Wanted {
    match (policy, present) {
        ("Always", _) => Wanted::Pull,
        (_, true) => Wanted::Use,
        ("Never", false) => Wanted::Never,
        _ => Wanted::Pull,
    }
}

/// The container's policy; without one `Always` for `:latest`, as the API's default.
pub(super) fn policy(container: &Container) -> &str {
    let image = container.image.as_deref().unwrap_or_default();
    let latest = tag(image).is_none_or(|tag| tag == "latest") && !image.contains('@');
    container.image_pull_policy.as_deref().filter(|policy| !policy.is_empty()).unwrap_or(if latest { "Always" } else { "IfNotPresent" })
}

fn tag(image: &str) -> Option<&str> {
    image.rsplit('/').next().and_then(|last| last.split('@').next()).and_then(|last| last.split_once(':')).map(|(_, tag)| tag)
}

/// Whether a name can be an image's: upstream answers `InvalidImageName` without asking the runtime.
pub(super) fn is_valid(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let name = match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => {
            if tag.is_empty() || tag.len() > 128 || !tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)) {
                return false;
            }
            before
        }
        _ => name,
    };
    let parts: Vec<&str> = name.split('/').collect();
    let path = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b));
    let host = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
    let (first, rest) = parts.split_first().map_or(("", &[][..]), |(first, rest)| (*first, rest));
    let good_first = if rest.is_empty() { path(first) } else { !first.is_empty() && host(first) || path(first) };
    good_first && rest.iter().all(|part| path(part)) && digest.is_none_or(|digest| digest.contains(':'))
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: std::collections::BTreeMap<String, Login>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Login {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
    registrytoken: String,
}

/// The credentials that these Secrets hold for the registry of `image`, the most specific first.
pub(super) fn credentials(image: &str, secrets: &[Secret]) -> Vec<AuthConfig> {
    let mut found: Vec<(usize, AuthConfig)> = Vec::new();
    for secret in secrets {
        let data = secret.data.as_ref();
        let whole = data.and_then(|data| data.get(".dockerconfigjson")).and_then(|bytes| serde_json::from_slice::<DockerConfig>(&bytes.0).ok());
        let old = || data.and_then(|data| data.get(".dockercfg")).and_then(|bytes| serde_json::from_slice(&bytes.0).ok());
        let auths = whole.map(|config| config.auths).or_else(old).unwrap_or_default();
        for (server, login) in auths {
            let pattern = server.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
            let pattern = pattern.strip_suffix("/v1").or_else(|| pattern.strip_suffix("/v2")).unwrap_or(pattern);
            if covers(pattern, &full(image)) {
                found.push((pattern.len(), auth(login, pattern)));
            }
        }
    }
    found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    found.into_iter().map(|(_, auth)| auth).collect()
}

/// With its registry, as the runtime resolves short names.
fn full(image: &str) -> String {
    let first = image.split('/').next().unwrap_or_default();
    let has_host = image.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    if has_host { image.to_owned() } else { format!("docker.io/{image}") }
}

/// A pattern is a host, maybe with leading `*.`, and a path prefix. Docker's own registry has an older name.
fn covers(pattern: &str, image: &str) -> bool {
    let pattern = pattern.replace("index.docker.io", "docker.io");
    let (pattern_host, pattern_path) = pattern.split_once('/').unwrap_or((&pattern, ""));
    let (host, path) = image.split_once('/').unwrap_or((image, ""));
    let same_host = match pattern_host.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|label| label.ends_with('.') && label.matches('.').count() == 1),
        None => host == pattern_host,
    };
    same_host && (pattern_path.is_empty() || path.starts_with(pattern_path))
}

fn auth(login: Login, server: &str) -> AuthConfig {
    let (mut username, mut password) = (login.username, login.password);
    let both = STANDARD.decode(&login.auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some((name, secret)) = both.as_deref().and_then(|text| text.split_once(':')) {
        (username, password) = (name.to_owned(), secret.to_owned());
    }
    AuthConfig {
        username,
        password,
        auth: String::new(),
        server_address: server.to_owned(),
        identity_token: login.identitytoken,
        registry_token: login.registrytoken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn policies_follow_the_tag() {
        let of = |image: &str, policy: &str| {
            let container = Container { image: Some(image.into()), image_pull_policy: Some(policy.into()), ..Container::default() };
            super::policy(&container).to_owned()
        };
        assert_eq!((of("a", ""), of("a:1", ""), of("h:5000/a", ""), of("a@sha256:0", "")).0, "Always");
        assert_eq!(of("h:5000/a", ""), "Always");
        assert_eq!(of("a:1", ""), "IfNotPresent");
        assert_eq!(of("a@sha256:0", ""), "IfNotPresent");
        assert_eq!(of("a", "Never"), "Never");
        assert_eq!((wanted("Never", false), wanted("IfNotPresent", true), wanted("Always", true)), (Wanted::Never, Wanted::Use, Wanted::Pull));
    }

    #[test]
    fn names_that_cannot_be_images_are_known() {
        for good in ["a", "a:1", "h.x:5000/a/b:v1.2", "docker.io/library/nginx@sha256:00", "localhost/x"] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", "A", "a:", "a b", "h/A:1", "a//b", "a:t/x y"] {
            assert!(!is_valid(bad), "{bad}");
        }
    }

    #[test]
    fn the_most_specific_login_comes_first() {
        let config =
            json!({"auths": {"h.example": {"auth": STANDARD.encode("u:p")}, "h.example/team": {"username": "t", "password": "q"}, "other": {}}});
        let data = json!({".dockerconfigjson": STANDARD.encode(config.to_string())});
        let secret: Secret = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": data})).unwrap();
        let users = |image: &str| credentials(image, std::slice::from_ref(&secret)).into_iter().map(|auth| auth.username).collect::<Vec<_>>();
        assert_eq!(users("h.example/team/app:1"), ["t", "u"]);
        assert_eq!(users("h.example/app"), ["u"]);
        assert!(users("nginx").is_empty());
        assert!(covers("*.example", "a.example/x") && !covers("*.example", "a.b.example/x"));
        assert!(covers("index.docker.io", &full("nginx")));
    }
}
