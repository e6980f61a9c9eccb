//! IPAddress: an address that is taken, named after it, and what took it.

use k8s_openapi::api::networking::v1::{IPAddress, ParentReference};
use wheelhouse_meta::validation as names;

use crate::prelude::*;

pub struct IPAddressKind;

const PARENT: &str = "io.k8s.api.networking.v1.ParentReference";
/// Where the reference lies, which must be told from an empty one when it is unset.
const PARENT_REF: &str = "/spec/parentRef";

impl TypedKind for IPAddressKind {
    type Object = IPAddress;

    const INFO: KindInfo = KindInfo { short_names: &["ip"], ..KindInfo::cluster("networking.k8s.io", "v1", "IPAddress", "ipaddresses", "ipaddress") };

    const NAME_RULE: NameRule = NameRule::Own;

    const NULLABLE: &'static [&'static str] = &[PARENT_REF];

    fn prepare_create(object: &mut IPAddress, cx: &RequestContext<'_>) -> Verdict {
        validate(object, cx).into()
    }

    fn prepare_update(new: &mut IPAddress, old: &IPAddress, cx: &RequestContext<'_>) -> Verdict {
        let mut errors = validate(new, cx);
        if new.spec != old.spec {
            let spec = Path::new("spec");
            errors.push(FieldError::immutable(&spec.child("parentRef"), validation::untagged(&new.spec.parent_ref, PARENT)));
        }
        errors.into()
    }

    const COLUMNS: &'static [Column] = &[table::NAME, table::text("ParentRef", "What uses the address.")];

    fn row(object: &IPAddress, _: Timestamp) -> Vec<Value> {
        let parent = &object.spec.parent_ref;
        let mut shown = parent.resource.to_lowercase();
        for (before, part) in [(".", text(&parent.group)), ("/", text(&parent.namespace)), ("/", parent.name.as_str())] {
            if !part.is_empty() {
                shown = format!("{shown}{before}{part}");
            }
        }
        vec![table::name(&object.metadata), shown.into()]
    }
}

fn validate(object: &IPAddress, cx: &RequestContext<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    // That there must be a name is said for every kind.
    let name = text(&object.metadata.name);
    if !name.is_empty() {
        errors.extend(names::ip_strict(name, &Path::new("metadata").child("name")));
    }
    let spec = Path::new("spec");
    let path = spec.child("parentRef");
    if cx.raw.is_some_and(|raw| raw.pointer(PARENT_REF).is_none_or(Value::is_null)) {
        errors.push(FieldError::required(&path, ""));
    } else {
        parent(&object.spec.parent_ref, &path, &mut errors);
    }
    errors
}

/// The core group is empty, so a group cannot be asked for.
fn parent(parent: &ParentReference, path: &Path<'_>, errors: &mut ErrorList) {
    let group = text(&parent.group);
    if !group.is_empty() {
        validation::texts(names::dns1123_subdomain(group), group, &path.child("group"), errors);
    }
    for (field, value) in [("resource", parent.resource.as_str()), ("name", parent.name.as_str())] {
        if value.is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        } else {
            validation::texts(names::path_segment_name(value), value, &path.child(field), errors);
        }
    }
    let namespace = text(&parent.namespace);
    if !namespace.is_empty() {
        validation::texts(names::path_segment_name(namespace), namespace, &path.child("namespace"), errors);
    }
}
