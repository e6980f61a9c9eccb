//! Writes a set of files so that they change all at once.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use super::payload::Payload;

const DATA: &str = "..data";
const NEXT: &str = "..data_tmp";

/// Makes `folder` hold exactly these files. `stamp` names the new directory and must differ from the last one's. Answers whether anything changed.
pub fn write(folder: &Path, payload: &Payload, group: Option<u32>, stamp: &str) -> io::Result<bool> {
    let current = folder.join(DATA);
    let old: Option<PathBuf> = fs::read_link(&current).ok();
    if old.is_some() && holds(&current, payload)? {
        return Ok(false);
    }
    let name = format!("..{stamp}");
    let fresh = folder.join(&name);
    fs::create_dir_all(&fresh)?;
    own(&fresh, 0o755, group)?;
    for (path, file) in payload {
        let at = fresh.join(path);
        let mut parent = fresh.clone();
        for part in Path::new(path).parent().into_iter().flat_map(Path::components) {
            parent.push(part);
            if !parent.is_dir() {
                fs::create_dir(&parent)?;
                own(&parent, 0o755, group)?;
            }
        }
        fs::write(&at, &file.bytes)?;
        // The group reads what the owner may read: the pod's processes come by it.
        let mode = if group.is_some() { file.mode | (file.mode & 0o400) >> 3 } else { file.mode };
        own(&at, mode, group)?;
    }
    let next = folder.join(NEXT);
    let _ = fs::remove_file(&next);
    symlink(&name, &next)?;
    fs::rename(&next, &current)?;
    link(folder, payload)?;
    if let Some(old) = old.filter(|old| old.as_os_str() != name.as_str()) {
        let _ = fs::remove_dir_all(folder.join(old));
    }
    Ok(true)
}

fn own(path: &Path, mode: u32, group: Option<u32>) -> io::Result<()> {
    if group.is_some() {
        chown(path, None, group)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Whether the current files are these.
fn holds(current: &Path, payload: &Payload) -> io::Result<bool> {
    for (path, file) in payload {
        match fs::read(current.join(path)) {
            Ok(bytes) if bytes == file.bytes => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    let mut count = 0;
    let mut folders = vec![current.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() { folders.push(entry.path()) } else { count += 1 }
        }
    }
    Ok(count == payload.len())
}

/// One link through `..data` for each first part of a path; those of files that went are removed.
fn link(folder: &Path, payload: &Payload) -> io::Result<()> {
    let wanted: BTreeSet<&str> = payload.keys().filter_map(|path| path.split('/').next()).collect();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !wanted.contains(&*name) {
            fs::remove_file(entry.path())?;
        }
    }
    for name in wanted {
        match symlink(format!("{DATA}/{name}"), folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::payload::File;
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        files.iter().map(|(path, text)| ((*path).to_owned(), File { bytes: text.as_bytes().to_vec(), mode: 0o640 })).collect()
    }

    #[test]
    fn files_change_at_once_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| fs::read_to_string(folder.path().join(path));
        assert!(write(folder.path(), &payload(&[("a", "1"), ("d/b", "2")]), None, "1").unwrap());
        assert_eq!((at("a").unwrap().as_str(), at("d/b").unwrap().as_str()), ("1", "2"));
        assert_eq!(fs::metadata(folder.path().join("a")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!write(folder.path(), &payload(&[("a", "1"), ("d/b", "2")]), None, "2").unwrap(), "nothing changed");
        assert!(write(folder.path(), &payload(&[("a", "3")]), None, "3").unwrap());
        assert_eq!(at("a").unwrap(), "3");
        assert!(at("d/b").is_err());
        let left: BTreeSet<String> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left, BTreeSet::from(["..3".to_owned(), "..data".to_owned(), "a".to_owned()]));
    }
}
