//! The environment variables of services, kept up to date.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service};
use parking_lot::RwLock;

use crate::spec::env::of_services;
use crate::spec::meta;

/// Services by namespace and name; `None` until the API has answered once.
#[derive(Default)]
pub struct Services(RwLock<Option<BTreeMap<(String, String), Service>>>);

impl Services {
    pub fn replace(&self, services: &BTreeMap<(String, String), Service>) {
        *self.0.write() = Some(services.clone());
    }

    /// The variables for a pod; `None` while the services are not known.
    pub fn variables(&self, pod: &Pod) -> Option<BTreeMap<String, String>> {
        let services = self.0.read();
        let services = services.as_ref()?;
        let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
        let namespace = meta(&pod.metadata.namespace);
        let wanted = services.iter().filter(|((of, name), _)| (of == "default" && name == "kubernetes") || (links && of == namespace));
        Some(of_services(wanted.map(|(_, service)| service)))
    }
}
