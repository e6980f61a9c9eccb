//! Tokens against the recorded exchanges of `e-subresources/token.json`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use wheelhouse_base::Timestamp;

use super::*;
use crate::authn::{self, InvalidToken};
use crate::lookups::{Answer, MemoryLookups};

const ISSUER: &str = "https://kubernetes.default.svc";

/// A signing key made for the test.
pub(crate) fn issuer() -> Issuer {
    let pair = rcgen::KeyPair::generate().unwrap();
    Issuer {
        url: ISSUER.into(),
        audiences: vec![ISSUER.into()],
        signing: SigningKey::from_pem(pair.serialize_pem().as_bytes()).unwrap(),
        retired: vec![],
    }
}

fn world() -> MemoryLookups {
    let object = |name: &str, uid: &str| json!({"metadata": {"name": name, "namespace": "ns", "uid": uid}});
    let mut pod = object("p", "pod-uid");
    pod["spec"] = json!({"serviceAccountName": "default", "nodeName": "n1"});
    MemoryLookups::default().with("", "serviceaccounts", object("default", "sa-uid")).with("", "pods", pod).with(
        "",
        "secrets",
        object("s", "secret-uid"),
    )
}

fn now() -> Timestamp {
    Timestamp::from_secs(1_767_225_600)
}

fn ask(issuer: &Issuer, spec: Value) -> Answer<Value> {
    let request = TokenRequest { namespace: "ns", name: "default", now: now(), id: "id-1" };
    request::create(request, json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}), issuer, &world())
}

fn accept(
    issuer: &Issuer,
    token: &str,
    audiences: &[&str],
    lookups: &MemoryLookups,
    now: Timestamp,
) -> Result<authn::service_account::Accepted, InvalidToken> {
    let audiences: Vec<String> = audiences.iter().map(|s| (*s).to_owned()).collect();
    let claims = issuer.verify(token);
    authn::token(token, claims.as_ref(), issuer, &audiences, lookups, now)
}

