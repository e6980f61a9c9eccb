//! Which controllers there are, and which of them run.

use std::sync::Arc;

use wheelhouse_kinds::core::node::reconcile::NodeIpamController;
use wheelhouse_kinds::reconciler::AnyReconciler;

/// [`with_pods`] for a cluster with the default pod range.
pub fn all(ca: &str) -> Vec<Arc<dyn AnyReconciler>> {
    with_pods(ca, NodeIpamController::default())
}

/// Every cluster's controllers, in no particular order. `ca` is the PEM of the cluster's CA, `pods` allocates from its pod range.
pub fn with_pods(ca: &str, pods: NodeIpamController) -> Vec<Arc<dyn AnyReconciler>> {
    use wheelhouse_kinds::certificates::certificatesigningrequest::reconcile as csr;
    use wheelhouse_kinds::{apiextensions, apiregistration, apps, autoscaling, batch, core, policy, rbac, storage};
    vec![
        Arc::new(apiregistration::apiservice::reconcile::AvailableController),
        Arc::new(apiextensions::customresourcedefinition::reconcile::CrdFinalizer),
        Arc::new(apiextensions::customresourcedefinition::reconcile::NamingConditionController),
        Arc::new(apps::deployment::reconcile::DeploymentController),
        Arc::new(apps::replicaset::reconcile::ReplicaSetController),
        Arc::new(apps::statefulset::reconcile::StatefulSetController),
        Arc::new(apps::daemonset::reconcile::DaemonSetController),
        Arc::new(autoscaling::horizontalpodautoscaler::reconcile::HorizontalPodAutoscalerController),
        Arc::new(batch::job::reconcile::JobController),
        Arc::new(batch::job::reconcile::TtlAfterFinishedController),
        Arc::new(batch::cronjob::reconcile::CronJobController),
        Arc::new(core::replicationcontroller::reconcile::ReplicationControllerController),
        Arc::new(policy::poddisruptionbudget::reconcile::DisruptionController),
        Arc::new(core::pod::reconcile::StaleDisruptionController),
        Arc::new(core::pod::reconcile::EphemeralVolumeController),
        Arc::new(core::node::reconcile::TtlController),
        Arc::new(core::namespace::reconcile::NamespaceController),
        Arc::new(core::namespace::reconcile::RootCaPublisher { ca: ca.to_owned() }),
        Arc::new(core::serviceaccount::reconcile::ServiceAccountController),
        Arc::new(core::service::reconcile::EndpointsController),
        Arc::new(core::service::reconcile::EndpointSliceController),
        Arc::new(core::service::reconcile::EndpointSliceMirroringController),
        Arc::new(core::node::reconcile::NodeLifecycleController),
        Arc::new(core::node::reconcile::TaintEvictionController),
        Arc::new(core::node::reconcile::NodeDepartureController),
        Arc::new(pods),
        Arc::new(core::pod::reconcile::PodGarbageCollector::default()),
        Arc::new(core::persistentvolume::reconcile::PvProtectionController),
        Arc::new(core::persistentvolumeclaim::reconcile::PvcProtectionController),
        Arc::new(storage::volumeattributesclass::reconcile::VacProtectionController),
        Arc::new(crate::garbage_collector::GarbageCollector),
        Arc::new(csr::ApprovingController),
        Arc::new(csr::SigningController),
        Arc::new(csr::CleanerController),
        Arc::new(crate::resource_quota::ResourceQuotaController),
        Arc::new(rbac::clusterrole::reconcile::ClusterRoleAggregation),
    ]
}

/// Upstream's `--controllers`: names to run, `-name` to leave out, `*` for all that are on by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection(Vec<String>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no controller is called {name:?}; there are {known}")]
pub struct SelectionError {
    name: String,
    known: String,
}

impl Default for Selection {
    fn default() -> Self {
        Self(vec!["*".to_owned()])
    }
}

impl Selection {
    /// A comma-separated list, checked against `known`.
    pub fn parse(list: &str, known: &[&str]) -> Result<Self, SelectionError> {
        let names: Vec<String> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        for name in &names {
            let bare = name.strip_prefix('-').unwrap_or(name);
            if bare != "*" && !known.contains(&bare) {
                return Err(SelectionError { name: bare.to_owned(), known: known.join(", ") });
            }
        }
        Ok(Self(names))
    }

    /// Whether a controller runs. What upstream keeps inside the API server is not selected: it always does.
    pub fn takes(&self, reconciler: &dyn AnyReconciler) -> bool {
        reconciler.is_part_of_the_server() || self.runs(reconciler.name())
    }

    /// The first mention decides; `*` takes in whatever is not mentioned.
    pub fn runs(&self, name: &str) -> bool {
        for choice in &self.0 {
            if choice == name {
                return true;
            }
            if choice.strip_prefix('-') == Some(name) {
                return false;
            }
        }
        self.0.iter().any(|choice| choice == "*")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_read_as_upstreams() {
        let known = ["a", "b", "c"];
        let runs = |list: &str| known.into_iter().filter(|name| Selection::parse(list, &known).unwrap().runs(name)).collect::<Vec<_>>();
        assert_eq!(runs("*"), ["a", "b", "c"]);
        assert_eq!(runs("*,-b"), ["a", "c"]);
        assert_eq!(runs("b"), ["b"]);
        assert_eq!(runs("-b"), Vec::<&str>::new());
        assert!(Selection::parse("*,-d", &known).unwrap_err().to_string().contains("\"d\""));
    }
}
