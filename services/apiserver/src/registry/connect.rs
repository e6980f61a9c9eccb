//! Streams to a pod's containers: `log`, `exec`, `attach`, `portforward`.
//!
//! What can be decided here is: whether the pod, the container and the options make sense, and which node has it. The stream itself is carried
//! by the node's own connection; a node that has none is answered 503.

use http::StatusCode;
use serde_json::Value;
use wheelhouse_meta::Status;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};
use wheelhouse_meta::gvk::GroupKind;

use super::Call;
use super::write::current;
use crate::body::Body;
use crate::request::Answer;
use crate::respond::Reply;

/// 400 for a pod without a node, 503 for a node that is not connected.
pub async fn connect(call: &Call<'_>) -> Answer<Reply> {
    let resource = call.resource();
    let log = call.subresource() == "log";
    if log {
        check_log_options(call)?;
    }
    let snapshot = call.server.storage.linearizable().await?;
    let found = current(resource, &snapshot, &call.key())?;
    let pod = found.ok_or_else(|| Status::not_found(&resource.group_resource, call.name()))?.object;
    if call.subresource() != "portforward" {
        check_container(call, &pod)?;
    }
    let node = pod["spec"]["nodeName"].as_str().unwrap_or("");
    if node.is_empty() {
        if log {
            // Upstream answers a pod that nobody runs yet with no log at all.
            return Ok(Reply::new(StatusCode::NO_CONTENT, "", Body::empty()));
        }
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", call.name())).into());
    }
    Err(Status::service_unavailable(format!("node {node} is not connected")).into())
}

fn check_log_options(call: &Call<'_>) -> Answer<()> {
    let mut errors = ErrorList::new();
    for (name, least) in [("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)] {
        let value = call.query.integer(name)?;
        if let Some(value) = value.filter(|value| *value < least) {
            let why = if least == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" };
            errors.push(FieldError::invalid(&Path::new(name), value, why));
        }
    }
    let set = |name: &str| call.query.first(name).is_some_and(|value| !value.is_empty());
    if set("sinceSeconds") && set("sinceTime") {
        errors.push(FieldError::forbidden(&Path::root(), "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&GroupKind::new("", "PodLogOptions"), call.name(), &errors).into())
}

fn check_container(call: &Call<'_>, pod: &Value) -> Answer<()> {
    let names = |field: &str| -> Vec<String> {
        let containers = pod["spec"][field].as_array().into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str()).map(str::to_owned).collect()
    };
    let (main, init, ephemeral) = (names("containers"), names("initContainers"), names("ephemeralContainers"));
    let asked = call.query.text("container");
    if asked.is_empty() {
        let annotated = &pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"];
        if main.len() <= 1 || annotated.as_str().is_some_and(|name| main.iter().any(|known| known == name)) {
            return Ok(());
        }
        let mut message = format!("a container name must be specified for pod {}, choose one of: [{}]", call.name(), main.join(" "));
        if !init.is_empty() {
            message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
        }
        return Err(Status::bad_request(message).into());
    }
    if main.iter().chain(&init).chain(&ephemeral).any(|known| known == asked) {
        return Ok(());
    }
    Err(Status::bad_request(format!("container {asked} is not valid for pod {}", call.name())).into())
}
