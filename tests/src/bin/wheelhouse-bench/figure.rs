//! A reading, printed as one line of JSON.

use std::time::Duration;

use serde_json::json;

/// What was measured. A figure with a peer carries the same reading of the peer from the same run, and how many times better or worse ours is.
pub struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    target: Option<&'static str>,
    peer: Option<(&'static str, f64)>,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, target: None, peer: None }
    }

    /// In milliseconds.
    pub fn time(name: impl Into<String>, value: Duration) -> Self {
        Self::new(name, value.as_secs_f64() * 1e3, "ms")
    }

    /// What the design asks for, in the figure's unit, e.g. `<= 500`.
    pub fn target(self, target: &'static str) -> Self {
        Self { target: Some(target), ..self }
    }

    pub fn peer(self, name: &'static str, value: f64) -> Self {
        Self { peer: Some((name, value)), ..self }
    }

    pub fn print(self) {
        let mut line = json!({"name": self.name, "value": rounded(self.value), "unit": self.unit});
        if let Some(target) = self.target {
            line["target"] = json!(target);
        }
        if let Some((name, value)) = self.peer {
            line["peer"] = json!({"name": name, "value": rounded(value)});
            line["ratio"] = json!(rounded(self.value / value));
        }
        println!("{line}");
    }
}

/// Two decimals: no reading here is steadier than that.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The smallest value that `percent` of the values do not exceed; zero when there are none.
pub fn percentile(values: &[Duration], percent: usize) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<_> = (1..=10).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50), Duration::from_millis(5));
        assert_eq!(percentile(&values, 99), Duration::from_millis(10));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
