//! Containers' logs: reading them as `kubectl logs` asks, and rotating them.
//!
//! The runtime writes `<time> <stream> <P|F> <text>` lines (the CRI log format) into `<pod>/<container>/<attempt>.log`; a line that it had to cut is marked
//! `P`, and goes on in the next.

mod read;
pub mod rotate;

use wheelhouse_base::Timestamp;

pub use read::{LogError, Reader};

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub follow: bool,
    /// Only the last so many lines.
    pub tail: Option<usize>,
    pub since: Option<Timestamp>,
    pub timestamps: bool,
    pub limit_bytes: Option<usize>,
}

/// One line of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// RFC 3339, as the runtime wrote it.
    pub time: &'a str,
    pub stream: &'a str,
    /// Whether the container's line ends here.
    pub full: bool,
    pub text: &'a [u8],
}

impl<'a> Line<'a> {
    /// `None` for what is no line of the format, as after a machine went down while one was written.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(parts.next()?).ok();
        let (time, stream, tag) = (word()?, word()?, word()?);
        let text = parts.next().unwrap_or_default();
        if !matches!(stream, "stdout" | "stderr") {
            return None;
        }
        Some(Self { time, stream, full: tag.split(':').next() != Some("P"), text })
    }

    fn at(&self) -> Option<Timestamp> {
        self.time.parse::<jiff::Timestamp>().ok().map(|at| Timestamp::from_micros(at.as_microsecond()))
    }
}

/// Turns lines into what the user reads.
#[derive(Clone, Debug)]
pub struct Renderer {
    options: Options,
    left: Option<usize>,
    /// The last piece did not end its line: no timestamp before the next.
    inside: bool,
}

impl Renderer {
    pub fn new(options: &Options) -> Self {
        Self { left: options.limit_bytes, options: options.clone(), inside: false }
    }

    /// Appends the line; answers whether more may follow.
    pub fn push(&mut self, line: &Line<'_>, out: &mut Vec<u8>) -> bool {
        if self.options.since.is_some_and(|since| line.at().is_some_and(|at| at < since)) {
            return true;
        }
        let start = out.len();
        if self.options.timestamps && !self.inside {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if line.full {
            out.push(b'\n');
        }
        self.inside = !line.full;
        let Some(left) = &mut self.left else { return true };
        let added = out.len() - start;
        if added >= *left {
            out.truncate(start + *left);
            *left = 0;
            return false;
        }
        *left -= added;
        true
    }
}

/// Where the last `lines` whole lines of a text begin; a line that was cut counts once.
pub fn tail_start(text: &[u8], lines: usize) -> usize {
    if lines == 0 {
        return text.len();
    }
    let mut starts: Vec<usize> = Vec::new();
    let (mut at, mut inside) = (0, false);
    for piece in text.split_inclusive(|byte| *byte == b'\n') {
        if !inside {
            starts.push(at);
        }
        inside = Line::parse(piece.strip_suffix(b"\n").unwrap_or(piece)).is_some_and(|line| !line.full);
        at += piece.len();
    }
    starts[..].iter().rev().nth(lines - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] =
        b"2026-01-01T00:00:01.5Z stdout F one\n2026-01-01T00:00:02Z stderr P tw\n2026-01-01T00:00:02Z stderr F o\n2026-01-01T00:00:03Z stdout F \n";

    fn render(options: &Options, from: usize) -> String {
        let (mut renderer, mut out) = (Renderer::new(options), Vec::new());
        for line in LOG[from..].split(|byte| *byte == b'\n').filter_map(Line::parse) {
            if !renderer.push(&line, &mut out) {
                break;
            }
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_come_as_the_container_wrote_them() {
        assert_eq!(render(&Options::default(), 0), "one\ntwo\n\n");
        let timestamps = Options { timestamps: true, ..Options::default() };
        assert_eq!(render(&timestamps, 0), "2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:02Z two\n2026-01-01T00:00:03Z \n");
        let since = Options { since: Some(Timestamp::from_secs(1_767_225_602)), ..Options::default() };
        assert_eq!(render(&since, 0), "two\n\n");
        assert_eq!(render(&Options { limit_bytes: Some(5), ..Options::default() }, 0), "one\nt");
    }

    #[test]
    fn a_cut_line_is_one_of_the_last() {
        let last = |lines| render(&Options::default(), tail_start(LOG, lines));
        assert_eq!((last(0), last(1), last(2), last(9)), (String::new(), "\n".into(), "two\n\n".into(), "one\ntwo\n\n".into()));
        assert_eq!(Line::parse(b"garbage"), None);
    }
}
