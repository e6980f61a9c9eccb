//! `root-ca-certificate-publisher-controller`: keeps `kube-root-ca.crt` in every namespace, so that pods can trust the API server.
//! A copy that somebody edits is put right.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::json;

use crate::plan::{Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::view::{Key, ResourceName, View};

const NAMESPACES: ResourceName = ResourceName::new("", "namespaces");
const CONFIG_MAPS: ResourceName = ResourceName::new("", "configmaps");
/// The ConfigMap's name in every namespace.
pub const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service \
                           IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

pub struct RootCaPublisher {
    /// PEM of the cluster's CA.
    pub ca: String,
}

impl Reconciler for RootCaPublisher {
    type Memory = ();

    fn name(&self) -> &'static str {
        "root-ca-certificate-publisher-controller"
    }

    fn service_account(&self) -> &'static str {
        "root-ca-cert-publisher"
    }

    fn triggers(&self) -> Vec<Trigger> {
        let copies = Trigger {
            resource: CONFIG_MAPS,
            keys: |_, change| {
                let ours = &*change.reference.key.name == ROOT_CA;
                if ours { vec![Key::cluster(change.reference.key.namespace.clone())] } else { Vec::new() }
            },
        };
        vec![Trigger::itself(NAMESPACES), copies]
    }

    fn reconcile(&self, key: &Key, view: &View, _: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(namespace) = view.get::<Namespace>("", &key.name) else { return plan };
        if namespace.metadata.deletion_timestamp.is_some() {
            return plan;
        }
        match view.get::<ConfigMap>(&key.name, ROOT_CA) {
            None => {
                let object = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": ROOT_CA, "namespace": &*key.name, "annotations": {"kubernetes.io/description": DESCRIPTION}},
                    "data": {"ca.crt": self.ca},
                });
                plan.operations.push(Operation::Create { resource: CONFIG_MAPS, namespace: key.name.to_string(), object });
            }
            Some(map) if map.data.as_ref().and_then(|data| data.get("ca.crt")) != Some(&self.ca) || map.data.as_ref().map_or(0, |d| d.len()) != 1 => {
                let mut object = serde_json::to_value(&*map).expect("a ConfigMap is plain data");
                object["data"] = json!({"ca.crt": self.ca});
                plan.operations.push(Operation::Update { resource: CONFIG_MAPS, subresource: "", object });
            }
            Some(_) => {}
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};

    const LIVING: &str = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","uid":"n"}}"#;

    fn plan(world: &World) -> Plan {
        RootCaPublisher { ca: "PEM".into() }.reconcile(&Key::cluster("a"), world.view(), &context(), &mut ())
    }

    #[test]
    fn the_certificate_is_published_once_and_mended() {
        assert!(matches!(&plan(&World::new().with(LIVING)).operations[..], [Operation::Create { object, .. }] if object["data"]["ca.crt"] == "PEM"));
        let copy = |ca: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"kube-root-ca.crt","namespace":"a","uid":"c"}},"data":{{"ca.crt":"{ca}"}}}}"#
            )
        };
        assert!(plan(&World::new().with(LIVING).with(&copy("PEM"))).is_empty());
        assert!(
            matches!(&plan(&World::new().with(LIVING).with(&copy("old"))).operations[..], [Operation::Update { object, .. }] if object["data"]["ca.crt"] == "PEM")
        );
    }

    #[test]
    fn a_namespace_that_ends_gets_none() {
        let ending = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","uid":"n","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        assert!(plan(&World::new().with(ending)).is_empty());
    }
}
