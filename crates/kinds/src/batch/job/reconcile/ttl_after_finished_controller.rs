//! `ttl-after-finished-controller`: deletes a finished job once `spec.ttlSecondsAfterFinished` has passed, its pods with it.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;

use super::{JOBS, finished};
use crate::plan::{DeleteOptions, Operation, Plan, Propagation};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::time::timestamp;
use crate::view::{Key, View};

pub struct TtlAfterFinishedController;

impl Reconciler for TtlAfterFinishedController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "ttl-after-finished-controller"
    }

    fn triggers(&self) -> Vec<Trigger> {
        vec![Trigger::itself(JOBS)]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(job) = view.get::<Job>(&key.namespace, &key.name).filter(|job| job.metadata.deletion_timestamp.is_none()) else { return plan };
        let ttl = job.spec.as_ref().and_then(|spec| u64::try_from(spec.ttl_seconds_after_finished?).ok());
        let since = finished(&job).and_then(|condition| condition.last_transition_time.as_ref()).map(timestamp);
        let (Some(ttl), Some(since)) = (ttl, since) else { return plan };
        let due = since.plus(Duration::from_secs(ttl));
        if due > cx.now {
            plan.requeue_no_later_than(due);
            return plan;
        }
        let options = DeleteOptions {
            uid: job.metadata.uid.clone(),
            resource_version: job.metadata.resource_version.clone(),
            propagation: Some(Propagation::Foreground),
            ..DeleteOptions::default()
        };
        plan.operations.push(Operation::Delete { resource: JOBS, key: key.clone(), options });
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{NOW, World, context};

    #[test]
    fn a_finished_job_goes_when_its_time_is_over() {
        let job = |condition: &str| {
            format!(
                r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{{"name":"j","namespace":"a","uid":"j"}},
                "spec":{{"ttlSecondsAfterFinished":60,"template":{{}}}},"status":{{"conditions":[{condition}]}}}}"#
            )
        };
        let ended = |at: &str| job(&format!(r#"{{"type":"Failed","status":"True","lastTransitionTime":"{at}"}}"#));
        let plan = |json: &str| TtlAfterFinishedController.reconcile(&Key::new("a", "j"), World::new().with(json).view(), &context(), &mut ());
        assert!(plan(&job("")).is_empty());
        assert_eq!(plan(&ended("2026-01-01T00:09:30Z")).requeue_at, Some(NOW.plus(Duration::from_secs(30))));
        let [Operation::Delete { options, .. }] = &plan(&ended("2026-01-01T00:09:00Z")).operations[..] else { panic!("it stays") };
        assert_eq!((options.uid.as_deref(), options.propagation), (Some("j"), Some(Propagation::Foreground)));
    }
}
