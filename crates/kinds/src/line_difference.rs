//! The difference of two texts in the unified form, line for line the one that upstream's messages show.
//!
//! The lines that both have in common are found as Python's difflib finds them (upstream uses its port to Go): the longest common run first, then the
//! same before and after it. A line that is frequent in a long text begins no run, but a run is lengthened over it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

/// Lines around a change that are shown.
const CONTEXT: usize = 3;

/// Texts of this many lines have frequent lines: those that make up more than a hundredth of it.
const LONG: usize = 200;

/// Comparisons of lines before the rest counts as replaced. Real objects take thousands; the number of comparisons can grow with the cube of the
/// length, which is the client's to choose.
const MAX_STEPS: usize = 20_000_000;

/// One run of lines: kept in both, or some of the old replaced by some of the new.
struct Run {
    old: Range<usize>,
    new: Range<usize>,
    kept: bool,
}

/// The unified difference, each line ended; empty for equal texts.
pub fn unified(old: &[String], new: &[String]) -> String {
    let mut out = String::new();
    let runs = runs(&blocks(old, new), old.len(), new.len());
    let mut at = 0;
    while let Some(first) = (at..runs.len()).find(|i| !runs[*i].kept) {
        let short = |run: &Run| !run.kept || run.old.len() <= 2 * CONTEXT;
        let last = (first..runs.len()).take_while(|i| short(&runs[*i])).filter(|i| !runs[*i].kept).last().unwrap_or(first);
        // The neighbours of a hunk are kept runs, or there are none.
        let before = if first > 0 { runs[first - 1].old.len().min(CONTEXT) } else { 0 };
        let after = runs.get(last + 1).map_or(0, |run| run.old.len().min(CONTEXT));
        let (old_range, new_range) =
            (runs[first].old.start - before..runs[last].old.end + after, runs[first].new.start - before..runs[last].new.end + after);
        let _ = writeln!(out, "@@ -{} +{} @@", place(&old_range), place(&new_range));
        push(&mut out, ' ', &old[old_range.start..runs[first].old.start]);
        for run in &runs[first..=last] {
            if run.kept {
                push(&mut out, ' ', &old[run.old.clone()]);
            } else {
                push(&mut out, '-', &old[run.old.clone()]);
                push(&mut out, '+', &new[run.new.clone()]);
            }
        }
        push(&mut out, ' ', &old[runs[last].old.end..old_range.end]);
        at = last + 1;
    }
    out
}

fn push(out: &mut String, mark: char, lines: &[String]) {
    for line in lines {
        let _ = writeln!(out, "{mark}{line}");
    }
}

/// Where a hunk stands, counted from one.
fn place(lines: &Range<usize>) -> String {
    match lines.len() {
        1 => (lines.start + 1).to_string(),
        0 => format!("{},0", lines.start),
        length => format!("{},{length}", lines.start + 1),
    }
}

/// The runs between and in the common blocks, in order and without a gap.
fn runs(blocks: &[(usize, usize, usize)], old_length: usize, new_length: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (old, new, size) in blocks.iter().copied().chain([(old_length, new_length, 0)]) {
        if i < old || j < new {
            runs.push(Run { old: i..old, new: j..new, kept: false });
        }
        match runs.last_mut() {
            Some(last) if last.kept && size > 0 => (last.old.end, last.new.end) = (old + size, new + size),
            _ if size > 0 => runs.push(Run { old: old..old + size, new: new..new + size, kept: true }),
            _ => {}
        }
        (i, j) = (old + size, new + size);
    }
    runs
}

/// The common blocks in order: start in the old, start in the new, length.
fn blocks(old: &[String], new: &[String]) -> Vec<(usize, usize, usize)> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(at);
    }
    if new.len() >= LONG {
        let frequent = new.len() / 100 + 1;
        places.retain(|_, at| at.len() <= frequent);
    }
    let mut search = Search { old, new, places, steps: 0 };
    let mut found = Vec::new();
    let mut open = vec![(0..old.len(), 0..new.len())];
    while let Some((in_old, in_new)) = open.pop() {
        let (i, j, size) = search.longest(&in_old, &in_new);
        if size == 0 {
            continue;
        }
        found.push((i, j, size));
        open.push((in_old.start..i, in_new.start..j));
        open.push((i + size..in_old.end, j + size..in_new.end));
    }
    found.sort_unstable();
    found
}

struct Search<'a> {
    old: &'a [String],
    new: &'a [String],
    /// Where each line of the new text stands, frequent ones left out.
    places: HashMap<&'a str, Vec<usize>>,
    steps: usize,
}

impl Search<'_> {
    /// The longest common run within two ranges, the first of several; length 0 if there is none.
    fn longest(&mut self, in_old: &Range<usize>, in_new: &Range<usize>) -> (usize, usize, usize) {
        let mut best = (in_old.start, in_new.start, 0);
        // The length of the run that ends at a place of the new text and at the line before of the old one.
        let mut lengths: HashMap<usize, usize> = HashMap::new();
        for i in in_old.clone() {
            let mut next = HashMap::new();
            let places = self.places.get(self.old[i].as_str()).map(Vec::as_slice).unwrap_or_default();
            self.steps += 1;
            for j in places.iter().copied().filter(|j| in_new.contains(j)) {
                self.steps += 1;
                let length = j.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or(0) + 1;
                next.insert(j, length);
                if length > best.2 {
                    best = (i + 1 - length, j + 1 - length, length);
                }
            }
            if self.steps > MAX_STEPS {
                break;
            }
            lengths = next;
        }
        let (mut i, mut j, mut size) = best;
        while i > in_old.start && j > in_new.start && self.old[i - 1] == self.new[j - 1] {
            (i, j, size) = (i - 1, j - 1, size + 1);
        }
        while i + size < in_old.end && j + size < in_new.end && self.old[i + size] == self.new[j + size] {
            size += 1;
        }
        (i, j, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn hunks_are_placed_as_difflib_places_them() {
        assert_eq!(unified(&lines("a b"), &lines("a b")), "");
        assert_eq!(unified(&lines("a"), &lines("b")), "@@ -1 +1 @@\n-a\n+b\n");
        assert_eq!(unified(&lines(""), &lines("a")), "@@ -0,0 +1 @@\n+a\n");
        let expected = "@@ -1,4 +1,4 @@\n-a\n+z\n 1\n 2\n 3\n@@ -6,4 +6,5 @@\n 5\n 6\n 7\n-b\n+y\n+x\n";
        assert_eq!(unified(&lines("a 1 2 3 4 5 6 7 b"), &lines("z 1 2 3 4 5 6 7 y x")), expected);
    }

    #[test]
    fn an_item_put_before_a_longer_one_is_shown_whole() {
        let expected = "@@ -1,4 +1,7 @@\n [\n+{\n+h\n+},\n {\n e\n 1\n";
        assert_eq!(unified(&lines("[ { e 1 2 3 } ]"), &lines("[ { h }, { e 1 2 3 } ]")), expected);
    }

    #[test]
    fn endless_texts_end() {
        let old: Vec<String> = (0..30_000).map(|i| (i % 250).to_string()).collect();
        let new: Vec<String> = (0..30_000).map(|i| (i % 251).to_string()).collect();
        assert!(unified(&old, &new).starts_with("@@ -"));
    }
}
