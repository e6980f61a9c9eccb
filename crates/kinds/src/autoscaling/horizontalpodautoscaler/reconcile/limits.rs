//! What holds a size back: recent recommendations, and how fast it may change.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules};
use wheelhouse_base::Timestamp;

use super::Sync;
use crate::validation::items;

/// `--horizontal-pod-autoscaler-downscale-stabilization`.
const DOWN_WINDOW: Duration = Duration::from_secs(300);
/// The longest window and period that validation allows; older entries are forgotten.
const LONGEST: Duration = Duration::from_secs(3600);

/// Recommendations and changes of size, with their times.
#[derive(Default)]
pub struct History {
    recommended: Vec<(i32, Timestamp)>,
    changed: Vec<(i32, Timestamp)>,
}

impl History {
    /// The size that is found at first counts as recommended.
    pub fn begin(&mut self, current: i32, now: Timestamp) {
        if self.recommended.is_empty() {
            self.recommended.push((current, now));
        }
    }

    pub fn scaled(&mut self, by: i32, now: Timestamp) {
        self.changed.push((by, now));
    }

    fn forget(&mut self, now: Timestamp) {
        for list in [&mut self.recommended, &mut self.changed] {
            list.retain(|(_, at)| now.since(*at) <= LONGEST);
        }
    }

    fn recommended_within(&self, window: Duration, now: Timestamp) -> impl Iterator<Item = i32> {
        self.recommended.iter().filter(move |(_, at)| now.since(*at) < window).map(|(replicas, _)| *replicas)
    }

    /// How many were added or taken away, in sum, within a period.
    fn change_within(&self, seconds: i32, now: Timestamp) -> i32 {
        let period = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        self.changed.iter().filter(|(_, at)| now.since(*at) < period).map(|(by, _)| by).sum()
    }
}

/// The size that `wanted` leads to now. Says in the conditions what held it back.
pub fn apply(sync: &mut Sync<'_>, current: i32, wanted: i32, history: &mut History) -> i32 {
    history.forget(sync.now);
    let now = sync.now;
    let behavior = sync.autoscaler.spec.behavior.clone();
    let window = |rules: Option<&HPAScalingRules>, default: Duration| {
        let seconds = rules.and_then(|rules| rules.stabilization_window_seconds).and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(default, Duration::from_secs)
    };
    let up = window(behavior.as_ref().and_then(|b| b.scale_up.as_ref()), Duration::ZERO);
    let down = window(behavior.as_ref().and_then(|b| b.scale_down.as_ref()), DOWN_WINDOW);
    // Up to the lowest of the one window, down to the highest of the other.
    let lowest = history.recommended_within(up, now).chain([wanted]).min().unwrap_or(wanted);
    let highest = history.recommended_within(down, now).chain([wanted]).max().unwrap_or(wanted);
    let stable = current.max(lowest).min(highest);
    history.recommended.push((wanted, now));
    if stable == wanted {
        sync.condition("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size");
    } else if stable < wanted {
        let message = "recent recommendations were lower than current one, applying the lowest recent recommendation";
        sync.condition("AbleToScale", "True", "ScaleUpStabilized", message);
    } else {
        let message = "recent recommendations were higher than current one, applying the highest recent recommendation";
        sync.condition("AbleToScale", "True", "ScaleDownStabilized", message);
    }
    let (least, most) = (sync.autoscaler.spec.min_replicas.unwrap_or(1), sync.autoscaler.spec.max_replicas);
    let (ceiling, floor) = match &behavior {
        None => (current.saturating_mul(2).max(4), i32::MIN),
        Some(behavior) => {
            (limit(behavior.scale_up.as_ref(), current, history, now, true), limit(behavior.scale_down.as_ref(), current, history, now, false))
        }
    };
    let (size, reason, message) = if stable > most.min(ceiling) {
        if most > ceiling {
            (ceiling, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
        } else {
            (most, "TooManyReplicas", "the desired replica count is more than the maximum replica count")
        }
    } else if stable < least.max(floor) {
        if least < floor {
            (floor, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
        } else {
            (least, "TooFewReplicas", "the desired replica count is less than the minimum replica count")
        }
    } else {
        (stable, "DesiredWithinRange", "the desired count is within the acceptable range")
    };
    sync.condition("ScalingLimited", if size == stable { "False" } else { "True" }, reason, message);
    size
}

/// The furthest size that the policies of one direction allow now.
fn limit(rules: Option<&HPAScalingRules>, current: i32, history: &History, now: Timestamp, up: bool) -> i32 {
    let Some(rules) = rules else { return if up { i32::MAX } else { i32::MIN } };
    let select = rules.select_policy.as_deref().unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let reach = |policy: &HPAScalingPolicy| {
        let start = current - history.change_within(policy.period_seconds, now);
        let step = match policy.type_.as_str() {
            "Pods" => policy.value,
            _ => percent(start, policy.value),
        };
        if up { start.saturating_add(step) } else { start.saturating_sub(step) }
    };
    let reached = items(&rules.policies).iter().map(reach);
    // `Max` is the largest change.
    let furthest = if up == (select != "Min") { reached.max() } else { reached.min() };
    let furthest = furthest.unwrap_or(current);
    if up { furthest.max(current) } else { furthest.min(current) }
}

/// A percentage of the replicas, so rounded that at least something moves.
fn percent(of: i32, percent: i32) -> i32 {
    let part = i64::from(of) * i64::from(percent);
    let rounded_up = part.div_euclid(100) + i64::from(part.rem_euclid(100) != 0);
    i32::try_from(rounded_up).unwrap_or(i32::MAX)
}
