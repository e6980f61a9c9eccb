//! Probes: when they run, how often they must agree, and what follows. The running itself is in `run`.

mod any;
mod run;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

pub use any::accept_any;
pub use run::{Prober, Target};

/// What a probe is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Startup, Kind::Readiness, Kind::Liveness];

    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Kind::Startup => container.startup_probe.as_ref(),
            Kind::Readiness => container.readiness_probe.as_ref(),
            Kind::Liveness => container.liveness_probe.as_ref(),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Readiness => "Readiness",
            Kind::Liveness => "Liveness",
        }
    }

    /// Whether it runs at this time of a container's life: the startup probe until the container has started, the others from then on.
    pub fn runs(self, started: bool) -> bool {
        (self == Kind::Startup) != started
    }
}

pub fn period(probe: &Probe) -> Duration {
    Duration::from_secs(positive(probe.period_seconds, 10))
}

pub fn timeout(probe: &Probe) -> Duration {
    Duration::from_secs(positive(probe.timeout_seconds, 1))
}

pub fn initial_delay(probe: &Probe) -> Duration {
    Duration::from_secs(u64::try_from(probe.initial_delay_seconds.unwrap_or(0)).unwrap_or(0))
}

fn positive(value: Option<i32>, default: u64) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default)
}

/// Counts equal answers in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    last: Option<bool>,
    times: u64,
}

impl Count {
    /// Takes an answer in; the verdict, once as many in a row as the probe demands agree.
    pub fn observe(&mut self, probe: &Probe, success: bool) -> Option<bool> {
        self.times = if self.last == Some(success) { self.times + 1 } else { 1 };
        self.last = Some(success);
        let needed = if success { positive(probe.success_threshold, 1) } else { positive(probe.failure_threshold, 3) };
        (self.times >= needed).then_some(success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_takes_as_many_answers_in_a_row_as_demanded() {
        let probe = Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Probe::default() };
        let mut count = Count::default();
        let answers = [true, true, false, false, true, false, false, false, false];
        let verdicts: Vec<Option<bool>> = answers.iter().map(|answer| count.observe(&probe, *answer)).collect();
        assert_eq!(verdicts, [None, Some(true), None, None, None, None, None, Some(false), Some(false)]);
    }

    #[test]
    fn the_startup_probe_goes_before_the_others() {
        assert_eq!(Kind::ALL.map(|kind| (kind.runs(false), kind.runs(true))), [(true, false), (false, true), (false, true)]);
    }
}
