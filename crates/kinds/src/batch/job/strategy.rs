//! What the server adds to a new Job.

use k8s_openapi::api::batch::v1::{Job, JobStatus};

use crate::prelude::*;

/// The label that a job's selector asks for.
pub const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// The labels of a job's pods, in the order in which they are checked: the older names and the prefixed ones.
pub fn pod_labels(object: &Job) -> [(&'static str, String); 4] {
    let (uid, name) = (text(&object.metadata.uid).to_owned(), text(&object.metadata.name).to_owned());
    [("controller-uid", uid.clone()), ("job-name", name.clone()), (CONTROLLER_UID, uid), ("batch.kubernetes.io/job-name", name)]
}

pub fn create(object: &mut Job) {
    object.status = Some(JobStatus::default());
    let labels = pod_labels(object);
    let Some(spec) = object.spec.as_mut() else { return };
    if spec.manual_selector == Some(true) {
        return;
    }
    let uid = labels[0].1.clone();
    let of_pods = spec.template.metadata.get_or_insert_default().labels.get_or_insert_default();
    // Labels that a job took over from its template stay the same as the template's. A job without any takes them over when it is next
    // defaulted, which upstream's store does as soon as it reads the job back.
    let of_job = object.metadata.labels.as_ref();
    let shared = of_job.is_none_or(|labels| labels.is_empty() || labels == &*of_pods);
    for (key, value) in labels {
        of_pods.entry(key.to_owned()).or_insert(value);
    }
    if shared {
        object.metadata.labels = Some(of_pods.clone());
    }
    let selector = spec.selector.get_or_insert_default();
    selector.match_labels.get_or_insert_default().entry(CONTROLLER_UID.to_owned()).or_insert(uid);
}
