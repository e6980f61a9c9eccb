//! Discovery and OpenAPI documents: constants of a [`Catalogue`], built once and shared by every cluster that serves it.

pub mod aggregated;
pub mod legacy;

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use http::header::{ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{StatusCode, header};
use serde_json::{Value, json};
use wheelhouse_schema::openapi;

use crate::body::Body;
use crate::custom::CustomResources;
use crate::encode::encode_value;
use crate::request::media::{self, Encoding, JSON, PROTOBUF};
use crate::request::{Answer, query::Query};
use crate::resource::{Catalogue, Resource};
use crate::respond::Reply;

/// The served version. The last number is ours.
pub const GIT_VERSION: &str = "v1.36.2-wheelhouse.0";

pub struct Documents {
    /// `/api`, `/apis`, `/api/v1`, `/apis/<g>` and `/apis/<g>/<v>`.
    legacy: Vec<(String, Value)>,
    aggregated_core: Aggregated,
    aggregated_groups: Aggregated,
    openapi: openapi::Documents,
    /// Every path that `/` lists.
    pub paths: Vec<String>,
}

/// An aggregated document. Upstream 1.36 serves v2 only.
#[derive(Clone)]
struct Aggregated {
    items: Vec<Value>,
    v2: Bytes,
    etag: String,
}

impl Documents {
    pub fn new(catalogue: &Catalogue) -> Self {
        let legacy = legacy::documents(catalogue);
        let mut paths: Vec<String> = legacy.iter().map(|(path, _)| path.clone()).collect();
        paths.extend(
            [
                "/.well-known/openid-configuration",
                "/healthz",
                "/livez",
                "/metrics",
                "/openapi/v2",
                "/openapi/v3",
                "/openid/v1/jwks",
                "/readyz",
                "/version",
            ]
            .map(str::to_owned),
        );
        paths.sort();
        Self {
            aggregated_core: Aggregated::new(aggregated::core(catalogue)),
            aggregated_groups: Aggregated::new(aggregated::groups(catalogue)),
            openapi: openapi::Documents::new(GIT_VERSION, openapi_resources(catalogue)),
            legacy,
            paths,
        }
    }

    /// Answers a discovery path; `None` if it is not one.
    pub fn discovery(&self, path: &str, headers: &HeaderMap, custom: &CustomResources) -> Answer<Option<Reply>> {
        let trimmed = path.trim_end_matches('/');
        let value = match self.legacy.iter().find(|(known, _)| known == trimmed) {
            Some((_, value)) if trimmed == "/apis" => Cow::Owned(with_groups(value, custom)),
            Some((_, value)) => Cow::Borrowed(value),
            None => match custom.discovery(trimmed) {
                Some(value) => Cow::Owned(value),
                None => return Ok(None),
            },
        };
        let aggregated = match trimmed {
            "/api" => Some(Cow::Borrowed(&self.aggregated_core)),
            "/apis" if custom.is_empty() => Some(Cow::Borrowed(&self.aggregated_groups)),
            "/apis" => Some(Cow::Owned(self.aggregated_groups.with(custom.aggregated()))),
            _ => None,
        };
        if let Some(reply) = aggregated.and_then(|document| document.answer(headers)) {
            return Ok(Some(reply));
        }
        let value = value.as_ref();
        let media = media::negotiate(headers, false)?;
        // Version and group lists have a protobuf form; all of them do in our table.
        Ok(Some(Reply::ok(media.encoding.media_type(), encode_value(value, media.encoding)?)))
    }

    /// `/openapi/v2`, `/openapi/v3` and what is below it; `None` for other paths and groups that are not served.
    pub fn openapi(&self, path: &str, query: &Query, headers: &HeaderMap, custom: &CustomResources) -> Option<Reply> {
        let path = path.trim_end_matches('/');
        if path == "/openapi/v2" {
            let media_type = |clause: &str| clause.split(';').next().unwrap_or("").trim().to_owned();
            let protobuf = media::accept(headers).split(',').any(|clause| openapi::V2_PROTOBUF_ACCEPTED.contains(&media_type(clause).as_str()));
            let (content_type, document) =
                if protobuf { (openapi::V2_PROTOBUF_CONTENT_TYPE, self.openapi.v2_protobuf()) } else { (JSON, self.openapi.v2()) };
            return Some(hashed(content_type, &document.json, &document.hash, headers));
        }
        if path == "/openapi/v3" {
            let document = self.openapi.index();
            let more = custom.openapi_index();
            if more.is_empty() {
                return Some(hashed(JSON, &document.json, &document.hash, headers));
            }
            let mut index: Value = serde_json::from_slice(&document.json).ok()?;
            index["paths"].as_object_mut()?.extend(more);
            let index = Bytes::from(index.to_string());
            return Some(hashed(JSON, &index, &digest(&index), headers));
        }
        let below = path.strip_prefix("/openapi/v3/")?;
        let of_custom = if self.openapi.v3_hash(below).is_none() { custom.openapi(below) } else { None };
        let document = of_custom.as_deref().unwrap_or(&self.openapi).v3(below)?;
        let mut reply = hashed(JSON, &document.json, &document.hash, headers);
        // An address that names the document's hash may be kept for ever.
        if query.first("hash").is_some_and(|hash| hash == document.hash) {
            reply = reply.with_header(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        }
        Some(reply)
    }
}

impl Aggregated {
    fn new(items: Vec<Value>) -> Self {
        let value = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
        let v2 = Bytes::from(value.to_string());
        Self { etag: digest(&v2), v2, items }
    }

    /// The same document and more groups.
    fn with(&self, more: Vec<Value>) -> Self {
        Self::new(self.items.iter().cloned().chain(more).collect())
    }

    /// The document, if the client's first acceptable clause asks for one.
    fn answer(&self, headers: &HeaderMap) -> Option<Reply> {
        for clause in media::accept(headers).split(',') {
            let mut parts = clause.split(';').map(str::trim);
            let kind = parts.next().unwrap_or("");
            let param = |name: &str| clause.split(';').map(str::trim).find_map(|p| p.strip_prefix(name)?.strip_prefix('=')).unwrap_or("");
            let wanted = param("as") == "APIGroupDiscoveryList" && param("g") == "apidiscovery.k8s.io" && kind == JSON;
            match (wanted, param("v")) {
                (true, "v2") => {
                    return Some(self.reply("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &self.v2, headers));
                }
                // A clause that can be served in the old form ends the search.
                (false, _) if param("as").is_empty() && (kind == JSON || kind == PROTOBUF || kind == "*/*") => return None,
                _ => {}
            }
        }
        None
    }

    fn reply(&self, content_type: &'static str, bytes: &Bytes, headers: &HeaderMap) -> Reply {
        let reply = hashed(content_type, bytes, &self.etag, headers);
        reply.with_header(header::CACHE_CONTROL, HeaderValue::from_static("public")).with_header(header::VARY, HeaderValue::from_static("Accept"))
    }
}

/// A document with its entity tag; 304 when the client has it.
fn hashed(content_type: &'static str, bytes: &Bytes, hash: &str, headers: &HeaderMap) -> Reply {
    let tag = format!("\"{hash}\"");
    let known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()).is_some_and(|sent| sent.split(',').any(|one| one.trim() == tag));
    let mut reply = if known { Reply::new(StatusCode::NOT_MODIFIED, content_type, Body::empty()) } else { Reply::ok(content_type, bytes.clone()) };
    if let Ok(value) = HeaderValue::from_str(&tag) {
        reply = reply.with_header(ETAG, value);
    }
    let vary: HeaderName = header::VARY;
    reply.with_header(vary, HeaderValue::from_static("Accept-Encoding, Accept"))
}

fn digest(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|b| format!("{b:02X}")).collect()
}

/// Kinds whose hash upstream still makes from an older version, which it stores or stored in its first release with the current one.
const HASHED_AS_V1BETA1: &[&str] = &["CustomResourceDefinition", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

/// What clients compare to learn whether the stored form of a resource changed.
fn storage_version_hash(resource: &Resource) -> String {
    let info = resource.info();
    let version = if HASHED_AS_V1BETA1.contains(&info.kind) && !resource.is_custom() { "v1beta1" } else { info.version };
    let text = format!("{}/{version}/{}", info.group, info.kind);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    STANDARD.encode(&digest.as_ref()[..8])
}

fn openapi_resources(catalogue: &Catalogue) -> Vec<openapi::Resource> {
    catalogue.resources().iter().map(|resource| openapi_resource(resource)).collect()
}

/// A resource as OpenAPI describes it.
pub fn openapi_resource(r: &Resource) -> openapi::Resource {
    let texts = |verbs: &[wheelhouse_kinds::Verb]| verbs.iter().map(|verb| verb.as_str().to_owned()).collect();
    {
        let info = r.info();
        let own = (r.entry.group, r.entry.version, info.kind);
        let subresources = info.subresources.iter().map(|sub| {
            let (group, version, kind) = sub.body.unwrap_or(own);
            openapi::Subresource { name: sub.name.into(), group: group.into(), version: version.into(), kind: kind.into(), verbs: texts(sub.verbs) }
        });
        openapi::Resource {
            group: r.entry.group.into(),
            version: r.entry.version.into(),
            kind: info.kind.into(),
            plural: info.plural.into(),
            namespaced: r.namespaced(),
            verbs: texts(info.verbs),
            subresources: subresources.collect(),
            // A kind that is in the table is described from there.
            schema: r
                .entry
                .kind()
                .and_then(|kind| kind.schema())
                .filter(|_| wheelhouse_schema::catalog().kind(r.entry.group, r.entry.version, info.kind).is_none()),
            props: r.entry.kind().and_then(|kind| kind.props()).cloned(),
        }
    }
}

/// The list of groups and those of custom resources.
fn with_groups(list: &Value, custom: &CustomResources) -> Value {
    let mut list = list.clone();
    if let Some(groups) = list["groups"].as_array_mut() {
        groups.extend(custom.group_list());
    }
    list
}

/// The answer of `/version`.
pub fn version() -> Reply {
    let body = json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean", "buildDate": "2026-11-30T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    });
    Reply::ok(Encoding::Json.media_type(), body.to_string())
}
