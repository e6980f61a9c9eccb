//! Field selectors: equality on the few fields that a kind declares.

use std::fmt;

use crate::gotext::quote;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldOperator {
    Equals,
    NotEquals,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    pub field: String,
    pub operator: FieldOperator,
    pub value: String,
}

/// Why a field selector is refused. The messages are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    #[error("invalid selector: '{selector}'; can't understand '{part}'")]
    NotUnderstood { selector: String, part: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// Upstream prints the number of the character.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(u32),
    /// The kind declares fields, but not this one.
    #[error("field label not supported: {0}")]
    Unsupported(String),
    /// The kind declares no fields of its own.
    #[error("{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", quote(.0))]
    Unknown(String),
}

/// The fields that every kind has.
pub const ONLY_NAME_AND_NAMESPACE: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Conditions on fields, all of which must hold; the default matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    /// `field=value`, as for a watch of one object.
    pub fn equals(field: &str, value: &str) -> Self {
        let requirement = FieldRequirement { field: field.to_owned(), operator: FieldOperator::Equals, value: value.to_owned() };
        Self { requirements: vec![requirement] }
    }

    /// Parses `a=b,c!=d`. A backslash escapes itself, commas and equal signs in values.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|t| !t.is_empty()) {
            let (field, operator, value) =
                split_term(term).ok_or_else(|| FieldSelectorError::NotUnderstood { selector: text.to_owned(), part: term.to_owned() })?;
            let value = unescape(value)?;
            // `=` alone asks for nothing, and upstream drops it.
            if !(field.is_empty() && value.is_empty()) {
                requirements.push(FieldRequirement { field: field.to_owned(), operator, value });
            }
        }
        Ok(Self { requirements })
    }

    /// Refuses fields that the kind does not declare. `declared` has all of them; two are every kind's.
    pub fn check_fields(&self, declared: &[&str]) -> Result<(), FieldSelectorError> {
        let Some(unknown) = self.requirements.iter().find(|r| !declared.contains(&r.field.as_str())) else {
            return Ok(());
        };
        let field = unknown.field.clone();
        let only_common = declared.iter().all(|d| ONLY_NAME_AND_NAMESPACE.contains(d));
        Err(if only_common { FieldSelectorError::Unknown(field) } else { FieldSelectorError::Unsupported(field) })
    }

    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Matches against a list of an object's selectable fields. An absent field has the empty value.
    pub fn matches<F: AsRef<str>, V: AsRef<str>>(&self, fields: &[(F, V)]) -> bool {
        self.matches_by(|name| fields.iter().find(|(f, _)| f.as_ref() == name).map_or("", |(_, v)| v.as_ref()))
    }

    /// Matches against any lookup of fields.
    pub fn matches_by<'v>(&self, lookup: impl Fn(&str) -> &'v str) -> bool {
        self.requirements.iter().all(|r| (lookup(&r.field) == r.value) == (r.operator == FieldOperator::Equals))
    }

    /// The value that the field must have, if the selector names one: lets a list read one key instead of all.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        let matching = |r: &&FieldRequirement| r.field == field && r.operator == FieldOperator::Equals;
        self.requirements.iter().find(matching).map(|r| r.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            let sign = if requirement.operator == FieldOperator::Equals { "=" } else { "!=" };
            let value = requirement.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{}{sign}{value}", requirement.field)?;
        }
        Ok(())
    }
}

/// Splits at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    for (i, _) in term.char_indices() {
        let rest = &term[i..];
        let signs = [("!=", FieldOperator::NotEquals), ("==", FieldOperator::Equals), ("=", FieldOperator::Equals)];
        for (sign, operator) in signs {
            if let Some(value) = rest.strip_prefix(sign) {
                return Some((&term[..i], operator, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(FieldSelectorError::Escape(format!("\\{other}"))),
                None => return Err(FieldSelectorError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(c as u32)),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_match() {
        let fields = [("metadata.name", "a"), ("status.phase", "Running")];
        for (text, matched) in [
            ("", true),
            ("=", true),
            ("metadata.name=a", true),
            ("metadata.name==a,status.phase!=Pending", true),
            ("metadata.name=a,metadata.name=b", false),
            ("absent=", true),
            ("absent!=", false),
            ("metadata.name=a\\,b", false),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(&fields), matched, "{text}");
        }
        let selector = FieldSelector::parse("b!=x\\=y,a=1").unwrap();
        assert_eq!(selector.to_string(), "a=1,b!=x\\=y");
        assert_eq!(selector.requires_exact_match("a"), Some("1"));
        assert_eq!(selector.requires_exact_match("b"), None);
    }

    #[test]
    fn bad_selectors_are_explained() {
        let error = |text: &str| FieldSelector::parse(text).unwrap_err().to_string();
        assert_eq!(error("metadata.name"), "invalid selector: 'metadata.name'; can't understand 'metadata.name'");
        assert_eq!(error("a=b=c"), "invalid field selector: unescaped character in value: 61");
        assert_eq!(error("a=\\x"), "invalid field selector: invalid escape sequence: \\x");
        assert_eq!(error("a=x\\"), "invalid field selector: invalid escape sequence: \\");
        let selector = FieldSelector::parse("data.k=a").unwrap();
        assert_eq!(
            selector.check_fields(&ONLY_NAME_AND_NAMESPACE).unwrap_err().to_string(),
            "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert_eq!(selector.check_fields(&["metadata.name", "spec.nodeName"]).unwrap_err().to_string(), "field label not supported: data.k");
    }
}
