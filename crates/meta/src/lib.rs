//! The machinery of the Kubernetes API that knows no kind: names, errors, selectors, quantities, patches and apply.
//!
//! Everything here is a pure function over `serde_json::Value` (whose maps are sorted), with time and randomness passed in. Messages and
//! orders are upstream's, to the byte, because clients parse some of them and users know the rest.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod apply;
pub mod duration;
pub mod field;
pub mod gotext;
pub mod gvk;
pub mod intstr;
pub mod object;
pub mod patch;
pub mod quantity;
pub mod selector;
pub mod status;
pub mod table;
pub mod time;
pub mod validation;

pub use gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use object::Object;
pub use quantity::Quantity;
pub use selector::{FieldSelector, LabelSelector};
pub use status::{Reason, Status};
