//! Carries plans out. It makes no choices: operations in order, the first failure ends the plan.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use serde_json::Value;
use wheelhouse_kinds::plan::{Operation, PatchStrategy};
use wheelhouse_kinds::reconciler::Failure;
use wheelhouse_kinds::view::{Key, ResourceName};

use crate::resources::Resources;
use crate::{Api, Client, ClientError, PatchKind};

/// Neighbouring creations or deletions in flight at once: enough to fill a Raft batch, few enough to leave the queue to others.
const MAX_IN_FLIGHT: usize = 32;

/// Executes operations through one client, as that client's identity.
#[derive(Clone)]
pub struct Executor {
    client: Client,
    resources: Arc<Resources>,
    /// Field manager of applies.
    manager: &'static str,
}

impl Executor {
    pub fn new(client: Client, resources: Arc<Resources>, manager: &'static str) -> Self {
        Self { client, resources, manager }
    }

    /// Runs all operations, or up to and including the first run of neighbours in which one fails.
    pub async fn run(&self, operations: &[Operation]) -> Result<(), Failure> {
        for run in operations.chunk_by(independent) {
            let started: Vec<BoxFuture<'_, Result<(), Failure>>> = run.iter().map(|operation| self.apply(operation).boxed()).collect();
            let mut results = stream::iter(started).buffer_unordered(MAX_IN_FLIGHT);
            let mut first = None;
            // Every started request is seen through: a dropped one would leave its outcome unknown.
            while let Some(result) = results.next().await {
                if let Err(failure) = result {
                    first.get_or_insert(failure);
                }
            }
            if let Some(failure) = first {
                return Err(failure);
            }
        }
        Ok(())
    }

    async fn apply(&self, operation: &Operation) -> Result<(), Failure> {
        let (resource, result) = match operation {
            Operation::Create { resource, namespace, object } => (resource, self.api(resource, namespace)?.create::<Value>(object).await),
            Operation::Update { resource, subresource, object } => {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                (resource, self.api(resource, text("namespace"))?.update::<Value>(text("name"), subresource, object).await)
            }
            Operation::Patch { resource, key, subresource, strategy, patch } => {
                let kind = match strategy {
                    PatchStrategy::Json => PatchKind::Json,
                    PatchStrategy::Merge => PatchKind::Merge,
                    PatchStrategy::Strategic => PatchKind::Strategic,
                    PatchStrategy::Apply => PatchKind::Apply,
                };
                (resource, self.at(resource, key)?.patch::<Value>(&key.name, subresource, kind, self.manager, patch).await)
            }
            Operation::Delete { resource, key, options } => {
                let gone = match self.at(resource, key)?.delete(&key.name, options).await {
                    Err(error) if error.is_not_found() => Ok(Value::Null),
                    other => other,
                };
                (resource, gone)
            }
            Operation::Post { resource, key, subresource, object } => {
                (resource, self.at(resource, key)?.post::<Value>(&key.name, subresource, object).await)
            }
        };
        result.map(drop).map_err(|error| failure(resource, &error))
    }

    fn at(&self, resource: &ResourceName, key: &Key) -> Result<Api<'_>, Failure> {
        self.api(resource, &key.namespace)
    }

    fn api(&self, resource: &ResourceName, namespace: &str) -> Result<Api<'_>, Failure> {
        let Some(place) = self.resources.find(resource) else {
            let message = format!("the server does not serve {resource}");
            return Err(Failure { code: 404, reason: "NotFound".into(), message, resource: resource.clone() });
        };
        let namespace = if place.namespaced { namespace } else { "" };
        Ok(self.client.api(&resource.group, &place.version, &resource.plural, namespace))
    }
}

fn independent(a: &Operation, b: &Operation) -> bool {
    matches!((a, b), (Operation::Create { .. }, Operation::Create { .. }) | (Operation::Delete { .. }, Operation::Delete { .. }))
}

fn failure(resource: &ResourceName, error: &ClientError) -> Failure {
    Failure { code: error.code(), reason: error.reason(), message: error.to_string(), resource: resource.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ResponseBody, Transport, TransportError, full_body};
    use async_trait::async_trait;
    use bytes::Bytes;
    use std::sync::Mutex;
    use wheelhouse_kinds::plan::DeleteOptions;
    use wheelhouse_kinds::registry::{Profile, Registry};

    /// Answers every request from a script and keeps what was asked.
    struct Script {
        asked: Mutex<Vec<String>>,
        refuse: &'static str,
    }

    #[async_trait]
    impl Transport for Script {
        async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<ResponseBody>, TransportError> {
            let line = format!("{} {}", request.method(), request.uri());
            let refused = line == self.refuse;
            self.asked.lock().unwrap().push(line);
            let (code, text) = if refused {
                (404, r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"gone","code":404}"#)
            } else {
                (200, "{}")
            };
            Ok(http::Response::builder().status(code).body(full_body(text)).unwrap())
        }
    }

    fn executor(refuse: &'static str) -> (Arc<Script>, Executor) {
        let script = Arc::new(Script { asked: Mutex::default(), refuse });
        let client = Client::new(script.clone());
        (script, Executor::new(client, Resources::new(Arc::new(Registry::new(Profile::Tenant))), "test"))
    }

    const MAPS: ResourceName = ResourceName::new("", "configmaps");

    fn update(name: &str) -> Operation {
        let object = serde_json::json!({"metadata": {"namespace": "a", "name": name}});
        Operation::Update { resource: MAPS, subresource: "", object }
    }

    #[tokio::test]
    async fn the_first_failure_ends_the_plan() {
        let (script, executor) = executor("PUT /api/v1/namespaces/a/configmaps/y");
        let failure = executor.run(&[update("x"), update("y"), update("z")]).await.unwrap_err();
        assert_eq!((failure.code, failure.reason.as_str(), failure.message.as_str()), (404, "NotFound", "gone"));
        assert_eq!(*script.asked.lock().unwrap(), ["PUT /api/v1/namespaces/a/configmaps/x", "PUT /api/v1/namespaces/a/configmaps/y"]);
    }

    #[tokio::test]
    async fn deleting_what_is_gone_is_done() {
        let (_, executor) = executor("DELETE /api/v1/namespaces/a/configmaps/x");
        let delete = Operation::Delete { resource: MAPS, key: Key::new("a", "x"), options: DeleteOptions::default() };
        assert_eq!(executor.run(&[delete]).await, Ok(()));
    }
}
