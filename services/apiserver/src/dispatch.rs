//! From a routed request to the registry function that answers it.

use http::Method;
use wheelhouse_kinds::Action;
use wheelhouse_meta::Status;

use crate::list::options::ListOptions;
use crate::list::{Scope, list};
use crate::registry::{Call, binding, collection, connect, create, delete, eviction, get, patch, scale, update};
use crate::request::{Answer, media};
use crate::resource::{Resource, Target};
use crate::respond::Reply;
use crate::reviews;
use crate::watch::{WatchContext, watch};

/// Answers a request whose path and method exist.
pub async fn dispatch(call: &Call<'_>, method: &Method) -> Answer<Reply> {
    let watchable = call.route.target == Target::Collection && *method == Method::GET;
    if *method == Method::PATCH && !patch::is_patch_type(&media::content_type(call.headers)) {
        return Err(Status::unsupported_media_type_by_router().into());
    }
    // A stream has a form of its own, and clients ask for it with any type.
    if !matches!(call.route.target, Target::Subresource(sub) if sub.action == Action::Connect) {
        media::check_route_accept(call.headers, watchable)?;
    }
    call.warn(deprecation(call.resource()).map(str::to_owned));
    let own = call.resource().entry.kind().and_then(|kind| kind.deprecation());
    call.warn(own.map(str::to_owned));
    if !call.resource().is_stored() {
        return if call.resource().is("", "bindings") { binding::bind(call).await } else { reviews::review(call).await };
    }
    match call.route.target {
        Target::Collection => on_collection(call, method).await,
        Target::Object if call.info.watch_prefix => start_watch(call).await,
        Target::Object => match *method {
            Method::GET => get::get(call).await,
            Method::PUT => update::update(call).await,
            Method::PATCH => patch::patch(call).await,
            _ => delete::delete(call).await,
        },
        Target::Subresource(sub) => match (sub.action, method) {
            (Action::Part, &Method::GET) => get::get(call).await,
            (Action::Part, &Method::PUT) => update::update(call).await,
            (Action::Part, &Method::PATCH) => patch::patch(call).await,
            (Action::Scale, &Method::GET) => scale::get(call).await,
            (Action::Scale, &Method::PUT) => scale::set(call, false).await,
            (Action::Scale, &Method::PATCH) => scale::set(call, true).await,
            (Action::Bind, _) => binding::bind(call).await,
            (Action::Evict, _) => eviction::evict(call).await,
            (Action::Token, _) => reviews::token(call).await,
            (Action::Connect, _) if call.resource().is("", "pods") => connect::connect(call).await,
            _ => Err(Status::method_not_allowed().into()),
        },
    }
}

/// What every answer about a deprecated kind warns of.
fn deprecation(resource: &Resource) -> Option<&'static str> {
    match resource.info().plural {
        "endpoints" if resource.is("", "endpoints") => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        "componentstatuses" if resource.is("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}

async fn on_collection(call: &Call<'_>, method: &Method) -> Answer<Reply> {
    match *method {
        Method::GET if call.info.verb == "watch" => start_watch(call).await,
        Method::GET => {
            let form = call.form()?;
            let options = ListOptions::parse(call.query, call.resource(), false, "")?;
            let scope = Scope { form: &form, namespace: call.namespace() };
            list(&call.server.storage, &scope, options).await
        }
        Method::POST => create::create(call).await,
        _ => collection::delete_collection(call).await,
    }
}

async fn start_watch(call: &Call<'_>) -> Answer<Reply> {
    let form = call.form_in(media::negotiate_stream(call.headers, call.resource().protobuf)?)?;
    let name = if call.info.watch_prefix { call.name() } else { "" };
    let options = ListOptions::parse(call.query, call.resource(), true, name)?;
    let entry = &call.resource().entry;
    let sent = call.server.metrics.watch_events(entry.group, entry.version, call.resource().info().plural);
    let cx = WatchContext { storage: &call.server.storage, cache: call.server.events.clone(), draining: call.server.draining(), sent };
    watch(cx, form, call.namespace(), options).await
}
