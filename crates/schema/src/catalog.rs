//! The built-in types of the served Kubernetes version, loaded once per process on first use and shared by every cluster.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::types::{Schema, Struct, StructRef};

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

impl Catalog {
    fn load() -> Catalog {
        Catalog { structs: Vec::new(), by_definition: HashMap::new(), kinds: Vec::new(), by_kind: HashMap::new() }
    }

    /// The schema of a kind, lists (`PodList`) and meta/v1 kinds (`DeleteOptions`, `Status`; in group `""` and `meta.k8s.io`) included.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Kind> {
        // The map's keys are 'static; a lookup by shorter-lived strings is fine through the shared covariant lifetime.
        let by_kind: &HashMap<(&str, &str, &str), u16> = &self.by_kind;
        by_kind.get(&(group, version, kind)).map(|at| &self.kinds[*at as usize])
    }

    /// The schema of an OpenAPI definition, such as `io.k8s.api.core.v1.PodSpec`.
    pub fn definition(&self, name: &str) -> Option<Schema> {
        self.by_definition.get(name).map(|at| Schema::Struct(StructRef::Builtin(*at)))
    }

    /// `metav1.ObjectMeta`, which every object and every custom resource has.
    pub fn object_meta(&self) -> Schema {
        self.definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("the table holds ObjectMeta: a test reads it")
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
