//! The cluster's security as the request path uses it: thin shells around the decisions of `wheelhouse-access`.
//!
//! ```text
//! connection, headers --authenticate--> User --impersonate--> User --authorize--> Decision
//! decoded object      --admit_mutating--> (validation) --admit_validating--> store
//! ```
//!
//! One [`Security`] belongs to one cluster's replica. It reads the store's snapshots and holds the derived policy; it writes nothing and
//! runs nothing in the background.
//!
//! A replica may be behind the leader by some milliseconds. What it allows then was allowed a moment ago; but it must not refuse what
//! just became right (the token of a new account, an object in a new namespace). So a refusal that rests on what was looked up is
//! repeated on a state that is certainly current before it is final.

mod audit_log;
mod audit_trail;
mod connection;
mod credentials;
pub(crate) mod derived;
mod lookups;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;
use wheelhouse_access::admission::Notes;
use wheelhouse_access::authn::service_account::Accepted;
use wheelhouse_access::authn::{self, InvalidToken};
use wheelhouse_access::authorizer::node::{self, NodeGraph, Nodes};
use wheelhouse_access::impersonation::{self, Impersonated};
use wheelhouse_access::rbac::{Policy, escalation, forbidden::forbidden};
use wheelhouse_access::review::{self, AccessReview};
use wheelhouse_access::token::{self, SignatureError, TokenRequest};
use wheelhouse_access::{Answer, Attributes, Decision, User, admission, authorizer};
use wheelhouse_base::Clock;
use wheelhouse_meta::Status;
use wheelhouse_mvcc::{KeyRange, Snapshot};
use wheelhouse_store::Store;

pub use audit_log::{AuditLog, AuditSink, audit_log};
pub use audit_trail::{AuditTrail, Exchange};
pub use connection::ConnectionInfo;
use credentials::CredentialStore;
pub use credentials::Credentials;
pub(crate) use derived::{Derived, View};
pub use lookups::SnapshotLookups;

/// How long a pod waits for the `default` service account of a namespace that was just created; upstream's ten attempts take as long.
const DEFAULT_ACCOUNT_WAIT: Duration = Duration::from_secs(1);

/// The audit annotation of a token that should have been renewed.
const STALE_TOKEN: &str = "authentication.k8s.io/stale-token";

pub struct Security {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    credentials: CredentialStore,
    policy: View<Policy>,
    nodes: View<NodeGraph>,
    audit: Option<AuditSink>,
    /// Whether nodes are held to their own objects.
    node_restriction: bool,
}

