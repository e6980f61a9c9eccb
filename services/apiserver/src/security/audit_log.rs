//! The audit log of one cluster: JSON lines in a file that is rotated by size.
//!
//! ```text
//! AuditSink::write (never waits) --bounded queue--> AuditLog::run --> audit.log, audit.log.1, audit.log.2 …
//! ```
//!
//! A request never waits for the log's disk. When the disk is slower than the requests for so long that the queue is full, events are
//! dropped and counted, and the next line that is written says how many.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use wheelhouse_access::audit::Event;

/// Events that may wait for the disk: a few seconds of a busy cluster, about 4 MB.
const QUEUE: usize = 4096;

/// Events that are written together.
const BATCH: usize = 256;

/// A file is closed and renamed when it has grown to this size.
const ROTATE_BYTES: u64 = 16 * 1024 * 1024;

/// Files that are kept beside the one being written.
const KEPT_FILES: usize = 3;

/// Where requests put their events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditSink {
    queue: mpsc::Sender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// The writer's side. It ends when the last sink is gone.
pub struct AuditLog {
    queue: mpsc::Receiver<Vec<u8>>,
    dropped: Arc<AtomicU64>,
    file: RotatedFile,
}

/// A log at `path`, which is created with the first event.
pub fn audit_log(path: PathBuf) -> (AuditSink, AuditLog) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let file = RotatedFile { path, open: None, rotate_bytes: ROTATE_BYTES };
    (AuditSink { queue: sender, dropped: dropped.clone() }, AuditLog { queue, dropped, file })
}

impl AuditSink {
    pub fn write(&self, event: &Event) {
        if self.queue.try_send(event.to_line()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events lost since the last line that was written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl AuditLog {
    /// Writes until every sink is dropped.
    pub async fn run(mut self) {
        let mut lines = Vec::with_capacity(BATCH);
        while self.queue.recv_many(&mut lines, BATCH).await > 0 {
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                tracing::error!(dropped, "audit events were lost because the log could not keep up");
            }
            let batch = std::mem::take(&mut lines);
            let mut file = self.file;
            let written = tokio::task::spawn_blocking(move || {
                let result = batch.iter().try_for_each(|line| file.append(line));
                (file, result)
            });
            let Ok((file, result)) = written.await else { return };
            if let Err(error) = result {
                tracing::error!(%error, path = %file.path.display(), "an audit event could not be written");
            }
            self.file = file;
        }
    }
}

/// A file that makes room for itself.
struct RotatedFile {
    path: PathBuf,
    open: Option<(File, u64)>,
    rotate_bytes: u64,
}

impl RotatedFile {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.open.as_ref().is_some_and(|(_, size)| size + line.len() as u64 > self.rotate_bytes) {
            self.open = None;
            self.rotate()?;
        }
        if self.open.is_none() {
            let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            let size = file.metadata()?.len();
            self.open = Some((file, size));
        }
        if let Some((file, size)) = &mut self.open {
            file.write_all(line)?;
            *size += line.len() as u64;
        }
        Ok(())
    }

    fn rotate(&self) -> io::Result<()> {
        for number in (1..KEPT_FILES).rev() {
            rename_if_present(&self.numbered(number), &self.numbered(number + 1))?;
        }
        rename_if_present(&self.path, &self.numbered(1))
    }

    fn numbered(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

fn rename_if_present(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_rotate_and_the_oldest_goes() {
        let folder = std::env::temp_dir().join(format!("wheelhouse-audit-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut file = RotatedFile { path: folder.join("audit.log"), open: None, rotate_bytes: 10 };
        for i in 0..7 {
            file.append(format!("line {i}\n").as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        assert_eq!(read("audit.log").as_deref(), Some("line 6\n"));
        assert_eq!(read("audit.log.1").as_deref(), Some("line 5\n"));
        assert_eq!(read("audit.log.3").as_deref(), Some("line 3\n"));
        assert_eq!(read("audit.log.4"), None);
        // A reopened log goes on where it was.
        let mut file = RotatedFile { path: folder.join("audit.log"), open: None, rotate_bytes: 100 };
        file.append(b"x\n").unwrap();
        assert_eq!(read("audit.log").as_deref(), Some("line 6\nx\n"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
