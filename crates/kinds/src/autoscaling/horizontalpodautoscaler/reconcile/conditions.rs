//! `AbleToScale`, `ScalingActive` and `ScalingLimited`.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition;

use super::Sync;
use crate::time::api_time;

impl Sync<'_> {
    /// Sets a condition; its time moves with its status alone.
    pub fn condition(&mut self, kind: &str, value: &str, reason: &str, message: &str) {
        let now = api_time(self.now);
        let conditions = self.status.conditions.get_or_insert_default();
        let at = conditions.iter().position(|condition| condition.type_ == kind);
        let since = at.map(|at| &conditions[at]).filter(|old| old.status == value).and_then(|old| old.last_transition_time.clone());
        let fresh = HorizontalPodAutoscalerCondition {
            last_transition_time: since.or(Some(now)),
            message: Some(message.to_owned()),
            reason: Some(reason.to_owned()),
            status: value.to_owned(),
            type_: kind.to_owned(),
        };
        match at {
            Some(at) => conditions[at] = fresh,
            None => conditions.push(fresh),
        }
    }
}
