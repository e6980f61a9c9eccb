//! Reads a container's log, and goes on reading while the container writes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Line, Options, Renderer, tail_start};

/// Handed on at a time.
const CHUNK: usize = 64 << 10;
/// Of a file's end that is looked through for its last lines; lines before it are not counted.
const TAIL_WINDOW: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
#[error("failed to try resolving symlinks in path {path:?}: {source}")]
pub struct LogError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// An open log. Rotation is noticed by the file's number, and the new file is read from its start.
pub struct Reader {
    path: PathBuf,
    file: File,
    number: u64,
    /// Bytes of a line that is not complete yet.
    rest: Vec<u8>,
    renderer: Renderer,
    over: bool,
}

impl Reader {
    pub fn open(path: &Path, options: &Options) -> Result<Self, LogError> {
        let failed = |source| LogError { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if let Some(lines) = options.tail {
            let from = metadata.len().saturating_sub(TAIL_WINDOW);
            file.seek(SeekFrom::Start(from)).map_err(failed)?;
            let mut end = Vec::new();
            (&file).take(TAIL_WINDOW).read_to_end(&mut end).map_err(failed)?;
            let start = tail_start(&end, lines) as u64;
            file.seek(SeekFrom::Start(from + start)).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), number: metadata.ino(), file, rest: Vec::new(), renderer: Renderer::new(options), over: false })
    }

    /// What is there to hand on; empty when there is nothing now.
    pub fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut buffer = vec![0; CHUNK];
        while out.len() < CHUNK && !self.over {
            let count = self.file.read(&mut buffer)?;
            if count == 0 {
                if self.rotated() {
                    continue;
                }
                break;
            }
            self.rest.extend_from_slice(&buffer[..count]);
            self.render(&mut out);
        }
        Ok(out)
    }

    /// No more will be handed on, whatever is written.
    pub fn is_over(&self) -> bool {
        self.over
    }

    fn render(&mut self, out: &mut Vec<u8>) {
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return };
        let complete: Vec<u8> = self.rest.drain(..=end).collect();
        for line in complete.split(|byte| *byte == b'\n').filter_map(Line::parse) {
            if !self.renderer.push(&line, out) {
                self.over = true;
                return;
            }
        }
    }

    /// Whether another file took the name, which is then read.
    fn rotated(&mut self) -> bool {
        let Ok(next) = File::open(&self.path) else { return false };
        let Ok(metadata) = next.metadata() else { return false };
        if metadata.ino() == self.number {
            return false;
        }
        (self.file, self.number) = (next, metadata.ino());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reading_goes_on_over_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let line = |text: &str| format!("2026-01-01T00:00:01Z stdout F {text}\n");
        std::fs::write(&path, line("a") + &line("b")).unwrap();
        let mut reader = Reader::open(&path, &Options { tail: Some(1), ..Options::default() }).unwrap();
        assert_eq!(reader.read().unwrap(), b"b\n");
        assert!(reader.read().unwrap().is_empty());
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(line("c").as_bytes()).unwrap();
        file.write_all(b"2026-01-01T00:00:01Z stdout F half").unwrap();
        assert_eq!(reader.read().unwrap(), b"c\n", "a line comes whole");
        file.write_all(b"way\n").unwrap();
        std::fs::rename(&path, folder.path().join("0.log.1")).unwrap();
        std::fs::write(&path, line("new")).unwrap();
        assert_eq!(reader.read().unwrap(), b"halfway\nnew\n");
        assert!(Reader::open(&folder.path().join("none"), &Options::default()).is_err());
    }
}
