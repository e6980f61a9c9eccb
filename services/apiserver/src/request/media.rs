//! Media types: what the client accepts, what it sent, and upstream's two kinds of refusal.
//!
//! Two layers look at `Accept`. The router compares bare types with what a route produces (no wildcards below a type) and answers a 406 of its
//! own; then negotiation reads parameters (`as=Table;v=v1;g=meta.k8s.io`, `stream=watch`) and picks the first clause that the endpoint can serve.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use wheelhouse_meta::Status;

use super::Answer;

pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const ALL: &[&str] = &[JSON, YAML, PROTOBUF];

pub const JSON_PATCH: &str = "application/json-patch+json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub const APPLY_YAML: &str = "application/apply-patch+yaml";

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Encoding {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => JSON,
            Encoding::Yaml => YAML,
            Encoding::Protobuf => PROTOBUF,
        }
    }
}

/// What an answer shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum View {
    #[default]
    Object,
    /// `as=PartialObjectMetadata`; `v1beta1` when true.
    Partial {
        beta: bool,
    },
    /// `as=PartialObjectMetadataList`.
    PartialList {
        beta: bool,
    },
    Table {
        beta: bool,
    },
}

/// The negotiated form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Media {
    pub encoding: Encoding,
    pub view: View,
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut all: Vec<Clause<'_>> = header
        .split(',')
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let kind = parts.next().unwrap_or("");
            let params: Vec<_> = parts.filter_map(|p| p.split_once('=')).map(|(k, v)| (k.trim(), v.trim().trim_matches('"'))).collect();
            let quality = params.iter().find(|(k, _)| *k == "q").and_then(|(_, v)| v.parse().ok()).unwrap_or(1.0);
            Clause { kind, quality, params }
        })
        .filter(|clause| !clause.kind.is_empty())
        .collect();
    // Stable, so that equal qualities keep the client's order; wildcards come last.
    all.sort_by(|a, b| b.quality.total_cmp(&a.quality).then_with(|| a.kind.contains('*').cmp(&b.kind.contains('*'))));
    all
}

fn matches(kind: &str, media_type: &str) -> bool {
    kind == "*/*" || kind == media_type || (kind.ends_with("/*") && media_type.starts_with(&kind[..kind.len() - 1]))
}

pub fn accept(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("")
}

/// The router's check: some accepted type must be named by the route. `watchable` routes also produce the stream forms.
pub fn check_route_accept(headers: &HeaderMap, watchable: bool) -> Answer<()> {
    let header = accept(headers);
    let bare = |clause: &str| clause.split(';').next().unwrap_or("").trim().to_owned();
    if header.is_empty() || header.split(',').map(bare).any(|kind| kind == "*/*" || ALL.contains(&kind.as_str())) {
        return Ok(());
    }
    let mut available = ALL.to_vec();
    if watchable {
        available.extend(["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"]);
    }
    Err(Status::not_acceptable_by_router(&available).into())
}

/// Picks the form of an answer. `transforms`: whether tables and partial metadata can be served here.
pub fn negotiate(headers: &HeaderMap, transforms: bool) -> Answer<Media> {
    pick(accept(headers), ALL, transforms).ok_or_else(|| Status::not_acceptable(ALL).into())
}

/// As [`negotiate`], for kinds that have no protobuf form (those outside the schema table, as custom resources are).
pub fn negotiate_without_protobuf(headers: &HeaderMap) -> Answer<Media> {
    const TEXT: &[&str] = &[JSON, YAML];
    pick(accept(headers), TEXT, true).ok_or_else(|| Status::not_acceptable(TEXT).into())
}

/// The same for a custom resource: upstream names protobuf among what it would take, since its other kinds have it.
pub fn negotiate_custom(headers: &HeaderMap) -> Answer<Media> {
    negotiate_without_protobuf(headers).map_err(|_| Status::not_acceptable(ALL).into())
}

/// The form of an error: negotiated like any answer but never transformed, JSON when that fails.
pub fn negotiate_error(headers: &HeaderMap) -> Encoding {
    pick(accept(headers), ALL, false).map_or(Encoding::Json, |media| media.encoding)
}

