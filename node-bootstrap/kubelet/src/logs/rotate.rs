//! Rotation: a log over 10 MiB is set aside and the runtime begins a new one; five files are kept (`containerLogMaxSize`, `containerLogMaxFiles`).

use std::io;
use std::path::{Path, PathBuf};

const MAX_BYTES: u64 = 10 << 20;
const MAX_FILES: usize = 5;

/// Sets the log aside if it is too large; the caller then has the runtime reopen it. `stamp` orders the old files.
pub fn set_aside(log: &Path, stamp: &str) -> io::Result<bool> {
    if std::fs::metadata(log)?.len() < MAX_BYTES {
        return Ok(false);
    }
    let mut old = rotated(log)?;
    // The one that is written and the one that is set aside now count too.
    while old.len() + 2 > MAX_FILES {
        std::fs::remove_file(old.remove(0))?;
    }
    let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    std::fs::rename(log, log.with_file_name(format!("{name}.{stamp}")))?;
    Ok(true)
}

/// Oldest first.
fn rotated(log: &Path) -> io::Result<Vec<PathBuf>> {
    let prefix = format!("{}.", log.file_name().unwrap_or_default().to_string_lossy());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(log.parent().unwrap_or(Path::new("/")))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        for stamp in 10..20 {
            let file = std::fs::File::create(&log).unwrap();
            file.set_len(MAX_BYTES).unwrap();
            assert!(set_aside(&log, &stamp.to_string()).unwrap());
        }
        std::fs::write(&log, "small").unwrap();
        assert!(!set_aside(&log, "99").unwrap());
        let mut names: Vec<String> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["0.log", "0.log.16", "0.log.17", "0.log.18", "0.log.19"]);
    }
}
