//! `networking.k8s.io/v1`.

pub mod ingress;
pub mod ingressclass;
pub mod networkpolicy;
