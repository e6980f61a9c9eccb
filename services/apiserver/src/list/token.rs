//! Continue tokens, in upstream's form: base64 of `{"v":"meta.k8s.io/v1","rv":N,"start":"key\u0000"}`.
//!
//! `start` is relative to the list's prefix. A revision of -1 resumes an inconsistent list: at the newest revision, whatever it is.

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use wheelhouse_base::Revision;
use wheelhouse_meta::Status;

use crate::request::Answer;
use crate::request::decode::go_syntax_error;

/// Go's decoder does not mind bits that are left over.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true).with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

const VERSION: &str = "meta.k8s.io/v1";

#[derive(Debug, Serialize, Deserialize)]
struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continue {
    /// `None`: at the newest revision.
    pub revision: Option<Revision>,
    /// The first key that is wanted, without the list's prefix.
    pub start: String,
}

impl Continue {
    pub fn encode(&self) -> String {
        let rv = self.revision.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let token = Token { v: VERSION.into(), rv, start: self.start.clone() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).expect("a token has only plain values"))
    }

    pub fn decode(text: &str) -> Answer<Self> {
        Self::read(text).map_err(|why| Status::bad_request(format!("invalid continue token: {why}")).into())
    }

    fn read(text: &str) -> Result<Self, String> {
        let bytes = LENIENT.decode(text.trim_end_matches('=')).map_err(|_| "continue key is not valid: illegal base64 data".to_owned())?;
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|error| format!("continue key is not valid: {}", go_syntax_error(&bytes, &error)))?;
        if token.v != VERSION {
            return Err(format!("continue key is not valid: server does not recognize this encoded version {}", token.v));
        }
        if token.rv == 0 {
            return Err(format!("continue key is not valid: incorrect encoded start resourceVersion (version {VERSION})"));
        }
        if token.start.is_empty() {
            return Err(format!("continue key is not valid: encoded start key empty (version {VERSION})"));
        }
        // A key that climbs out of the prefix would read other resources.
        let climbs = token.start.split('/').any(|part| matches!(part.trim_end_matches('\0'), "" | "." | ".."));
        if climbs {
            return Err(format!("continue key is not valid: {}", token.start));
        }
        let revision = (token.rv > 0).then(|| token.rv.unsigned_abs());
        Ok(Self { revision, start: token.start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for revision in [Some(7), None] {
            let token = Continue { revision, start: "ns/a\0".into() };
            assert_eq!(Continue::decode(&token.encode()), Ok(token));
        }
    }

    #[test]
    fn foreign_tokens_are_refused_with_upstreams_words() {
        let cases = [
            ("garbage", "continue key is not valid: invalid character '\\u0081' looking for beginning of value"),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjkiLCJydiI6NSwic3RhcnQiOiJ4In0",
                "continue key is not valid: server does not recognize this encoded version meta.k8s.io/v9",
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJ4In0",
                "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIifQ", "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"),
            ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIuLi94In0", "continue key is not valid: ../x"),
        ];
        for (token, expected) in cases {
            assert_eq!(Continue::decode(token).unwrap_err().message, format!("invalid continue token: {expected}"));
        }
    }
}