#[test]
fn a_plain_token_is_answered_as_recorded() {
    let issuer = issuer();
    let answer = ask(&issuer, json!({})).unwrap();
    assert_eq!(answer["spec"], json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null}));
    assert_eq!(answer["metadata"], json!({"name": "default", "namespace": "ns", "uid": "sa-uid", "creationTimestamp": "2026-01-01T00:00:00Z"}));
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-01T01:00:00Z");
    let token = answer["status"]["token"].as_str().unwrap();
    let header = jsonwebtoken::decode_header(token).unwrap();
    assert_eq!(header.kid.as_deref(), Some(issuer.signing.public().id()));
    let claims = issuer.verify(token).unwrap();
    assert_eq!(
        serde_json::to_value(&claims).unwrap(),
        json!({"aud": [ISSUER], "exp": now().as_secs() + 3600, "iat": now().as_secs(), "iss": ISSUER, "jti": "id-1", "nbf": now().as_secs(),
               "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "default", "uid": "sa-uid"}}, "sub": "system:serviceaccount:ns:default"})
    );
    let accepted = accept(&issuer, token, &[ISSUER], &world(), now()).unwrap();
    assert_eq!(accepted.user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
    assert_eq!(accepted.user.extra["authentication.kubernetes.io/credential-id"], ["JTI=id-1"]);
}

#[test]
fn a_pods_token_names_pod_and_node_and_dies_with_the_pod() {
    let issuer = issuer();
    let answer = ask(&issuer, json!({"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}})).unwrap();
    let token = answer["status"]["token"].as_str().unwrap();
    let claims = issuer.verify(token).unwrap();
    assert_eq!(claims.kubernetes.pod, Some(Reference { name: "p".into(), uid: "pod-uid".into() }));
    assert_eq!(claims.kubernetes.node, Some(Reference { name: "n1".into(), uid: String::new() }));
    assert_eq!((claims.exp, claims.kubernetes.warnafter), (Some(now().as_secs() + 365 * 24 * 3600), Some(now().as_secs() + 3607)));
    // What the client is told stays what it asked for.
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-01T01:00:07Z");
    let extra = accept(&issuer, token, &[ISSUER], &world(), now()).unwrap().user.extra;
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], ["p"]);
    assert_eq!(extra["authentication.kubernetes.io/node-name"], ["n1"]);
    assert!(!extra.contains_key("authentication.kubernetes.io/node-uid"));

    let refused = |lookups: &MemoryLookups| accept(&issuer, token, &[ISSUER], lookups, now()).unwrap_err().to_string();
    let account = || json!({"metadata": {"name": "default", "namespace": "ns", "uid": "sa-uid"}});
    let without_pod = MemoryLookups::default().with("", "serviceaccounts", account());
    assert_eq!(refused(&without_pod), "[invalid bearer token, service account token has been invalidated]");
    let other_pod = without_pod.with("", "pods", json!({"metadata": {"name": "p", "namespace": "ns", "uid": "other"}}));
    assert_eq!(refused(&other_pod), "[invalid bearer token, pod UID (other) does not match service account pod ref claim (pod-uid)]");
    let deleted = world().with(
        "",
        "pods",
        json!({"metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid", "deletionTimestamp": "2025-12-31T00:00:00Z"}}),
    );
    assert_eq!(refused(&deleted), "[invalid bearer token, service account token has been invalidated]");
    let gone = MemoryLookups::default();
    assert_eq!(refused(&gone), "[invalid bearer token, serviceaccounts \"default\" not found]");
}

#[test]
fn audiences_and_times_are_checked() {
    let issuer = issuer();
    let answer = ask(&issuer, json!({"audiences": ["x", "y"], "expirationSeconds": 700})).unwrap();
    let token = answer["status"]["token"].as_str().unwrap();
    assert_eq!(
        accept(&issuer, token, &[ISSUER], &world(), now()).unwrap_err().to_string(),
        "[invalid bearer token, token audiences [\"x\" \"y\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]]"
    );
    assert_eq!(accept(&issuer, token, &["y", "z"], &world(), now()).unwrap().audiences, ["y"]);
    let late = Timestamp::from_secs(now().as_secs() + 700 + 61);
    assert_eq!(accept(&issuer, token, &["y"], &world(), late).unwrap_err().to_string(), "[invalid bearer token, service account token has expired]");
    assert_eq!(accept(&issuer, "nonsense", &[ISSUER], &world(), now()).unwrap_err().to_string(), "invalid bearer token");
}

#[test]
fn forged_tokens_are_refused() {
    let (ours, theirs) = (issuer(), issuer());
    let answer = ask(&theirs, json!({})).unwrap();
    let token = answer["status"]["token"].as_str().unwrap();
    assert_eq!(ours.verify(token), Err(SignatureError::UnknownKey));
    let mut same_id = theirs.clone();
    same_id.signing.public.id = ours.signing.public.id.clone();
    let answer = ask(&same_id, json!({})).unwrap();
    assert_eq!(ours.verify(answer["status"]["token"].as_str().unwrap()), Err(SignatureError::Forged));
}

#[test]
fn refusals_are_worded_as_recorded() {
    let issuer = issuer();
    let pod = |edit: Value| {
        let mut reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
        for (key, value) in edit.as_object().unwrap() {
            reference[key] = value.clone();
        }
        json!({"boundObjectRef": reference})
    };
    let cases = [
        (
            json!({"expirationSeconds": 5}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
        ),
        (
            json!({"expirationSeconds": 4_294_967_297_i64}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            pod(json!({"uid": "88888888-8888-8888-8888-888888888888"})),
            409,
            "Operation cannot be fulfilled on Pod \"p\": the UID in the bound object reference (88888888-8888-8888-8888-888888888888) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        (pod(json!({"name": "absent"})), 404, "pods \"absent\" not found"),
        (pod(json!({"kind": "Deployment", "apiVersion": "apps/v1"})), 400, "cannot bind token to object of type apps/v1, Kind=Deployment"),
    ];
    for (spec, code, message) in cases {
        let status = ask(&issuer, spec).unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }
}

#[test]
fn rsa_keys_sign_and_are_published() {
    use aws_lc_rs::encoding::AsDer as _;
    let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let der = STANDARD.encode(pair.as_der().unwrap().as_ref());
    let lines: Vec<&str> = (0..der.len()).step_by(64).map(|i| &der[i..(i + 64).min(der.len())]).collect();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
    let issuer = Issuer { signing: SigningKey::from_pem(pem.as_bytes()).unwrap(), ..issuer() };
    let answer = ask(&issuer, json!({})).unwrap();
    let token = answer["status"]["token"].as_str().unwrap();
    assert!(issuer.verify(token).is_ok());
    let key = &issuer.jwks()["keys"][0];
    assert_eq!((key["kty"].as_str(), key["alg"].as_str(), key["e"].as_str()), (Some("RSA"), Some("RS256"), Some("AQAB")));
    assert_eq!(key["kid"], issuer.signing.public().id());
    // 2048 bits, without a leading zero byte.
    assert_eq!(key["n"].as_str().map(str::len), Some(342));
    assert_eq!(issuer.openid_configuration("https://a/openid/v1/jwks")["id_token_signing_alg_values_supported"], json!(["RS256"]));
}
