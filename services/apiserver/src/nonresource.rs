//! Paths outside the API groups: discovery, OpenAPI, version, health, metrics, issuer documents.

use http::header::HeaderValue;
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::json;
use wheelhouse_meta::Status;

use crate::discovery;
use crate::health;
use crate::request::path::RequestInfo;
use crate::request::query::Query;
use crate::request::{Answer, media};
use crate::respond::Reply;
use crate::server::ApiServer;

/// Verifiers may keep the issuer's documents this long; upstream's value.
const ISSUER_CACHE: &str = "public, max-age=3600";

/// Answers a path outside the API groups.
pub async fn serve(server: &ApiServer, method: &Method, info: &RequestInfo, headers: &HeaderMap, query: &Query) -> Answer<Reply> {
    let path = info.path.as_str();
    let documents = &server.shared.documents;
    if let Some(checked) = health::Endpoint::of(path) {
        return Ok(health::answer(server, checked, query).await);
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return if known(server, path) { Err(Status::method_not_allowed().into()) } else { Ok(page_not_found()) };
    }
    match path {
        "/" => {
            let mut paths = documents.paths.clone();
            paths.extend(server.custom().paths());
            paths.sort();
            let body = json!({"paths": paths});
            return Ok(Reply::ok(media::JSON, body.to_string()));
        }
        "/version" | "/version/" => return Ok(discovery::version()),
        "/metrics" => {
            server.observe();
            return Ok(Reply::ok("text/plain; version=0.0.4; charset=utf-8", server.metrics.render()));
        }
        "/openid/v1/jwks" => return Ok(issuer("application/jwk-set+json", server.security.jwks().to_string())),
        "/.well-known/openid-configuration" => {
            let host = headers.get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or("kubernetes.default.svc");
            let document = server.security.openid_configuration(&format!("https://{host}/openid/v1/jwks"));
            return Ok(issuer(media::JSON, document.to_string()));
        }
        _ => {}
    }
    if let Some(reply) = documents.openapi(path, query, headers, &server.custom()) {
        return Ok(reply);
    }
    if let Some(reply) = documents.discovery(path, headers, &server.custom())? {
        return Ok(reply);
    }
    Ok(page_not_found())
}

fn known(server: &ApiServer, path: &str) -> bool {
    path == "/"
        || server.custom().discovery(path.trim_end_matches('/')).is_some()
        || server.shared.documents.paths.iter().any(|known| known == path.trim_end_matches('/'))
}

fn issuer(content_type: &'static str, body: String) -> Reply {
    Reply::ok(content_type, body).with_header(header::CACHE_CONTROL, HeaderValue::from_static(ISSUER_CACHE))
}

/// What Go's mux says about a path that nobody serves.
pub fn page_not_found() -> Reply {
    Reply::new(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".to_owned())
}
