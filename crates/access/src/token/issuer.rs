//! Who signs the cluster's tokens, and the documents that let others verify them.

use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header, encode};
use serde_json::{Value, json};

use super::claims::Claims;
use super::keys::{SigningKey, VerifyingKey};

/// A cluster's token issuer.
#[derive(Clone)]
pub struct Issuer {
    /// The `iss` of new tokens, e.g. `https://kubernetes.default.svc.cluster.local`.
    pub url: String,
    /// The audiences that this API server answers to; the first fills a request that names none.
    pub audiences: Vec<String>,
    pub signing: SigningKey,
    /// Further keys whose tokens are still accepted, after a rotation.
    pub retired: Vec<VerifyingKey>,
}

/// A token whose signature no key of the issuer made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Not a token of this issuer: another authenticator may know it.
    #[error("the token is not of this issuer")]
    Foreign,
    #[error("invalid signature, no keys found")]
    UnknownKey,
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Forged,
}

impl Issuer {
    pub fn sign(&self, claims: &Claims) -> Result<String, jsonwebtoken::errors::Error> {
        let header = Header { alg: self.signing.public.algorithm, typ: None, kid: Some(self.signing.public.id.clone()), ..Header::default() };
        encode(&header, claims, &self.signing.key)
    }

    /// The claims of a token that one of our keys signed. Nothing else about them is checked.
    pub fn verify(&self, token: &str) -> Result<Claims, SignatureError> {
        let claims: Claims = jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(|_| SignatureError::Foreign)?;
        if claims.iss != self.url {
            return Err(SignatureError::Foreign);
        }
        let header = decode_header(token).map_err(|_| SignatureError::Foreign)?;
        let named: Vec<&VerifyingKey> = self.keys().filter(|key| header.kid.as_ref().is_none_or(|kid| *kid == key.id)).collect();
        if named.is_empty() {
            return Err(SignatureError::UnknownKey);
        }
        let verified = named.iter().find_map(|key| decode::<Claims>(token, &key.key, &signature_only(key.algorithm)).ok());
        verified.map(|data| data.claims).ok_or(SignatureError::Forged)
    }

    fn keys(&self) -> impl Iterator<Item = &VerifyingKey> {
        std::iter::once(&self.signing.public).chain(&self.retired)
    }

    /// `/openid/v1/jwks` (media type `application/jwk-set+json`).
    pub fn jwks(&self) -> Value {
        json!({"keys": self.keys().map(|key| key.jwk.clone()).collect::<Vec<_>>()})
    }

    /// `/.well-known/openid-configuration`; `jwks_uri` is where a verifier reaches the key set.
    pub fn openid_configuration(&self, jwks_uri: &str) -> Value {
        let mut algorithms: Vec<&str> = Vec::new();
        for key in self.keys() {
            let name = if key.algorithm == Algorithm::ES256 { "ES256" } else { "RS256" };
            if !algorithms.contains(&name) {
                algorithms.push(name);
            }
        }
        json!({
            "issuer": self.url,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }
}

/// Times and audiences are checked by their own rules, with upstream's words.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation
}
