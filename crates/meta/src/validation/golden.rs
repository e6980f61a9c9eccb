//! Recorded refusals of metadata by kube-apiserver 1.36. For updates each cause is listed once: the server reports most twice, from the
//! generic check and from the kind's own.

use serde::Deserialize;
use serde_json::Value;

use super::{NameFormat, object_meta_create, object_meta_update};
use crate::field::Path;
use crate::gvk::GroupKind;
use crate::status::{Status, StatusCause};

#[derive(Deserialize)]
struct Case {
    kind: String,
    metadata: Value,
    /// Absent for creates.
    old: Option<Value>,
    causes: Vec<StatusCause>,
}

#[test]
fn metadata_is_refused_as_upstream_does() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../testdata/object_meta.json")).expect("testdata is valid");
    assert!(cases.len() > 10, "the recording is complete");
    for case in cases {
        let path = Path::new("metadata");
        let errors = match &case.old {
            Some(old) => object_meta_update(&case.metadata, old, &path),
            None => {
                let mut metadata = case.metadata.clone();
                metadata["namespace"] = "g".into();
                let format = if case.kind == "Service" { NameFormat::Dns1123Label } else { NameFormat::Dns1123Subdomain };
                object_meta_create(&metadata, true, format, &path)
            }
        };
        let status = Status::invalid(&GroupKind::new("", case.kind), "x", &errors);
        assert_eq!(status.details.map(|d| d.causes), Some(case.causes), "{}", case.metadata);
    }
}
