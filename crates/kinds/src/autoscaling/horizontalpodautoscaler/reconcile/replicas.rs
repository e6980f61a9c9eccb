//! From samples to a number of replicas.
//!
//! The size is the ratio of usage to target times the pods that were measured. Pods without a sample, and pods that are not ready and only warm up their
//! CPU, are then counted in so that they damp the change: as fully used when it shrinks, as idle when it grows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};
use k8s_openapi::api::core::v1::Pod;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::quantity::Quantity;

use super::metrics::milli;
use crate::core::pod::state;
use crate::time::timestamp;
use crate::validation::text;

/// `--horizontal-pod-autoscaler-cpu-initialization-period`.
const CPU_INITIALIZATION: Duration = Duration::from_secs(300);
/// `--horizontal-pod-autoscaler-initial-readiness-delay`.
const INITIAL_READINESS: Duration = Duration::from_secs(30);
/// `--horizontal-pod-autoscaler-tolerance`.
const TOLERANCE: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub milli: i64,
    pub at: Option<Timestamp>,
    pub window: Duration,
}

/// How far from 1 a ratio may be and still change nothing.
#[derive(Clone, Copy)]
pub struct Tolerance {
    up: f64,
    down: f64,
}

impl Tolerance {
    pub fn of(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Self {
        let of = |rules: Option<&HPAScalingRules>| {
            let given = rules.and_then(|rules| rules.tolerance.as_ref()).and_then(|tolerance| Quantity::parse(&tolerance.0).ok());
            given.map_or(TOLERANCE, |tolerance| tolerance.as_f64())
        };
        Self { up: of(behavior.and_then(|b| b.scale_up.as_ref())), down: of(behavior.and_then(|b| b.scale_down.as_ref())) }
    }

    fn holds(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

pub struct Found {
    pub replicas: i32,
    /// Percent, where requests are the measure.
    pub utilization: i32,
    /// Of each measured pod, in thousandths.
    pub average: i64,
}

/// Each pod's request of a resource in thousandths.
pub fn requests(pods: &[Arc<Pod>], resource: &str, container: Option<&str>) -> Result<BTreeMap<String, i64>, String> {
    let mut all = BTreeMap::new();
    for pod in pods {
        let name = text(&pod.metadata.name);
        let mut sum = 0;
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        for one in containers.iter().filter(|one| container.is_none_or(|wanted| one.name == wanted)) {
            let request = one.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get(resource)).and_then(milli);
            sum += request.ok_or_else(|| format!("missing request for {resource} in container {} of Pod {name}", one.name))?;
        }
        all.insert(name.to_owned(), sum);
    }
    Ok(all)
}

struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

fn group(pods: &[Arc<Pod>], samples: &BTreeMap<String, Sample>, is_cpu: bool, now: Timestamp) -> Groups {
    let mut groups = Groups { ready: 0, unready: BTreeSet::new(), missing: BTreeSet::new(), ignored: BTreeSet::new() };
    for pod in pods {
        let name = text(&pod.metadata.name).to_owned();
        if pod.metadata.deletion_timestamp.is_some() || state::phase(pod) == "Failed" {
            groups.ignored.insert(name);
        } else if state::phase(pod) == "Pending" {
            groups.unready.insert(name);
        } else if let Some(sample) = samples.get(&name) {
            if is_cpu && is_warming_up(pod, sample, now) {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.insert(name);
        }
    }
    groups
}

/// Its CPU usage says nothing yet: it is starting, or has never been ready.
fn is_warming_up(pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(timestamp);
    let (Some(ready), Some(started)) = (state::condition(pod, "Ready"), started) else { return true };
    let changed = ready.last_transition_time.as_ref().map(timestamp).unwrap_or_default();
    let is_unready = ready.status == "False";
    if started.plus(CPU_INITIALIZATION) > now {
        is_unready || sample.at.is_some_and(|at| at < changed.plus(sample.window))
    } else {
        is_unready && started.plus(INITIAL_READINESS) > changed
    }
}

/// Against the share of the requests, in percent.
#[allow(clippy::too_many_arguments, reason = "the facts of one calculation")]
pub fn by_utilization(
    pods: &[Arc<Pod>],
    samples: BTreeMap<String, Sample>,
    requests: &BTreeMap<String, i64>,
    percent: i32,
    current: i32,
    tolerance: Tolerance,
    is_cpu: bool,
    now: Timestamp,
) -> Result<Found, String> {
    let share = |values: &BTreeMap<String, i64>| {
        let known = values.iter().filter_map(|(name, value)| requests.get(name).map(|request| (value, request)));
        let (used, requested) = known.fold((0, 0), |(used, requested), (value, request)| (used + value, requested + request));
        if requested == 0 { None } else { Some(used * 100 / requested) }
    };
    let ratio = |values: &BTreeMap<String, i64>| share(values).map(|share| share as f64 / f64::from(percent));
    let full = |name: &str| requests.get(name).copied().unwrap_or(0) * i64::from(percent.max(100)) / 100;
    let (replicas, measured) = damped(pods, samples, current, tolerance, is_cpu, now, &ratio, &full)?;
    let utilization = share(&measured).unwrap_or(0);
    Ok(Found { replicas, utilization: i32::try_from(utilization).unwrap_or(i32::MAX), average: average(&measured) })
}

/// Against a plain number for each pod.
pub fn by_average(
    pods: &[Arc<Pod>],
    samples: BTreeMap<String, Sample>,
    wanted: i64,
    current: i32,
    tolerance: Tolerance,
    is_cpu: bool,
    now: Timestamp,
) -> Result<Found, String> {
    let ratio = |values: &BTreeMap<String, i64>| (!values.is_empty()).then(|| average(values) as f64 / wanted as f64);
    let (replicas, measured) = damped(pods, samples, current, tolerance, is_cpu, now, &ratio, &|_| wanted)?;
    Ok(Found { replicas, utilization: 0, average: average(&measured) })
}

fn average(values: &BTreeMap<String, i64>) -> i64 {
    let count = i64::try_from(values.len()).unwrap_or(i64::MAX).max(1);
    values.values().sum::<i64>() / count
}

/// The size, and the values of the pods that were measured and ready.
#[allow(clippy::too_many_arguments, reason = "the facts of one calculation")]
fn damped(
    pods: &[Arc<Pod>],
    samples: BTreeMap<String, Sample>,
    current: i32,
    tolerance: Tolerance,
    is_cpu: bool,
    now: Timestamp,
    ratio: &dyn Fn(&BTreeMap<String, i64>) -> Option<f64>,
    full: &dyn Fn(&str) -> i64,
) -> Result<(i32, BTreeMap<String, i64>), String> {
    let groups = group(pods, &samples, is_cpu, now);
    let mut values: BTreeMap<String, i64> = samples.into_iter().map(|(name, sample)| (name, sample.milli)).collect();
    values.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
    if values.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let measured = values.clone();
    let first = ratio(&values).ok_or("no metrics returned matched known pods")?;
    let grows_with_unready = !groups.unready.is_empty() && first > 1.0;
    if !grows_with_unready && groups.missing.is_empty() {
        let size = if tolerance.holds(first) { current } else { ceil(first * groups.ready as f64) };
        return Ok((size, measured));
    }
    if first < 1.0 {
        values.extend(groups.missing.iter().map(|name| (name.clone(), full(name))));
    } else if first > 1.0 {
        values.extend(groups.missing.iter().map(|name| (name.clone(), 0)));
    }
    if grows_with_unready {
        values.extend(groups.unready.iter().map(|name| (name.clone(), 0)));
    }
    let second = ratio(&values).unwrap_or(first);
    let turned = (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0);
    let size = ceil(second * values.len() as f64);
    let wrong_way = (second < 1.0 && size > current) || (second > 1.0 && size < current);
    Ok((if tolerance.holds(second) || turned || wrong_way { current } else { size }, measured))
}

/// A value of the whole, against what it should be.
pub fn by_value(pods: &[Arc<Pod>], usage: i64, wanted: i64, current: i32, tolerance: Tolerance) -> i32 {
    let ratio = usage as f64 / wanted as f64;
    if current == 0 {
        return ceil(ratio);
    }
    if tolerance.holds(ratio) {
        return current;
    }
    let ready = pods.iter().filter(|pod| state::phase(pod) == "Running" && state::is_ready(pod)).count();
    ceil(ratio * ready as f64)
}

/// A value that the replicas share, against each one's part. Also answers the part that each has now.
pub fn by_share(usage: i64, wanted: i64, observed: i32, tolerance: Tolerance) -> (i32, i64) {
    let count = i64::from(observed.max(1));
    let ratio = usage as f64 / (wanted as f64 * count as f64);
    let size = if observed > 0 && tolerance.holds(ratio) { observed } else { ceil(usage as f64 / wanted as f64) };
    (size, usage / count + i64::from(usage % count != 0))
}

fn ceil(number: f64) -> i32 {
    number.ceil().clamp(0.0, f64::from(i32::MAX)) as i32
}
