//! OpenAPI v3 and v2 documents of the kinds that are served.
//!
//! ```text
//! [Resource] ── paths.rs ──▶ operations ─┐
//!                                        ├─▶ v3: one document per group and version, an index with hashed addresses
//! catalog, descriptions ─ definitions.rs ┘    v2: one document of everything
//! ```
//!
//! Clients read them to explain fields, to learn whether PATCH knows `fieldValidation` and `dryRun`, and how lists merge.
//! A document is made when it is first asked for and then kept as bytes, once for the process: [`Documents`] is shared by
//! every cluster that serves the same resources. The index needs no document, because an address carries a hash of what
//! its document is made from, which is the same on every replica of one build.

mod definitions;
mod descriptions;
mod hash;
mod operations;
mod paths;
mod v2;
mod v2_protobuf;
mod v3;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::types::Schema;

/// A resource as discovery has it.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
    /// Discovery's names: `create`, `deletecollection` …
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    /// The schema of a kind that is not in the catalog.
    pub schema: Option<Schema>,
    /// What a CustomResourceDefinition says of its objects, as it stands in documents. Type header and metadata are added.
    pub props: Option<Value>,
}

impl Resource {
    /// Whether a cluster defined it: its objects have no protobuf form, and its documents are laid out a little differently.
    pub(crate) fn is_custom(&self) -> bool {
        self.props.is_some()
    }
}

/// `pods/eviction`, without the parent's name.
#[derive(Clone, Debug)]
pub struct Subresource {
    pub name: String,
    /// What its bodies are: `policy/v1 Eviction`, or the parent's.
    pub group: String,
    pub version: String,
    pub kind: String,
    /// `get`, `update`, `patch`, `create`. Streams (`exec`, `log`, `proxy` …) are known by name and need none.
    pub verbs: Vec<String>,
}

/// A rendered document.
#[derive(Clone, Debug)]
pub struct Document {
    /// JSON, or what the method's name says. Clones share the bytes.
    pub json: Bytes,
    /// Upper-case hexadecimal, as in the index's addresses; also fit for an ETag.
    pub hash: String,
}

/// All documents of one set of resources.
#[derive(Debug)]
pub struct Documents {
    version: String,
    resources: Vec<Resource>,
    /// By the path below `/openapi/v3/`: `api/v1`, `apis/apps`, `apis/apps/v1`.
    v3: BTreeMap<String, Slot>,
    index: OnceLock<Document>,
    v2: OnceLock<Document>,
    v2_protobuf: OnceLock<Document>,
}

#[derive(Debug)]
struct Slot {
    content: Content,
    hash: String,
    document: OnceLock<Document>,
}

/// What a v3 document describes.
#[derive(Clone, Debug)]
enum Content {
    /// `/api/`
    CoreVersions,
    /// `/apis/`
    Groups,
    /// `/apis/apps/`
    Group(String),
    /// `/apis/apps/v1/…`
    GroupVersion { group: String, version: String },
}

impl Documents {
    /// `version` is the server's, `v1.36.2`; documents show its first two numbers.
    pub fn new(version: &str, resources: Vec<Resource>) -> Documents {
        let mut contents = BTreeMap::new();
        contents.insert("api".to_owned(), Content::CoreVersions);
        contents.insert("apis".to_owned(), Content::Groups);
        for resource in &resources {
            let (group, version) = (resource.group.clone(), resource.version.clone());
            if !group.is_empty() {
                contents.insert(format!("apis/{group}"), Content::Group(group.clone()));
            }
            contents.insert(group_version_path(&group, &version), Content::GroupVersion { group, version });
        }
        let version = short_version(version);
        let base = hash::Base::new(&version);
        let v3 = contents
            .into_iter()
            .map(|(path, content)| {
                let hash = base.document(&path, &resources, &content);
                (path, Slot { content, hash, document: OnceLock::new() })
            })
            .collect();
        Documents { version, resources, v3, index: OnceLock::new(), v2: OnceLock::new(), v2_protobuf: OnceLock::new() }
    }

    /// `/openapi/v3`: every document's address with its hash.
    pub fn index(&self) -> &Document {
        self.index.get_or_init(|| {
            let paths: BTreeMap<&String, Value> = self
                .v3
                .iter()
                .map(|(path, slot)| {
                    let address = format!("/openapi/v3/{path}?hash={}", slot.hash);
                    (path, json!({ "serverRelativeURL": address }))
                })
                .collect();
            document(&json!({ "paths": paths }), None)
        })
    }

    /// `/openapi/v3/<path>`, such as `apis/apps/v1`; `None` if nothing there is served.
    pub fn v3(&self, path: &str) -> Option<&Document> {
        let slot = self.v3.get(path)?;
        Some(slot.document.get_or_init(|| {
            let value = v3::render(&self.version, &self.resources, &slot.content);
            document(&value, Some(slot.hash.clone()))
        }))
    }

    /// The hash in a document's address, without making the document.
    pub fn v3_hash(&self, path: &str) -> Option<&str> {
        self.v3.get(path).map(|slot| slot.hash.as_str())
    }

    /// `/openapi/v2`: everything in one Swagger 2.0 document.
    pub fn v2(&self) -> &Document {
        self.v2.get_or_init(|| document(&v2::render(&self.version, &self.resources), None))
    }

    /// The same as [`V2_PROTOBUF_CONTENT_TYPE`].
    pub fn v2_protobuf(&self) -> &Document {
        self.v2_protobuf.get_or_init(|| {
            let body = v2_protobuf::encode(&v2::render(&self.version, &self.resources));
            Document { hash: hash::of_bytes(&body), json: body.into() }
        })
    }
}

/// What clients accept when they want [`Documents::v2_protobuf`]. client-go's `OpenAPISchema` sends the first and can read
/// nothing else.
pub const V2_PROTOBUF_ACCEPTED: [&str; 2] =
    ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"];

/// The Content-Type of [`Documents::v2_protobuf`]. Go's parser refuses the form with `@`, which is no token character.
pub const V2_PROTOBUF_CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

fn document(value: &Value, hash: Option<String>) -> Document {
    let body = value.to_string().into_bytes();
    let hash = hash.unwrap_or_else(|| hash::of_bytes(&body));
    Document { json: body.into(), hash }
}

/// `api/v1`, `apis/apps/v1`
fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `v1.36.2-wheelhouse.1` as `1.36`, which is what `info.version` shows.
fn short_version(version: &str) -> String {
    let numbers: Vec<&str> = version.trim_start_matches('v').splitn(3, '.').take(2).collect();
    numbers.join(".")
}

#[cfg(test)]
mod tests;
