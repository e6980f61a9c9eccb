//! What a decoding keeps beside the value: where it is, what was wrong with fields, and the error that ended it.

use std::collections::HashSet;

use serde::de::Error;
use serde_json::Value;

use super::{DecodeError, Decoded, FieldValidation, MAX_DEPTH, MAX_PROBLEMS, MAX_VALUES};

/// What one decoding has seen so far.
pub(super) struct Reading<'a> {
    watch_fields: bool,
    pub(super) trail: Vec<Step<'a>>,
    depth: usize,
    values: usize,
    unknown: Vec<String>,
    /// All problems in the order met.
    problems: Vec<String>,
    seen: HashSet<String>,
    pub(super) error: Option<DecodeError>,
}

/// One step from the root to the value being read.
pub(super) enum Step<'a> {
    Field { name: &'a str, owner: &'a str },
    Key(String),
    Index(usize),
}

impl<'a> Reading<'a> {
    pub(super) fn new(validation: FieldValidation) -> Reading<'a> {
        Reading {
            watch_fields: validation != FieldValidation::Ignore,
            trail: Vec::new(),
            depth: 0,
            values: 0,
            unknown: Vec::new(),
            problems: Vec::new(),
            seen: HashSet::new(),
            error: None,
        }
    }

    /// A custom resource's unknown fields are found by pruning after the decoding, in the order of their names.
    pub(super) fn finish(mut self, value: Value, run_time: bool) -> Decoded {
        if run_time {
            let unknown: HashSet<&String> = self.unknown.iter().collect();
            let mut problems: Vec<String> = self.problems.iter().filter(|p| !unknown.contains(p)).cloned().collect();
            self.unknown.sort();
            problems.append(&mut self.unknown);
            return Decoded { value, problems };
        }
        Decoded { value, problems: self.problems }
    }

    pub(super) fn note_unknown(&mut self, key: &str) {
        if self.watch_fields {
            let text = format!("unknown field \"{}\"", self.path(key));
            if self.note(text.clone()) {
                self.unknown.push(text);
            }
        }
    }

    pub(super) fn note_duplicate(&mut self, key: &str) {
        if self.watch_fields {
            let text = format!("duplicate field \"{}\"", self.path(key));
            self.note(text);
        }
    }

    fn note(&mut self, text: String) -> bool {
        if self.problems.len() >= MAX_PROBLEMS || !self.seen.insert(text.clone()) {
            return false;
        }
        self.problems.push(text);
        true
    }

    /// `spec.containers[0].key`
    fn path(&self, key: &str) -> String {
        let mut path = String::new();
        for step in &self.trail {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Field { name, .. } => push_name(&mut path, name),
                Step::Key(name) => push_name(&mut path, name),
            }
        }
        push_name(&mut path, key);
        path
    }

    /// Go's UnmarshalTypeError: fields by name only, under the innermost struct's.
    pub(super) fn mismatch(&mut self, found: &str, go_type: &str) {
        let mut owner = "";
        let mut path = String::new();
        for step in &self.trail {
            if let Step::Field { name, owner: of } = step {
                push_name(&mut path, name);
                owner = of;
            }
        }
        let text = if owner.is_empty() {
            format!("json: cannot unmarshal {found} into Go value of type {go_type}")
        } else {
            format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {go_type}")
        };
        self.error = Some(DecodeError::Type(text));
    }

    /// Before each value.
    pub(super) fn count<E: Error>(&mut self) -> Result<(), E> {
        self.values += 1;
        if self.values > MAX_VALUES {
            self.error = Some(DecodeError::Type("object has too many values".to_owned()));
            return Err(stopped());
        }
        Ok(())
    }

    /// Before each list, map or struct; [`Reading::leave`] after it.
    pub(super) fn enter<E: Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.error = Some(DecodeError::TooDeep);
            return Err(stopped());
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// The reason is in `Reading::error`.
pub(super) fn stopped<E: Error>() -> E {
    E::custom("stopped")
}
