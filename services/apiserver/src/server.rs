//! The API server of one cluster replica.
//!
//! ```text
//! request -> who (certificate, token, in-process) -> impersonation -> flow control -> authorization -> body
//!         -> router: discovery, health, OpenAPI | registry: get list watch create update patch delete -> answer
//! ```
//!
//! Nothing is global: one process holds hundreds of these, which share a [`Catalogue`] and nothing else. A panic is the failure of one request.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::FutureExt;
use http::{HeaderMap, Method, Request, Response, request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::Instrument;
use wheelhouse_access::rbac::forbidden;
use wheelhouse_access::{Decision, User};
use wheelhouse_base::limits::MAX_REQUEST_BYTES;
use wheelhouse_base::{Clock, SystemClock};
use wheelhouse_client::Identity;
use wheelhouse_meta::Status;
use wheelhouse_meta::duration::GoDuration;
use wheelhouse_mvcc::Fence;
use wheelhouse_runtime::Metrics;
use wheelhouse_runtime::trace_context::{self, TRACEPARENT};
use wheelhouse_store::Store;

use crate::body::Body;
use crate::compress;
use crate::config::Config;
use crate::connection::Origin;
use crate::custom::CustomResources;
use crate::discovery::Documents;
use crate::flow::{Class, FlowControl, Permit};
use crate::leases::EventLeases;
use crate::metrics::ServerMetrics;
use crate::registry::Call;
use crate::request::Answer;
use crate::request::media;
use crate::request::path::{RequestInfo, is_mutating};
use crate::request::query::Query;
use crate::resource::Catalogue;
use crate::respond::{Reply, status_response};
use crate::security::derived::{Current, View};
use crate::security::{AuditTrail, Exchange, Security};
use crate::storage::Storage;
use crate::watch::cache::EventCache;
use crate::{dispatch, nonresource};

/// Seconds after which a refused client should try again; upstream's value.
const RETRY_AFTER_REFUSAL: u32 = 1;

/// A list weighs a seat for so many bytes, and never more than so many seats.
const BYTES_PER_SEAT: usize = 100_000;
const MAX_LIST_SEATS: usize = 10;

/// What is taken in of a body that a refused request had: most bodies, and little of a flood.
const MAX_DRAINED: usize = 256 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// What every cluster of a process shares: resources, discovery and OpenAPI.
pub struct Shared {
    pub catalogue: Arc<Catalogue>,
    pub documents: Documents,
}

impl Shared {
    /// Builds every document once.
    pub fn new(catalogue: Catalogue) -> Arc<Self> {
        let documents = Documents::new(&catalogue);
        Arc::new(Self { catalogue: Arc::new(catalogue), documents })
    }
}

pub struct ApiServer {
    pub config: Config,
    pub catalogue: Arc<Catalogue>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) storage: Storage,
    pub(crate) security: Security,
    custom: View<CustomResources>,
    pub(crate) events: Arc<EventCache>,
    pub(crate) event_leases: EventLeases,
    pub(crate) metrics: ServerMetrics,
    pub(crate) clock: Arc<dyn Clock>,
    draining: watch::Sender<bool>,
    flow: FlowControl,
    streams: Arc<Semaphore>,
}

impl ApiServer {
    pub fn new(config: Config, store: Arc<dyn Store>, shared: Arc<Shared>, security: Security) -> Arc<Self> {
        Self::with_clock(config, store, shared, security, Arc::new(SystemClock))
    }

