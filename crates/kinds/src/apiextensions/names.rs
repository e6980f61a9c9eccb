//! Names of custom resources as `'static` text.
//!
//! [`crate::KindInfo`] names kinds by `'static` text, since nearly all kinds are built in. The names of a custom resource are kept for the life of
//! the process, each distinct one once. What clusters can make a process keep is bounded: a definition whose names do not fit any more is
//! not served until the process restarts.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Bytes of names that a process keeps. Real definitions need about 200 bytes each, so this is more than 100,000 distinct ones.
const MAX_BYTES: usize = 32 * 1024 * 1024;

#[derive(Default)]
struct Kept {
    names: HashSet<&'static str>,
    bytes: usize,
}

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

/// The text, kept for ever; `None` when no more fits.
pub fn keep(text: &str) -> Option<&'static str> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.names.get(text) {
        return Some(known);
    }
    if kept.bytes + text.len() > MAX_BYTES {
        return None;
    }
    let name: &'static str = Box::leak(text.to_owned().into_boxed_str());
    kept.bytes += name.len();
    kept.names.insert(name);
    Some(name)
}

/// The same for a list.
pub fn keep_all<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<&'static [&'static str]> {
    let names: Option<Vec<&'static str>> = texts.into_iter().map(keep).collect();
    let names = names?;
    if names.is_empty() {
        return Some(&[]);
    }
    // A list is told apart from others by its text, so that equal lists are kept once.
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lists.get(names.as_slice()) {
        return Some(known);
    }
    if lists.len() >= MAX_LISTS {
        return None;
    }
    let list: &'static [&'static str] = Box::leak(names.into_boxed_slice());
    lists.insert(list);
    Some(list)
}

/// Distinct lists of short names and categories that a process keeps; each holds pointers only.
const MAX_LISTS: usize = 100_000;

static LISTS: LazyLock<Mutex<HashSet<&'static [&'static str]>>> = LazyLock::new(Mutex::default);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_kept_once() {
        let (first, second) = (keep("apiextensions-test").unwrap(), keep(&String::from("apiextensions-test")).unwrap());
        assert!(std::ptr::eq(first, second));
        let (first, second) = (keep_all(["x", "y"]).unwrap(), keep_all(["x", "y"]).unwrap());
        assert!(std::ptr::eq(first, second));
        assert_eq!(keep_all([]), Some(&[][..]));
    }
}
