//! Bodies and pages: how requests are read and lists are cut.

use axum::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wheelhouse_client::ListOptions;

use crate::problem::Problem;

/// Items of a page when the request names no limit.
const DEFAULT_LIMIT: u32 = 50;
/// The most items of one page.
const MAX_LIMIT: u32 = 500;

/// Reads a JSON body. Unknown fields are refused with their names, so a misspelt one is not silently ignored. An empty body is `{}`.
pub fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Problem> {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Problem::invalid("body", error.to_string()),
        _ => Problem::bad_request(format!("the body is not JSON: {error}")),
    })
}

/// `?limit=&continue=`
#[derive(Debug, Default, Deserialize)]
pub struct Page {
    limit: Option<u32>,
    #[serde(rename = "continue", default)]
    continue_token: String,
}

impl Page {
    pub fn options(&self) -> Result<ListOptions, Problem> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if limit == 0 || limit > MAX_LIMIT {
            return Err(Problem::invalid("limit", format!("must be between 1 and {MAX_LIMIT}")));
        }
        Ok(ListOptions { limit, continue_token: self.continue_token.clone(), ..ListOptions::default() })
    }
}

/// A list answer of the system API as a page: `items`, and `continue` where there is more.
pub fn page(list: &Value, item: impl Fn(&Value) -> Option<Value>) -> Value {
    let items: Vec<Value> = list["items"].as_array().into_iter().flatten().filter_map(item).collect();
    let mut page = json!({"items": items});
    if let Some(token) = list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
        page["continue"] = json!(token);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(default)]
        replicas: u32,
    }

    #[test]
    fn a_misspelt_field_is_named() {
        let problem = body::<Sample>(&Bytes::from_static(br#"{"replica": 3}"#)).unwrap_err();
        assert_eq!(problem.status, 422);
        assert!(problem.detail.contains("`replica`"), "{}", problem.detail);
        assert_eq!(body::<Sample>(&Bytes::from_static(b"{")).unwrap_err().status, 400);
        assert_eq!(body::<Sample>(&Bytes::new()).unwrap().replicas, 0);
    }

    #[test]
    fn pages_have_bounds() {
        let page = |limit| Page { limit: Some(limit), continue_token: String::new() }.options();
        assert!(page(0).is_err() && page(501).is_err());
        assert_eq!(page(500).unwrap().limit, 500);
    }
}
