//! Prometheus metrics, as text. Small on purpose: counters, gauges and histograms with a bounded number of series.
//!
//! A series that has a `cluster` label belongs to that cluster and goes with it ([`Metrics::drop_cluster`]). A family takes at most
//! [`MAX_SERIES`] series; beyond that the numbers still count, into one series that is not exported, and `wheelhouse_metrics_dropped_series` says so.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Series of one family. Two thousand clusters with ten series each fit.
pub const MAX_SERIES: usize = 20_000;

/// The label by which series belong to clusters.
const CLUSTER: &str = "cluster";

/// What is kept of a cluster's own labels in the text of its host: a few values each, whatever the cluster's users do.
const KEPT: [&str; 8] = ["verb", "code", "request_kind", "priority_level", "reason", "execute", "result", "queue"];

/// Every metric of a process. Clones share it.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Families>>);

#[derive(Default)]
struct Families {
    by_name: BTreeMap<&'static str, Family>,
    dropped: u64,
}

struct Family {
    help: &'static str,
    series: BTreeMap<Vec<(&'static str, String)>, Series>,
}

#[derive(Clone)]
enum Series {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// Only rises.
#[derive(Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn increment(&self) {
        self.add(1);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Adds what may be negative.
    pub fn add(&self, more: f64) {
        // The closure always answers, so the update always happens.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| Some((f64::from_bits(bits) + more).to_bits()));
    }

    pub fn value(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Counts by upper bounds.
#[derive(Clone)]
pub struct Histogram(Arc<HistogramCells>);

struct HistogramCells {
    bounds: &'static [f64],
    /// One for each bound and one for the rest.
    counts: Vec<AtomicU64>,
    /// Of the observed values, in millionths.
    sum: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(HistogramCells { bounds, counts, sum: AtomicU64::new(0) }))
    }

    /// Negative values count as zero.
    pub fn observe(&self, value: f64) {
        let at = self.0.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.0.bounds.len());
        self.0.counts[at].fetch_add(1, Ordering::Relaxed);
        self.0.sum.fetch_add((value.max(0.0) * 1e6) as u64, Ordering::Relaxed);
    }
}

