//! What a namespace's labels ask for.

use std::fmt;

use serde_json::Value;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};

const PREFIX: &str = "pod-security.kubernetes.io/";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

/// Which release's rules count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Latest,
    /// The minor of a `v1.N`.
    Minor(u32),
}

/// A level as one release defined it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standard {
    pub level: Level,
    pub version: Version,
}

/// The standard of each mode. Without labels everything is privileged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    pub enforce: Standard,
    pub audit: Standard,
    pub warn: Standard,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

impl Policy {
    /// Reads a namespace's labels. A label that cannot be read fails closed for enforcement and open for the other modes.
    pub fn of(namespace: &Value) -> (Self, ErrorList) {
        let mut errors = ErrorList::new();
        let mut mode = |name: &str, unreadable: Level| {
            let level = label(namespace, name)
                .map(|text| parse_level(text).ok_or_else(|| refuse(name, text, "must be one of privileged, baseline, restricted")));
            let version_label = format!("{name}-version");
            let version = label(namespace, &version_label)
                .map(|text| parse_version(text).ok_or_else(|| refuse(&version_label, text, "must be \"latest\" or \"v1.x\"")));
            let named = matches!(level, Some(Ok(_)));
            let versioned = version.is_some();
            let level = level.transpose().unwrap_or_else(|error| {
                errors.push(error);
                Some(unreadable)
            });
            let version = version.transpose().unwrap_or_else(|error| {
                errors.push(error);
                None
            });
            (Standard { level: level.unwrap_or_default(), version: version.unwrap_or_default() }, named, versioned)
        };
        let (enforce, enforced, _) = mode("enforce", Level::Restricted);
        let (audit, ..) = mode("audit", Level::Privileged);
        let (mut warn, warned, warn_versioned) = mode("warn", Level::Privileged);
        // Whoever enforces without saying what to warn of is warned of the same.
        if enforced && !warned && enforce.level > warn.level {
            warn.level = enforce.level;
            if !warn_versioned {
                warn.version = enforce.version;
            }
        }
        (Self { enforce, audit, warn }, errors)
    }

    /// Nothing to warn of or to note.
    pub fn is_silent(&self) -> bool {
        self.audit.level == Level::Privileged && self.warn.level == Level::Privileged
    }
}

fn label<'a>(namespace: &'a Value, name: &str) -> Option<&'a str> {
    namespace["metadata"]["labels"][format!("{PREFIX}{name}")].as_str()
}

fn refuse(name: &str, value: &str, why: &str) -> FieldError {
    let (metadata, key) = (Path::new("metadata"), format!("{PREFIX}{name}"));
    FieldError::invalid(&metadata.child("labels").key(&key), value, why)
}

fn parse_level(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

fn parse_version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(Version::Latest);
    }
    let minor = text.strip_prefix("v1.")?;
    let canonical = minor == "0" || (!minor.starts_with('0') && !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit()));
    minor.parse().ok().filter(|_| canonical).map(Version::Minor)
}
