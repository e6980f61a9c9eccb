//! Drives every kind's reconcilers where the leader is.
//!
//! ```text
//! leadership here -> Controllers::run -> Feed (one View for all) -> one Driver per reconciler
//! leadership lost -> the future is dropped; whatever is still under way is refused by the fence
//! ```
//!
//! The reconcilers themselves are pure and live with their kinds; this crate holds the loop around them and the one that spans all kinds
//! (`garbage_collector`).

pub mod catalog;
pub mod driver;
pub mod effects;
pub mod feed;
pub mod garbage_collector;
pub mod resource_quota;

use std::sync::Arc;

use tokio::task::JoinSet;
use wheelhouse_base::Clock;
use wheelhouse_client::events::EventRecorder;
use wheelhouse_client::executor::Executor;
use wheelhouse_client::resources::Resources;
use wheelhouse_client::{Client, Identity};
use wheelhouse_kinds::reconciler::AnyReconciler;
use wheelhouse_kinds::registry::Registry;
use wheelhouse_store::Store;

pub use catalog::{Selection, SelectionError};

use crate::driver::{Driver, Hands};
use crate::effects::{ApiEffects, EffectHandler};
use crate::feed::{Consumer, Feed};

/// Under this name the API server owns what it writes itself.
const API_SERVER: &str = "kube-apiserver";

/// The controllers of one cluster for the length of one leadership.
pub struct Controllers {
    pub store: Arc<dyn Store>,
    pub registry: Arc<Registry>,
    /// In-process client, already fenced to this leadership; each controller adds its identity.
    pub client: Client,
    pub clock: Arc<dyn Clock>,
    pub effects: Arc<dyn EffectHandler>,
    pub reconcilers: Vec<Arc<dyn AnyReconciler>>,
    /// Others that live off the same view, as the scheduler does.
    pub consumers: Vec<Arc<dyn Consumer>>,
}

impl Controllers {
    /// The feed, and a future that runs it and every controller until the store stops. Subscribe to the feed's view before awaiting.
    pub fn prepare(self) -> (tokio::sync::watch::Receiver<Arc<wheelhouse_kinds::view::View>>, impl Future<Output = ()> + Send) {
        let mut drivers = Vec::new();
        let resources = Resources::new(self.registry);
        for reconciler in self.reconcilers {
            let (identity, agent) = if reconciler.is_part_of_the_server() {
                (Identity::loopback(), API_SERVER)
            } else {
                (Identity::service_account(reconciler.service_account()), reconciler.name())
            };
            let client = self.client.clone().identity(identity).user_agent(agent);
            let hands = Hands {
                store: self.store.clone(),
                executor: Executor::new(client.clone(), resources.clone(), agent),
                recorder: EventRecorder::new(client.clone(), reconciler.component(), self.clock.clone()),
                effects: Arc::new(ApiEffects { client, others: self.effects.clone() }),
            };
            drivers.push((Driver::new(reconciler, self.clock.clone()), Arc::new(hands)));
        }
        let mut consumers = self.consumers;
        consumers.extend(drivers.iter().map(|(driver, _)| driver.clone() as Arc<dyn Consumer>));
        let feed = Feed::new(self.store, resources, consumers);
        let views = feed.subscribe();
        let subscription = views.clone();
        let running = async move {
            let mut tasks = JoinSet::new();
            for (driver, hands) in drivers {
                tasks.spawn(driver.run(hands, subscription.clone()));
            }
            tasks.spawn(feed.run());
            // Dropping the set aborts the tasks: a lost leadership ends them all at once.
            while tasks.join_next().await.is_some() {}
        };
        (views, running)
    }
}
