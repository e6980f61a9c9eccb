//! The built-in types of the served Kubernetes version, loaded once per process on first use and shared by every cluster.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use crate::types::{Name, Schema, Struct, StructRef};

/// Every built-in type, and which kind of which group and version it is.
pub struct Catalog {
    structs: Vec<Struct>,
    by_definition: HashMap<&'static str, u16>,
    kinds: Vec<Kind>,
    by_kind: HashMap<(&'static str, &'static str, &'static str), u16>,
}

/// A top-level object kind. The core group is `""`.
#[derive(Clone, Debug)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub schema: Schema,
}

static CATALOG: OnceLock<Catalog> = OnceLock::new();

/// The shared table; the first call builds it.
pub fn catalog() -> &'static Catalog {
    CATALOG.get_or_init(Catalog::load)
}

/// Machinery kinds that upstream registers in every group and version.
const EVERYWHERE: [&str; 7] = ["DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "GetOptions", "ListOptions", "WatchEvent"];

impl Catalog {
    fn load() -> Catalog {
        let (structs, kinds) = crate::load::load();
        let by_definition = structs.iter().enumerate().map(|(at, s)| (borrowed(&s.definition), at as u16)).collect();
        let by_kind = kinds.iter().enumerate().map(|(at, k)| ((k.group, k.version, k.kind), at as u16)).collect();
        Catalog { structs, by_definition, kinds, by_kind }
    }

    /// The schema of a kind, lists (`PodList`) included. The core group is `""`. Machinery kinds are found in
    /// `meta.k8s.io/v1`, `meta.k8s.io/v1beta1` (Table, partial objects: the same shape) and `v1`, and the options and WatchEvent in every group and version.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Kind> {
        // References are covariant, so the map can be asked with shorter-lived strings.
        let by_kind: &HashMap<(&str, &str, &str), u16> = &self.by_kind;
        let machinery = EVERYWHERE.contains(&kind) || (group.is_empty() && version == "v1") || (group == "meta.k8s.io" && version == "v1beta1");
        by_kind
            .get(&(group, version, kind))
            .or_else(|| machinery.then(|| by_kind.get(&("meta.k8s.io", "v1", kind))).flatten())
            .map(|at| &self.kinds[*at as usize])
    }

    /// The schema of an OpenAPI definition, such as `io.k8s.api.core.v1.PodSpec`.
    pub fn definition(&self, name: &str) -> Option<Schema> {
        self.by_definition.get(name).map(|at| Schema::Struct(StructRef::Builtin(*at)))
    }

    /// `metav1.ObjectMeta`, which every object and every custom resource has.
    pub fn object_meta(&self) -> Schema {
        self.definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("the table holds ObjectMeta: a test reads it")
    }

    /// `metav1.ListMeta`, which every list has.
    pub fn list_meta(&self) -> Schema {
        self.definition("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta").expect("the table holds ListMeta: a test reads it")
    }

    /// apiVersion, kind and metadata: what every object has.
    pub fn partial_object(&self) -> &Schema {
        let found = self.kind("meta.k8s.io", "v1", "PartialObjectMetadata");
        &found.expect("the table holds PartialObjectMetadata: a test reads it").schema
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub fn structs(&self) -> &[Struct] {
        &self.structs
    }

    pub(crate) fn by_index(&self, index: u16) -> &Struct {
        &self.structs[index as usize]
    }
}

/// Built-in names are slices of the table's text.
fn borrowed(name: &Name) -> &'static str {
    match name {
        Cow::Borrowed(text) => text,
        Cow::Owned(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ListKind, Presence, Scalar, Slot};

    fn schema(group: &str, version: &str, kind: &str) -> Schema {
        catalog().kind(group, version, kind).unwrap_or_else(|| panic!("{kind}")).schema.clone()
    }

    #[test]
    fn a_pods_containers_merge_by_name() {
        let pod = schema("", "v1", "Pod");
        let containers = pod.child("spec").unwrap().field("containers").unwrap();
        assert_eq!(containers.merge_key.as_deref(), Some("name"));
        assert!(containers.patch.merge && !containers.patch.retain_keys && containers.required);
        let list = containers.schema.as_list().unwrap();
        assert_eq!((list.kind, list.keys.as_slice()), (ListKind::Map, ["name".into()].as_slice()));
        let ports = list.items.child("ports").unwrap().as_list().unwrap();
        assert_eq!(ports.keys, ["containerPort", "protocol"]);
        assert_eq!(ports.items.field("protocol").unwrap().default.as_deref(), Some(&"TCP".into()));
        assert_eq!(ports.items.field("protocol").unwrap().go_type.as_deref(), Some("v1.Protocol"));
    }

    #[test]
    fn embedded_structs_are_flat_in_json_and_nested_in_protobuf() {
        let pod = schema("", "v1", "Pod");
        let volumes = pod.child("spec").unwrap().child("volumes").unwrap().items().unwrap();
        assert!(volumes.child("hostPath").is_some());
        let layout = &volumes.as_struct().unwrap().layout;
        assert!(matches!(layout[1], Slot::Embedded { number: 2, .. }), "{layout:?}");
        let rules = schema("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy");
        let rule = rules.child("spec").unwrap().child("matchConstraints").unwrap().child("resourceRules").unwrap();
        assert!(rule.items().unwrap().child("apiGroups").is_some(), "embedded two deep");
    }

    #[test]
    fn atomic_parts_are_marked() {
        let service = schema("", "v1", "Service");
        assert!(service.child("spec").unwrap().child("selector").unwrap().is_atomic());
        let deployment = schema("apps", "v1", "Deployment");
        assert!(deployment.child("spec").unwrap().child("selector").unwrap().is_atomic());
        assert!(!deployment.child("metadata").unwrap().child("labels").unwrap().is_atomic());
        assert!(!schema("", "v1", "ConfigMap").child("data").unwrap().is_atomic());
        let volume = schema("", "v1", "PersistentVolume");
        assert!(!volume.child("spec").unwrap().child("claimRef").unwrap().is_atomic(), "a granular field of an atomic type");
        assert!(schema("", "v1", "Event").child("involvedObject").unwrap().is_atomic());
    }

    #[test]
    fn presence_follows_the_tags() {
        let meta = catalog().object_meta();
        assert_eq!(meta.field("creationTimestamp").unwrap().presence, Presence::OmitZero);
        assert_eq!(meta.field("name").unwrap().presence, Presence::OmitEmpty);
        let role = schema("rbac.authorization.k8s.io", "v1", "Role");
        assert_eq!(role.field("rules").unwrap().presence, Presence::Always);
    }

    #[test]
    fn machinery_kinds_are_found_in_every_version() {
        assert!(catalog().kind("apps", "v1", "DeleteOptions").is_some());
        assert!(catalog().kind("", "v1", "Status").is_some());
        assert!(catalog().kind("batch", "v1", "WatchEvent").is_some());
        assert!(catalog().kind("meta.k8s.io", "v1", "PartialObjectMetadataList").is_some());
        assert!(catalog().kind("apps", "v1", "Status").is_none());
        assert!(catalog().kind("", "v1", "PodList").unwrap().schema.child("items").unwrap().items().is_some());
        assert!(matches!(catalog().kind("autoscaling", "v1", "Scale").unwrap().schema.child("spec"), Some(Schema::Struct(_))));
    }

    #[test]
    fn recursive_types_resolve() {
        let crd = schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let version = crd.child("spec").unwrap().child("versions").unwrap().items().unwrap();
        let props = version.child("schema").unwrap().child("openAPIV3Schema").unwrap();
        let nested = props.child("properties").unwrap().child("a").unwrap().child("not").unwrap();
        assert!(matches!(nested.child("type"), Some(Schema::Scalar(Scalar::String))));
    }

    /// What the number of types and the size of the text say about the build; a jump needs a look.
    #[test]
    fn the_whole_table_loads() {
        assert!(catalog().structs().len() > 600);
        assert!(catalog().kinds().len() > 150);
        for kind in catalog().kinds().iter().filter(|k| k.kind != "WatchEvent") {
            assert!(matches!(&kind.schema, Schema::Struct(s) if s.field("kind").is_some()), "{}", kind.kind);
        }
    }
}