/// A watch can be framed in JSON, and in protobuf where the kind has that form.
pub fn negotiate_stream(headers: &HeaderMap, protobuf: bool) -> Answer<Media> {
    let framed: &[&str] = if protobuf { &[JSON, PROTOBUF] } else { &[JSON] };
    pick(accept(headers), framed, true).ok_or_else(|| Status::not_acceptable(framed).into())
}

fn pick(header: &str, supported: &[&str], transforms: bool) -> Option<Media> {
    if header.is_empty() {
        return Some(Media::default());
    }
    clauses(header).iter().find_map(|clause| {
        supported.iter().filter(|media_type| matches(clause.kind, media_type)).find_map(|media_type| {
            let encoding = encoding_of(media_type)?;
            Some(Media { encoding, view: view_of(&clause.params, encoding, transforms)? })
        })
    })
}

fn encoding_of(media_type: &str) -> Option<Encoding> {
    match media_type {
        JSON => Some(Encoding::Json),
        YAML => Some(Encoding::Yaml),
        PROTOBUF => Some(Encoding::Protobuf),
        _ => None,
    }
}

/// `None` when the parameters ask for a form that cannot be served.
fn view_of(params: &[(&str, &str)], encoding: Encoding, transforms: bool) -> Option<View> {
    let param = |name: &str| params.iter().find(|(k, _)| *k == name).map(|(_, v)| *v).unwrap_or("");
    let (kind, group, version) = (param("as"), param("g"), param("v"));
    if kind.is_empty() && group.is_empty() && version.is_empty() {
        return Some(View::Object);
    }
    if !transforms || group != "meta.k8s.io" || !matches!(version, "v1" | "v1beta1") {
        return None;
    }
    let beta = version == "v1beta1";
    match kind {
        "Table" if encoding != Encoding::Protobuf => Some(View::Table { beta }),
        "PartialObjectMetadata" => Some(View::Partial { beta }),
        "PartialObjectMetadataList" => Some(View::PartialList { beta }),
        _ => None,
    }
}

/// The media type of a body without its parameters; empty if not given.
pub fn content_type(headers: &HeaderMap) -> String {
    let header = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    header.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

/// How a request body is written; JSON when the client does not say. Kinds without a protobuf form refuse it in the decoder.
pub fn body_encoding(headers: &HeaderMap) -> Answer<Encoding> {
    match content_type(headers).as_str() {
        "" => Ok(Encoding::Json),
        kind => encoding_of(kind).ok_or_else(|| Status::unsupported_media_type(ALL).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        headers
    }

    #[test]
    fn the_first_clause_that_can_be_served_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(negotiate(&headers(kubectl), true), Ok(Media { encoding: Encoding::Json, view: View::Table { beta: false } }));
        assert_eq!(negotiate(&headers(kubectl), false), Ok(Media::default()));
        let client_go = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiate(&headers(client_go), true).unwrap().encoding, Encoding::Protobuf);
        assert_eq!(negotiate(&headers("application/json;q=0.1,application/yaml"), true).unwrap().encoding, Encoding::Yaml);
        assert_eq!(negotiate(&headers("*/*"), true), Ok(Media::default()));
        let error = negotiate(&headers("application/json;as=Table;v=v9;g=meta.k8s.io"), true).unwrap_err();
        assert_eq!(
            error.message,
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
        );
    }

    #[test]
    fn errors_are_never_transformed() {
        assert_eq!(negotiate_error(&headers("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")), Encoding::Json);
        assert_eq!(negotiate_error(&headers("application/vnd.kubernetes.protobuf,application/json")), Encoding::Protobuf);
        assert_eq!(negotiate_error(&headers("text/html")), Encoding::Json);
    }

    #[test]
    fn the_router_knows_no_partial_wildcards() {
        assert!(check_route_accept(&headers("application/*"), false).is_err());
        assert!(check_route_accept(&headers("text/html,*/*;q=0.1"), false).is_ok());
        let error = check_route_accept(&headers("text/html"), true).unwrap_err();
        assert!(error.message.ends_with("application/vnd.kubernetes.protobuf;stream=watch"), "{}", error.message);
    }
}