impl Security {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, credentials: Credentials) -> Self {
        Self {
            store,
            clock,
            credentials: CredentialStore::new(credentials),
            policy: View::new(),
            nodes: View::new(),
            audit: None,
            node_restriction: false,
        }
    }

    /// Turns the NodeRestriction admission plugin on, which is off by default as upstream's is.
    #[must_use]
    pub fn with_node_restriction(mut self) -> Self {
        self.node_restriction = true;
        self
    }

    /// Records every request that matters; see [`audit_log`].
    #[must_use]
    pub fn with_audit(mut self, sink: AuditSink) -> Self {
        self.audit = Some(sink);
        self
    }

    /// Puts renewed authorities or keys into force, for open connections too.
    pub fn replace_credentials(&self, credentials: Credentials) {
        self.credentials.replace(credentials);
    }

    /// Who is asking. 401 for credentials that prove nothing, also when others would be needed for less than they claim.
    pub async fn authenticate(&self, connection: &ConnectionInfo, headers: &HeaderMap, trail: &AuditTrail) -> Answer<User> {
        let credentials = self.credentials.current();
        let refused = match connection.user(&credentials, self.clock.now()) {
            Some(Ok(user)) if self.is_alive(&user.name).await => {
                return Ok(authn::authenticated(user));
            }
            Some(_) => true,
            None => false,
        };
        if let Some(token) = authn::bearer_token(headers) {
            return match self.token(&credentials, &token, &credentials.issuer.audiences).await {
                Ok(accepted) => {
                    if let Some(seconds) = accepted.stale_for {
                        let note = format!("subject: {}, seconds after warning threshold: {seconds}", accepted.user.name);
                        trail.annotated([(STALE_TOKEN.to_owned(), note)].into());
                    }
                    Ok(accepted.user)
                }
                Err(error) => {
                    tracing::debug!(%error, "a bearer token was refused");
                    Err(Box::new(Status::unauthorized()))
                }
            };
        }
        if refused || !credentials.anonymous {
            return Err(Box::new(Status::unauthorized()));
        }
        Ok(User::anonymous())
    }

    /// Whether a revocable certificate still counts. A replica that lags asks the leader before it refuses a fresh one.
    async fn is_alive(&self, user: &str) -> bool {
        let alive = |snapshot: Snapshot| authn::credential::is_alive(user, &SnapshotLookups(snapshot));
        if alive(self.store.snapshot()) {
            return true;
        }
        !self.store.leadership().borrow().here && self.store.barrier().await.is_ok_and(alive)
    }

    async fn token(&self, credentials: &Credentials, token: &str, audiences: &[String]) -> Result<Accepted, InvalidToken> {
        let claims = self.credentials.verify(credentials, token);
        let check = |snapshot: Snapshot| {
            let claims = claims.as_deref();
            authn::token(token, claims, &credentials.issuer, audiences, &SnapshotLookups(snapshot), self.clock.now())
        };
        match check(self.store.snapshot()) {
            // A bad signature stays bad; everything else was looked up.
            Err(error) if !self.store.leadership().borrow().here && !matches!(claims, Err(SignatureError::UnknownKey | SignatureError::Forged)) => {
                match self.store.barrier().await {
                    Ok(snapshot) => check(snapshot),
                    Err(_) => Err(error),
                }
            }
            answer => answer,
        }
    }

    /// The user that the request acts as, if its headers name one. `attributes` carry the authenticated user.
    pub fn impersonate(&self, attributes: &Attributes<'_>, headers: &HeaderMap) -> Answer<Option<Impersonated>> {
        impersonation::impersonate(headers, attributes, &|check| self.authorize(check))
    }

    /// Decides by the newest state this replica has applied.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.decide(&self.policy.current(&*self.store), attributes)
    }

    fn decide(&self, policy: &Policy, attributes: &Attributes<'_>) -> Decision {
        if !node::is_node(attributes.user) {
            return authorizer::authorize(policy, None, attributes);
        }
        let (graph, lookups) = (self.nodes.current(&*self.store), self.lookups());
        authorizer::authorize(policy, Some(Nodes { graph: &graph, lookups: &lookups }), attributes)
    }

    /// As [`Security::authorize`], with a refusal made into the 403 that the client gets.
    pub fn require(&self, attributes: &Attributes<'_>) -> Answer<Decision> {
        let decision = self.authorize(attributes);
        match &decision {
            Decision::Allow { .. } => Ok(decision),
            Decision::NoOpinion { reason } => Err(Box::new(forbidden(attributes, reason))),
        }
    }

    /// Mutating admission of a create or update, and what is checked right after it: whether the user may grant the rights that an RBAC
    /// object grants. Call it before validation.
    pub async fn admit_mutating(&self, request: &admission::Request<'_>, object: &mut Value) -> Answer<()> {
        let original = object.clone();
        if admission::mutate(request, object, &self.lookups()).is_err() {
            let snapshot = self.current_state().await?;
            let snapshot = self.wait_for_default_account(request, &original, snapshot).await;
            *object = original;
            admission::mutate(request, object, &SnapshotLookups(snapshot))?;
        }
        let policy = self.policy.current(&*self.store);
        escalation::check(request, object, &policy, &|check| self.decide(&policy, check))
    }

    /// Validating admission of a write; `object` is `None` for deletes. Call it after validation. The notes are filled in also when the
    /// request is refused.
    pub async fn admit_validating(&self, request: &admission::Request<'_>, object: Option<&Value>, notes: &mut Notes) -> Answer<()> {
        let validate = |lookups: &SnapshotLookups, notes: &mut Notes| {
            if self.node_restriction {
                admission::node_restriction::validate(request, object, lookups)?;
            }
            admission::validate(request, object, lookups, notes)
        };
        if validate(&self.lookups(), notes).is_ok() {
            return Ok(());
        }
        *notes = Notes::default();
        validate(&SnapshotLookups(self.current_state().await?), notes)
    }

    /// A controller makes the account a moment after the namespace; whoever creates both in one go should not have to know.
    async fn wait_for_default_account(&self, request: &admission::Request<'_>, object: &Value, snapshot: Snapshot) -> Snapshot {
        let Some(key) = admission::awaited_account(request, object).map(|namespace| lookups::object_key("", "serviceaccounts", namespace, "default"))
        else {
            return snapshot;
        };
        if snapshot.get(key.as_bytes()).is_some() {
            return snapshot;
        }
        let Ok(mut watch) = self.store.watch(KeyRange::key(key.into_bytes()), snapshot.revision()) else { return snapshot };
        match tokio::time::timeout(DEFAULT_ACCOUNT_WAIT, watch.next()).await {
            Ok(Ok(changes)) => self.store.wait_for(changes.revision, DEFAULT_ACCOUNT_WAIT).await.unwrap_or(snapshot),
            _ => snapshot,
        }
    }

    /// Answers a review: `resource` is its plural, `namespace` the path's, `body` the decoded request.
    pub async fn review(&self, resource: &str, namespace: &str, body: Value, user: &User) -> Answer<Value> {
        if resource == "tokenreviews" {
            return self.review_token(body).await;
        }
        let policy = self.policy.current(&*self.store);
        let decide = |attributes: &Attributes<'_>| self.decide(&policy, attributes);
        match resource {
            "subjectaccessreviews" => review::access(AccessReview::Subject, body, &decide),
            "localsubjectaccessreviews" => review::access(AccessReview::Local { namespace }, body, &decide),
            "selfsubjectaccessreviews" => review::access(AccessReview::SelfSubject { caller: user }, body, &decide),
            "selfsubjectrulesreviews" => review::rules(&body, &|namespace| policy.rules_for(user, namespace)),
            "selfsubjectreviews" => Ok(review::self_subject(user, self.clock.now())),
            _ => Err(Box::new(Status::path_not_found())),
        }
    }

    async fn review_token(&self, body: Value) -> Answer<Value> {
        let (credentials, current) = (self.credentials.current(), SnapshotLookups(self.current_state().await?));
        review::token(body, &credentials.issuer.audiences, &|token, audiences| {
            let claims = self.credentials.verify(&credentials, token);
            authn::token(token, claims.as_deref(), &credentials.issuer, audiences, &current, self.clock.now())
        })
    }

    /// Answers a TokenRequest for the service account `name`; `body` is the decoded request, `id` a random UUID.
    pub async fn token_request(&self, namespace: &str, name: &str, body: Value, id: &str) -> Answer<Value> {
        let current = SnapshotLookups(self.current_state().await?);
        let request = TokenRequest { namespace, name, now: self.clock.now(), id };
        token::request::create(request, body, &self.credentials.current().issuer, &current)
    }

    /// `/openid/v1/jwks`, media type `application/jwk-set+json`.
    pub fn jwks(&self) -> Value {
        self.credentials.current().issuer.jwks()
    }

    /// `/.well-known/openid-configuration`; `jwks_uri` is where verifiers reach the key set.
    pub fn openid_configuration(&self, jwks_uri: &str) -> Value {
        self.credentials.current().issuer.openid_configuration(jwks_uri)
    }

    /// What decisions look up, as this replica's newest state holds it.
    pub fn lookups(&self) -> SnapshotLookups {
        SnapshotLookups(self.store.snapshot())
    }

    /// A state that holds everything acknowledged before now.
    async fn current_state(&self) -> Answer<Snapshot> {
        self.store.barrier().await.map_err(|error| Box::new(Status::service_unavailable(error.to_string())))
    }
}

#[cfg(test)]
mod tests;