impl Metrics {
    pub fn counter(&self, name: &'static str, help: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        match self.series(name, help, labels, || Series::Counter(Counter::default())) {
            Series::Counter(counter) => counter,
            _ => Counter::default(),
        }
    }

    pub fn gauge(&self, name: &'static str, help: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        match self.series(name, help, labels, || Series::Gauge(Gauge::default())) {
            Series::Gauge(gauge) => gauge,
            _ => Gauge::default(),
        }
    }

    /// `bounds` ascend.
    pub fn histogram(&self, name: &'static str, help: &'static str, bounds: &'static [f64], labels: &[(&'static str, &str)]) -> Histogram {
        match self.series(name, help, labels, || Series::Histogram(Histogram::new(bounds))) {
            Series::Histogram(histogram) => histogram,
            _ => Histogram::new(bounds),
        }
    }

    fn series(&self, name: &'static str, help: &'static str, labels: &[(&'static str, &str)], new: impl FnOnce() -> Series) -> Series {
        let mut families = self.0.lock();
        let key: Vec<(&'static str, String)> = labels.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        let family = families.by_name.entry(name).or_insert_with(|| Family { help, series: BTreeMap::new() });
        if let Some(found) = family.series.get(&key) {
            return found.clone();
        }
        let fresh = new();
        if family.series.len() < MAX_SERIES {
            family.series.insert(key, fresh.clone());
        } else {
            families.dropped += 1;
        }
        fresh
    }

    /// Forgets every series of a cluster. Handles that are still held count on, unseen.
    pub fn drop_cluster(&self, cluster: &str) {
        for family in self.0.lock().by_name.values_mut() {
            family.series.retain(|labels, _| !labels.iter().any(|(k, v)| *k == CLUSTER && v == cluster));
        }
    }

    /// The text exposition format, version 0.0.4.
    pub fn render(&self) -> String {
        self.render_with(&[])
    }

    /// The same with what clusters count for themselves, by name of the cluster. Of their labels those of [`KEPT`] stay, and series that differ
    /// in the others are added up.
    pub fn render_with(&self, clusters: &[(String, Metrics)]) -> String {
        let mut text = Text::default();
        text.take(self, None);
        for (cluster, metrics) in clusters {
            text.take(metrics, Some(cluster));
        }
        text.render(self.0.lock().dropped)
    }
}

/// Values at one moment, on their way to text.
#[derive(Default)]
struct Text(BTreeMap<&'static str, (&'static str, BTreeMap<Vec<(&'static str, String)>, Value>)>);

enum Value {
    Counter(u64),
    Gauge(f64),
    Histogram { bounds: &'static [f64], counts: Vec<u64>, sum: u64 },
}

impl Value {
    fn of(series: &Series) -> Self {
        match series {
            Series::Counter(counter) => Value::Counter(counter.value()),
            Series::Gauge(gauge) => Value::Gauge(gauge.value()),
            Series::Histogram(histogram) => Value::Histogram {
                bounds: histogram.0.bounds,
                counts: histogram.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
                sum: histogram.0.sum.load(Ordering::Relaxed),
            },
        }
    }

    /// Adds another of the same family.
    fn add(&mut self, other: Self) {
        match (self, other) {
            (Value::Counter(total), Value::Counter(more)) => *total += more,
            (Value::Gauge(total), Value::Gauge(more)) => *total += more,
            (Value::Histogram { counts, sum, .. }, Value::Histogram { counts: more, sum: more_sum, .. }) => {
                counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
                *sum += more_sum;
            }
            _ => {}
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Value::Counter(_) => "counter",
            Value::Gauge(_) => "gauge",
            Value::Histogram { .. } => "histogram",
        }
    }
}

impl Text {
    fn take(&mut self, metrics: &Metrics, cluster: Option<&str>) {
        for (name, family) in &metrics.0.lock().by_name {
            let (_, series) = self.0.entry(name).or_insert_with(|| (family.help, BTreeMap::new()));
            for (labels, value) in &family.series {
                let labels = match cluster {
                    None => labels.clone(),
                    Some(cluster) => {
                        let kept = labels.iter().filter(|(label, _)| KEPT.contains(label)).cloned();
                        std::iter::once((CLUSTER, cluster.to_owned())).chain(kept).collect()
                    }
                };
                let value = Value::of(value);
                match series.entry(labels) {
                    Entry::Occupied(mut there) => there.get_mut().add(value),
                    Entry::Vacant(place) => {
                        place.insert(value);
                    }
                }
            }
        }
    }

    fn render(&self, dropped: u64) -> String {
        let mut out = String::new();
        for (name, (help, series)) in &self.0 {
            let Some(first) = series.values().next() else { continue };
            // Writing to a string does not fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {}", first.kind());
            for (labels, value) in series {
                write_series(&mut out, name, labels, value);
            }
        }
        if dropped > 0 {
            let _ = writeln!(out, "# TYPE wheelhouse_metrics_dropped_series counter\nwheelhouse_metrics_dropped_series {dropped}");
        }
        out
    }
}

fn write_series(out: &mut String, name: &str, labels: &[(&'static str, String)], value: &Value) {
    match value {
        Value::Counter(count) => {
            let _ = writeln!(out, "{name}{} {count}", braces(labels, None));
        }
        Value::Gauge(value) => {
            let _ = writeln!(out, "{name}{} {value}", braces(labels, None));
        }
        Value::Histogram { bounds, counts, sum } => {
            let mut total = 0;
            for (at, count) in counts.iter().enumerate() {
                total += count;
                let bound = bounds.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
                let _ = writeln!(out, "{name}_bucket{} {total}", braces(labels, Some(&bound)));
            }
            let sum = *sum as f64 / 1e6;
            let _ = writeln!(out, "{name}_sum{plain} {sum}\n{name}_count{plain} {total}", plain = braces(labels, None));
        }
    }
}

fn braces(labels: &[(&'static str, String)], bound: Option<&str>) -> String {
    let escape = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut parts: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
    parts.extend(bound.map(|b| format!("le=\"{b}\"")));
    if parts.is_empty() { String::new() } else { format!("{{{}}}", parts.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_prometheus() {
        let metrics = Metrics::default();
        metrics.counter("a_total", "Things.", &[("cluster", "c-\"1")]).add(3);
        let histogram = metrics.histogram("b_seconds", "Waits.", &[0.1, 1.0], &[]);
        for value in [0.05, 0.5, 5.0] {
            histogram.observe(value);
        }
        let expected = "# HELP a_total Things.\n# TYPE a_total counter\na_total{cluster=\"c-\\\"1\"} 3\n\
            # HELP b_seconds Waits.\n# TYPE b_seconds histogram\nb_seconds_bucket{le=\"0.1\"} 1\nb_seconds_bucket{le=\"1\"} 2\n\
            b_seconds_bucket{le=\"+Inf\"} 3\nb_seconds_sum 5.55\nb_seconds_count 3\n";
        assert_eq!(metrics.render(), expected);
    }

    #[test]
    fn a_cluster_takes_its_series_along() {
        let metrics = Metrics::default();
        let held = metrics.counter("a_total", "", &[("cluster", "c-1")]);
        metrics.counter("a_total", "", &[("cluster", "c-2")]).increment();
        metrics.drop_cluster("c-1");
        held.increment();
        assert!(!metrics.render().contains("c-1") && metrics.render().contains("c-2"));
        metrics.drop_cluster("c-2");
        assert_eq!(metrics.render(), "");
    }

    #[test]
    fn a_host_tells_what_its_clusters_count() {
        let (host, cluster) = (Metrics::default(), Metrics::default());
        host.counter("a_total", "Things.", &[]).add(1);
        for resource in ["pods", "nodes"] {
            cluster.counter("a_total", "Things.", &[("verb", "GET"), ("resource", resource)]).add(2);
            cluster.histogram("b_seconds", "", &[1.0], &[("resource", resource)]).observe(0.5);
        }
        let text = host.render_with(&[("c-1".to_owned(), cluster)]);
        assert!(text.contains("a_total 1\na_total{cluster=\"c-1\",verb=\"GET\"} 4\n"), "{text}");
        assert!(text.contains("b_seconds_bucket{cluster=\"c-1\",le=\"1\"} 2\n"), "{text}");
        assert_eq!(text.matches("# TYPE a_total").count(), 1);
    }

    #[test]
    fn series_are_bounded() {
        let metrics = Metrics::default();
        for i in 0..MAX_SERIES + 5 {
            metrics.counter("a_total", "", &[("n", &i.to_string())]).increment();
        }
        assert!(metrics.render().contains("wheelhouse_metrics_dropped_series 5"));
    }
}
