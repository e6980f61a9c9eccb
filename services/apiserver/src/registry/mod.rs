//! One generic registry over all kinds.
//!
//! ```text
//! call -> decode, default -> managed fields -> mutating admission -> kind's preparation and validation -> validating admission
//!      -> one transaction (compare the object's revision and whatever else must hold) -> answer
//! ```
//!
//! Every write is a pure function from the current record to a [`write::Step`], run again when the record has changed meanwhile. Nothing is held
//! between reading and committing, and nothing is half done: an object and the addresses or budgets that belong to it are one transaction.

pub mod binding;
mod cluster_quota;
pub mod collection;
pub mod connect;
pub mod create;
pub mod delete;
mod device_access;
pub mod eviction;
pub mod fields;
pub mod get;
pub mod meta;
pub mod options;
pub mod patch;
pub mod quotas;
pub mod scale;
pub mod scale_fields;
pub mod service_network;
pub mod services;
pub mod update;
pub mod write;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use wheelhouse_access::{Attributes, User, admission};
use wheelhouse_base::{Revision, Timestamp};
use wheelhouse_kinds::{RequestContext, Requester};
use wheelhouse_mvcc::{Fence, Snapshot};

use crate::encode::{Form, Item, RowObject};
use crate::request::media::{self, Media};
use crate::request::path::RequestInfo;
use crate::request::query::Query;
use crate::request::{Answer, decode};
use crate::resource::{Resource, Route};
use crate::respond::Reply;
use crate::security::AuditTrail;
use crate::server::ApiServer;

use std::sync::Arc;

/// One request on its way through the registry.
pub struct Call<'a> {
    pub server: &'a ApiServer,
    pub user: &'a User,
    pub info: &'a RequestInfo,
    pub route: &'a Route,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
    pub body: &'a Bytes,
    pub now: Timestamp,
    /// The leadership that the write is bound to.
    pub fence: Option<Fence>,
    /// Randomness of this request; a retry uses the same.
    pub seed: u64,
    /// Texts for `Warning` headers.
    pub warnings: &'a Mutex<Vec<String>>,
    /// What the audit event will say.
    pub trail: &'a AuditTrail,
}

impl<'a> Call<'a> {
    pub fn resource(&self) -> &'a Arc<Resource> {
        &self.route.resource
    }

    /// Empty for cluster-scoped objects.
    pub fn namespace(&self) -> &'a str {
        self.info.object_namespace()
    }

    pub fn name(&self) -> &'a str {
        self.info.path_name()
    }

    pub fn subresource(&self) -> &'static str {
        self.route.subresource_name()
    }

    pub fn key(&self) -> Bytes {
        self.resource().key(self.namespace(), self.name())
    }

    pub fn warn(&self, texts: impl IntoIterator<Item = String>) {
        self.warnings.lock().extend(texts);
    }

    /// The form of this request's answer.
    pub fn form(&self) -> Answer<Form> {
        let media = match self.resource() {
            resource if resource.protobuf => media::negotiate(self.headers, true),
            resource if resource.is_custom() => media::negotiate_custom(self.headers),
            _ => media::negotiate_without_protobuf(self.headers),
        };
        self.form_in(media?)
    }

    pub fn form_in(&self, media: Media) -> Answer<Form> {
        let row_object = if matches!(media.view, media::View::Table { .. }) { RowObject::parse(self.query)? } else { RowObject::default() };
        Ok(Form { resource: Arc::clone(self.resource()), media, row_object, now: self.now })
    }

    /// What a kind may know of this request.
    pub fn context(&self) -> RequestContext<'_> {
        let entry = &self.resource().entry;
        let User { name, uid, groups, extra } = self.user;
        let user = Some(Requester { name, uid, groups, extra: Some(extra) });
        RequestContext {
            now: self.now,
            user,
            seed: self.seed,
            subresource: self.subresource(),
            group: entry.group,
            version: entry.version,
            raw: None,
        }
    }

    /// How addresses and ports are chosen for a Service in this request.
    pub fn allocation<'s>(&'s self, snapshot: &'s Snapshot, dry_run: bool) -> services::Choice<'s> {
        services::Choice { network: &self.server.config.services, snapshot, seed: self.seed, dry_run }
    }

    /// What a body of this resource must be.
    pub fn expected(&self) -> decode::Expected<'a> {
        let resource = self.resource();
        decode::Expected { api_version: &resource.api_version, kind: resource.info().kind, schema: &resource.schema, custom: resource.is_custom() }
    }

    /// The words of authorization, for admission. `name` is the object's, which the path of a create does not have.
    pub fn attributes(&self) -> Attributes<'_> {
        self.info.attributes(self.user)
    }

    /// Mutating admission.
    pub async fn admit_mutating(&self, operation: admission::Operation, object: &mut Value, old: Option<&Value>, dry_run: bool) -> Answer<()> {
        let attributes = self.attributes();
        let request = admission::Request { attributes: &attributes, operation, old, dry_run, now: self.now, seed: self.seed };
        self.server.security.admit_mutating(&request, object).await
    }

    /// Validating admission; `object` is `None` for deletes.
    pub async fn admit_validating(&self, operation: admission::Operation, object: Option<&Value>, old: Option<&Value>, dry_run: bool) -> Answer<()> {
        let attributes = self.attributes();
        let request = admission::Request { attributes: &attributes, operation, old, dry_run, now: self.now, seed: self.seed };
        let mut notes = admission::Notes::default();
        let admitted = self.server.security.admit_validating(&request, object, &mut notes).await;
        self.trail.annotated(notes.annotations);
        admitted?;
        self.warn(notes.warnings);
        Ok(())
    }
}

/// An answer that is one object of the call's resource.
pub fn object_reply(form: &Form, code: StatusCode, revision: Revision, value: &[u8]) -> Answer<Reply> {
    let body = form.object(Item { revision, value })?;
    Ok(Reply::new(code, form.media.encoding.media_type(), body))
}
