//! Controllers that are keyed by a definition. Upstream runs them inside the API server, so they act as it and no selection leaves them out.

mod crd_finalizer;
mod naming_condition_controller;

pub use crd_finalizer::CrdFinalizer;
pub use naming_condition_controller::NamingConditionController;

use crate::view::ResourceName;

const DEFINITIONS: ResourceName = ResourceName::new("apiextensions.k8s.io", "customresourcedefinitions");
