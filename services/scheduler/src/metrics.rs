//! What the scheduler counts, under upstream's names.

use std::time::Duration;

use wheelhouse_runtime::Metrics;

use crate::pod::DEFAULT_SCHEDULER;
use crate::queue::Waiting;

/// Upstream's buckets: from one millisecond, doubling.
const SECONDS: &[f64] = &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// Victims of one preemption.
const VICTIMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    Scheduled,
    Unschedulable,
    /// The binding was not written.
    Error,
}

impl Attempt {
    fn as_str(self) -> &'static str {
        match self {
            Attempt::Scheduled => "scheduled",
            Attempt::Unschedulable => "unschedulable",
            Attempt::Error => "error",
        }
    }
}

#[derive(Clone)]
pub struct SchedulerMetrics(Metrics);

impl SchedulerMetrics {
    /// Counts into `metrics`, which belong to the cluster.
    pub fn new(metrics: Metrics) -> Self {
        Self(metrics)
    }

    /// An attempt to schedule a pod, from taking it up to its binding or its refusal.
    pub fn attempted(&self, attempt: Attempt, took: Duration) {
        let labels = [("result", attempt.as_str()), ("profile", DEFAULT_SCHEDULER)];
        self.0.counter("scheduler_schedule_attempts_total", "Attempts to schedule pods, by result.", &labels).increment();
        let help = "Time of an attempt to schedule a pod, in seconds, binding included.";
        self.0.histogram("scheduler_scheduling_attempt_duration_seconds", help, SECONDS, &labels).observe(took.as_secs_f64());
    }

    /// A decision about one pod.
    pub fn decided(&self, took: Duration) {
        let help = "Time of a decision about a pod, in seconds.";
        self.0.histogram("scheduler_scheduling_algorithm_duration_seconds", help, SECONDS, &[]).observe(took.as_secs_f64());
    }

    /// Pods are to make room for another.
    pub fn preempted(&self, victims: usize) {
        self.0.counter("scheduler_preemption_attempts_total", "Attempts to make room for a pod by evicting others.", &[]).increment();
        self.0.histogram("scheduler_preemption_victims", "Pods chosen to make room for one.", VICTIMS, &[]).observe(victims as f64);
    }

    pub fn waiting(&self, waiting: Waiting) {
        let Waiting { active, backoff, unschedulable, gated } = waiting;
        for (queue, pods) in [("active", active), ("backoff", backoff), ("unschedulable", unschedulable), ("gated", gated)] {
            self.0.gauge("scheduler_pending_pods", "Pods that wait, by queue.", &[("queue", queue)]).set(pods as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_and_queues_are_told_under_upstreams_names() {
        let all = Metrics::default();
        let metrics = SchedulerMetrics::new(all.clone());
        metrics.attempted(Attempt::Scheduled, Duration::from_millis(3));
        metrics.waiting(Waiting { active: 2, backoff: 0, unschedulable: 1, gated: 0 });
        let text = all.render();
        assert!(text.contains("scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1"), "{text}");
        assert!(text.contains("scheduler_pending_pods{queue=\"active\"} 2"), "{text}");
    }
}