    /// The same on another clock, for tests.
    pub fn with_clock(config: Config, store: Arc<dyn Store>, shared: Arc<Shared>, security: Security, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            flow: FlowControl::new(config.limits.in_flight),
            streams: Arc::new(Semaphore::new(config.limits.long_running)),
            config,
            catalogue: Arc::clone(&shared.catalogue),
            shared,
            storage: Storage::new(store),
            security,
            custom: View::new(),
            events: Arc::default(),
            event_leases: EventLeases::default(),
            metrics: ServerMetrics::default(),
            clock,
            draining: watch::Sender::new(false),
        })
    }

    /// Ends watches now and connections once their requests are answered. New requests are still answered.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }

    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// The kinds that the cluster defined. Not to be held across an await.
    pub(crate) fn custom(&self) -> Current<'_, CustomResources> {
        self.custom.current(&**self.store())
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        self.storage.store()
    }

    /// Answers one request. Never fails: whatever goes wrong is an answer.
    pub async fn handle<B>(self: &Arc<Self>, origin: Origin, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let span = tracing::debug_span!("request", method = %request.method(), path = request.uri().path(), code = tracing::field::Empty);
        if !span.is_disabled() {
            let named = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok());
            if let Some(parent) = named.or(origin.traceparent()) {
                trace_context::adopt(&span, parent);
            }
        }
        self.handle_traced(origin, request).instrument(span).await
    }

    async fn handle_traced<B>(self: &Arc<Self>, origin: Origin, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let began = Instant::now();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let warnings = Mutex::new(Vec::new());
        let trail = AuditTrail::default();
        let class = OnceLock::new();
        let received = self.clock.now();
        let incoming = Incoming { origin: &origin, parts: &parts, query: &query, info: &info, warnings: &warnings, trail: &trail, class: &class };
        let mut unread = Some(body);
        let answered = AssertUnwindSafe(self.answer(&incoming, &mut unread)).catch_unwind().await;
        if let Some(body) = unread {
            drain_body(&parts, body).await;
        }
        let answer = answered.unwrap_or_else(|panic| {
            tracing::error!(path = %info.path, panic = panic_text(&*panic), "a request panicked");
            Err(Status::internal_error("the request could not be served").into())
        });
        let failure = answer.as_ref().err().cloned();
        let mut response = match answer {
            Ok(reply) => reply.with_warnings(warnings.into_inner()).into_response(),
            Err(status) => status_response(&status, media::negotiate_error(&parts.headers), &warnings.into_inner()),
        };
        tracing::Span::current().record("code", response.status().as_u16());
        let known = info.is_resource && self.catalogue.find(&info.group, &info.version, &info.resource).is_some();
        self.metrics.answered(&info, known, response.status().as_u16(), began.elapsed());
        let id = uuid::Uuid::new_v4().to_string();
        let exchange = Exchange {
            id: &id,
            info: &info,
            uri: parts.uri.path_and_query().map_or("", |uri| uri.as_str()),
            headers: &parts.headers,
            peer: origin.peer(),
            code: response.status().as_u16(),
            failure: failure.as_deref(),
            received,
        };
        self.security.record(&trail, &exchange);
        let class = class.get();
        let headers = [
            ("audit-id", Some(&id)),
            ("x-kubernetes-pf-flowschema-uid", class.map(|class| &class.schema_uid)),
            ("x-kubernetes-pf-prioritylevel-uid", class.map(|class| &class.level_uid)),
        ];
        for (name, value) in headers {
            if let Some(Ok(value)) = value.map(http::HeaderValue::try_from) {
                response.headers_mut().insert(name, value);
            }
        }
        compress::maybe(&parts.headers, &mut response);
        response
    }

    async fn answer<B>(self: &Arc<Self>, incoming: &Incoming<'_>, body: &mut Option<B>) -> Answer<Reply>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let authenticated = self.authenticate(incoming).await;
        self.metrics.authenticated(authenticated.is_ok());
        let authenticated = authenticated?;
        incoming.trail.authenticated(&authenticated);
        let user = self.impersonate(incoming, authenticated)?;
        let seat = self.admit(incoming, &user).await?;
        self.authorize(incoming, &user)?;
        if incoming.info.is_long_running() {
            let permit = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| self.refuse(incoming))?;
            let bytes = read_body(incoming.parts, body).await?;
            let mut reply = self.serve(incoming, &user, &bytes).await?;
            // A watch pays for its beginning; the stream counts until its body is dropped.
            drop(seat);
            reply.body = reply.body.holding(permit);
            return Ok(reply);
        }
        let _counted = self.metrics.count_in_flight(is_mutating(&incoming.parts.method));
        let work = async {
            let bytes = read_body(incoming.parts, body).await?;
            self.serve(incoming, &user, &bytes).await
        };
        within(self.timeout(incoming.query)?, work).await
    }

    /// Waits for a place among the requests that run. The control plane's own calls get through when clients have taken every one, and streams
    /// but watches are not ordinary requests.
    async fn admit(&self, incoming: &Incoming<'_>, user: &User) -> Answer<Option<Permit<'_>>> {
        let info = incoming.info;
        if incoming.origin.is_in_process() || (info.is_long_running() && info.verb != "watch") {
            return Ok(None);
        }
        let class = incoming.class.get_or_init(|| self.flow.classify(&**self.store(), user, info));
        match self.flow.admit(class, self.weight(incoming), &self.metrics).await {
            Ok(permit) => Ok(Some(permit)),
            Err(_) => Err(self.refuse(incoming)),
        }
    }

    /// How many seats a request takes: a list one for every 100 kB that it reads, up to ten; upstream's estimate.
    fn weight(&self, incoming: &Incoming<'_>) -> u64 {
        let info = incoming.info;
        let lists = info.verb == "list" || (info.verb == "watch" && incoming.query.flag("sendInitialEvents"));
        if !lists || !info.name.is_empty() {
            return 1;
        }
        // A custom resource's keys are named after its group, and so is what does not exist and weighs nothing.
        let group = if info.group.is_empty() { "core" } else { &info.group };
        let namespace = Some(info.object_namespace()).filter(|namespace| !namespace.is_empty()).map(|namespace| format!("{namespace}/"));
        let custom = || format!("/registry/{group}/{}/{}", info.resource, namespace.unwrap_or_default());
        let known = self.catalogue.find(&info.group, &info.version, &info.resource);
        let prefix = known.map_or_else(custom, |resource| resource.key_prefix(info.object_namespace()));
        let snapshot = self.storage.local();
        let end = wheelhouse_mvcc::command::prefix_end(prefix.as_bytes());
        let mut bytes = 0;
        for record in snapshot.range(prefix.as_bytes(), Some(&end)) {
            bytes += record.value.len();
            if bytes >= MAX_LIST_SEATS * BYTES_PER_SEAT {
                break;
            }
        }
        (bytes.div_ceil(BYTES_PER_SEAT) as u64).clamp(1, MAX_LIST_SEATS as u64)
    }

    /// What this cluster counts, with its gauges brought up to date. Others that belong to the cluster, as the scheduler does, count here too.
    pub fn metrics(&self) -> Metrics {
        self.observe();
        self.metrics.all()
    }

    /// Brings the gauges up to date, for a reader of the metrics.
    pub(crate) fn observe(&self) {
        let limits = &self.config.limits;
        self.metrics.long_running(limits.long_running - self.streams.available_permits());
        self.flow.observe(&self.metrics);
        let snapshot = self.storage.local();
        self.metrics.store_revision(snapshot.revision());
        for resource in self.catalogue.resources().iter().filter(|resource| resource.is_stored() && resource.other_version().is_none()) {
            let prefix = resource.key_prefix("");
            let end = wheelhouse_mvcc::command::prefix_end(prefix.as_bytes());
            self.metrics.storage_objects(&resource.group_resource.to_string(), snapshot.count(prefix.as_bytes(), Some(&end)));
        }
    }

    fn refuse(&self, incoming: &Incoming<'_>) -> Box<Status> {
        self.metrics.refused(is_mutating(&incoming.parts.method));
        Status::too_many_requests("Too many requests, please try again later.", RETRY_AFTER_REFUSAL).into()
    }

    fn timeout(&self, query: &Query) -> Answer<Duration> {
        let most = self.config.limits.request_timeout;
        let Some(text) = query.first("timeout").filter(|text| !text.is_empty()) else { return Ok(most) };
        let asked = GoDuration::parse(text).map_err(|_| Status::bad_request("invalid timeout specified in the request URL"))?;
        let asked = Duration::from_nanos(u64::try_from(asked.0).unwrap_or(0));
        Ok(if asked.is_zero() { most } else { asked.min(most) })
    }

    async fn authenticate(&self, incoming: &Incoming<'_>) -> Answer<User> {
        let parts = incoming.parts;
        match incoming.origin {
            Origin::Network(connection) => self.security.authenticate(connection, &parts.headers, incoming.trail).await,
            Origin::InProcess => match parts.extensions.get::<Identity>() {
                Some(identity) => Ok(User { name: identity.user.clone(), groups: identity.groups.clone(), ..User::default() }),
                None => parts.extensions.get::<User>().cloned().ok_or_else(|| Status::unauthorized().into()),
            },
        }
    }

    /// The user that the request acts as.
    fn impersonate(&self, incoming: &Incoming<'_>, user: User) -> Answer<User> {
        let impersonated = self.security.impersonate(&incoming.info.attributes(&user), &incoming.parts.headers)?;
        Ok(match impersonated {
            Some(impersonated) => {
                incoming.trail.impersonated(&impersonated);
                impersonated.user
            }
            None => user,
        })
    }

    /// Whether the user may do what the request asks.
    fn authorize(&self, incoming: &Incoming<'_>, user: &User) -> Answer<()> {
        let attributes = incoming.info.attributes(user);
        let decision = self.security.authorize(&attributes);
        self.metrics.authorized(decision.allowed());
        incoming.trail.decided(&decision);
        match decision {
            Decision::Allow { .. } => Ok(()),
            Decision::NoOpinion { reason } => Err(forbidden(&attributes, &reason).into()),
        }
    }

    async fn serve(self: &Arc<Self>, incoming: &Incoming<'_>, user: &User, body: &Bytes) -> Answer<Reply> {
        let (info, parts) = (incoming.info, incoming.parts);
        if !info.is_resource {
            return nonresource::serve(self, &parts.method, info, &parts.headers, incoming.query).await;
        }
        let route = if self.catalogue.serves(&info.group, &info.version) {
            self.catalogue.route(info, &parts.method)?
        } else {
            let routed = self.custom().route(info, &parts.method);
            match routed {
                Some(route) => route?,
                None => return Ok(nonresource::page_not_found()),
            }
        };
        let call = Call {
            server: self,
            user,
            info,
            route: &route,
            query: incoming.query,
            headers: &parts.headers,
            body,
            now: self.clock.now(),
            fence: if incoming.origin.is_in_process() { parts.extensions.get::<Fence>().copied() } else { None },
            seed: rand::random(),
            warnings: incoming.warnings,
            trail: incoming.trail,
        };
        dispatch::dispatch(&call, &parts.method).await
    }
}

