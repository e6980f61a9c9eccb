//! The shells of effects.

mod certificates;

pub use certificates::CertificateEffects;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use wheelhouse_client::Client;
use wheelhouse_kinds::plan::{Effect, EffectKind};

/// Executes the closed list of effects. An implementation answers for the kinds it knows.
#[async_trait]
pub trait EffectHandler: Send + Sync + 'static {
    /// The outcome is handed to the next call for the key that asked.
    async fn run(&self, effect: &Effect) -> Result<Value, String>;
}

/// For control planes whose controllers ask for no effects, as tenants' first ones do not.
pub struct NoEffects;

#[async_trait]
impl EffectHandler for NoEffects {
    async fn run(&self, effect: &Effect) -> Result<Value, String> {
        let kind: EffectKind = effect.kind;
        Err(format!("this control plane does not execute {kind:?}"))
    }
}

const NOT_SERVED: &str = "the server could not find the requested resource";

/// Executes what asks the API server, as the controller's own user, and leaves the rest to `others`.
pub struct ApiEffects {
    pub client: Client,
    pub others: Arc<dyn EffectHandler>,
}

#[async_trait]
impl EffectHandler for ApiEffects {
    async fn run(&self, effect: &Effect) -> Result<Value, String> {
        if effect.kind != EffectKind::ReadMetrics {
            return self.others.run(effect).await;
        }
        let path = effect.input["path"].as_str().ok_or("a reading of metrics without a path")?;
        let answer = self.client.read(path).await;
        // A metrics API that nobody serves answers with a bare 404; the words are client-go's.
        answer.map_err(|error| if error.code() == 404 { NOT_SERVED.to_owned() } else { error.to_string() })
    }
}
