//! Sets of completion indexes, as `status.completedIndexes` writes them: `0,2-5,7,8`.

use std::fmt;

/// Ordered intervals, both ends included, that neither overlap nor touch. A job may have a billion completions, so members are not held one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Reads what is below `limit`; what does not read is left out.
    pub fn parse(text: &str, limit: u32) -> Self {
        let mut indexes = Self::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { continue };
            if first <= last && first < limit {
                indexes.insert(first, last.min(limit - 1));
            }
        }
        indexes
    }

    /// Adds all from `first` to `last`.
    pub fn insert(&mut self, mut first: u32, mut last: u32) {
        let from = self.0.partition_point(|interval| interval.1.saturating_add(1) < first);
        let to = self.0.partition_point(|interval| interval.0 <= last.saturating_add(1));
        if let (Some(left), Some(right)) = (self.0.get(from), to.checked_sub(1).and_then(|at| self.0.get(at)))
            && from < to
        {
            first = first.min(left.0);
            last = last.max(right.1);
        }
        self.0.splice(from..to.max(from), [(first, last)]);
    }

    pub fn contains(&self, index: u32) -> bool {
        let at = self.0.partition_point(|interval| interval.1 < index);
        self.0.get(at).is_some_and(|interval| interval.0 <= index)
    }

    pub fn total(&self) -> i32 {
        let total: u64 = self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        i32::try_from(total).unwrap_or(i32::MAX)
    }

    /// How many are in both.
    pub fn common(&self, other: &Self) -> i32 {
        let mut total = 0u64;
        for (first, last) in &self.0 {
            let overlapping = other.0.iter().filter(|(from, to)| from <= last && to >= first);
            total += overlapping.map(|(from, to)| u64::from(to.min(last) - from.max(first)) + 1).sum::<u64>();
        }
        i32::try_from(total).unwrap_or(i32::MAX)
    }

    /// The first `count` indexes below `limit` that are not in the set.
    pub fn missing(&self, count: usize, limit: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut next = 0;
        for (first, last) in self.0.iter().copied().chain([(limit, u32::MAX)]) {
            let room = count - found.len();
            found.extend((next..first.min(limit)).take(room));
            next = last.saturating_add(1);
        }
        found
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_read_and_write_as_upstreams() {
        let shown = |text: &str| Indexes::parse(text, 100).to_string();
        assert_eq!(shown("0,2-5,7,8"), "0,2-5,7,8");
        assert_eq!(shown("3,1,2,x,98-200"), "1-3,98,99");
        assert_eq!(shown(""), "");
        let mut set = Indexes::parse("1-3,5-6,9", 100);
        set.insert(4, 4);
        assert_eq!((set.to_string().as_str(), set.total()), ("1-6,9", 7));
        set.insert(0, 20);
        assert_eq!(set.to_string(), "0-20");
    }

    #[test]
    fn what_is_missing_comes_in_order() {
        let set = Indexes::parse("0,2-5,7", 100);
        assert_eq!(set.missing(3, 100), [1, 6, 8]);
        assert_eq!(set.missing(5, 8), [1, 6]);
        assert!(set.contains(4) && !set.contains(6) && !set.contains(50));
        assert_eq!(set.common(&Indexes::parse("3-7,9", 100)), 4);
    }
}