/// A request before its body.
struct Incoming<'a> {
    origin: &'a Origin,
    parts: &'a request::Parts,
    query: &'a Query,
    info: &'a RequestInfo,
    warnings: &'a Mutex<Vec<String>>,
    trail: &'a AuditTrail,
    /// Where flow control puts it, once that is known.
    class: &'a OnceLock<Class>,
}

async fn within(most: Duration, work: impl Future<Output = Answer<Reply>>) -> Answer<Reply> {
    match tokio::time::timeout(most, work).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::timeout("request did not complete within the allotted timeout", 0).into()),
    }
}

/// Reads a body of at most 3 MiB.
async fn read_body<B>(parts: &request::Parts, body: &mut Option<B>) -> Answer<Bytes>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(Bytes::new());
    }
    let too_large = || Box::new(Status::request_entity_too_large(format!("limit is {MAX_REQUEST_BYTES}")));
    if content_length(&parts.headers).is_some_and(|length| length > MAX_REQUEST_BYTES as u64) {
        return Err(too_large());
    }
    let Some(body) = body.take() else { return Ok(Bytes::new()) };
    match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(collected) => {
            let mut buffer = collected.aggregate();
            Ok(buffer.copy_to_bytes(buffer.remaining()))
        }
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Status::bad_request(format!("the body could not be read: {error}")).into()),
    }
}

/// Takes in a small body that nobody read: over HTTP/2 a client that still sends sees its stream reset, and not the answer.
async fn drain_body<B>(parts: &request::Parts, body: B)
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let large = content_length(&parts.headers).is_some_and(|length| length > MAX_DRAINED as u64);
    if !large && !body.is_end_stream() {
        // A longer body, a slow or a broken one: the client is told by the reset.
        let _ = tokio::time::timeout(DRAIN_TIME, Limited::new(body, MAX_DRAINED).collect()).await;
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("")
}
