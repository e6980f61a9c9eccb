//! The JSON paths that a definition may contain, in the part of client-go's dialect that upstream lets through: fields, list positions and
//! filters by equality, without wildcards, slices or scripts.
//!
//! ```text
//! .spec.replicas    .status.conditions[?(@.type=="Ready")].status    .metadata.annotations['a.b/c']    .spec.ports[0]
//! ```

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    /// The first item whose field has this text.
    Filter(Vec<String>, Value),
}

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

impl JsonPath {
    /// `None` for what is no simple path that begins with a dot.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.starts_with('.') {
            return None;
        }
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            rest = match rest.strip_prefix('.') {
                Some("") => break,
                Some(after) if after.starts_with('[') => after,
                Some(after) => {
                    let (name, after) = field(after)?;
                    steps.push(Step::Field(name));
                    after
                }
                None => {
                    let (step, after) = bracket(rest.strip_prefix('[')?)?;
                    steps.push(step);
                    after
                }
            };
        }
        Some(Self(steps))
    }

    /// A path of fields alone, as scale and selectable fields have.
    pub fn fields(&self) -> Option<Vec<&str>> {
        let names = self.0.iter().map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }

    pub fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Index(at) => {
                let items = value.as_array()?;
                let at = if *at < 0 { at + i64::try_from(items.len()).ok()? } else { *at };
                items.get(usize::try_from(at).ok()?)
            }
            Step::Filter(path, wanted) => value.as_array()?.iter().find(|item| path.iter().try_fold(*item, |v, name| v.get(name)) == Some(wanted)),
        })
    }
}

/// A field's name up to the next dot or bracket; a backslash takes the next character as it is.
fn field(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => name.push(characters.next()?.1),
            '.' | '[' => return (!name.is_empty()).then_some((name, &text[at..])),
            c if c.is_whitespace() || "]{}()*?'\"".contains(c) => return None,
            c => name.push(c),
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

/// What stands in brackets, and what follows them.
fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix("?(") {
        let end = rest.find(")]")?;
        let (left, right) = rest[..end].split_once("==")?;
        let path = JsonPath::parse(left.trim().strip_prefix('@')?)?;
        let path = path.fields()?.into_iter().map(str::to_owned).collect();
        let right = right.trim();
        let quoted = right.strip_prefix(['"', '\'']).and_then(|r| r.strip_suffix(['"', '\'']));
        let wanted = match quoted {
            Some(text) => Value::from(text),
            None => serde_json::from_str(right).ok()?,
        };
        return Some((Step::Filter(path, wanted), &rest[end + 2..]));
    }
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let end = text[1..].find(quote)? + 1;
        let rest = text[end + 1..].strip_prefix(']')?;
        return Some((Step::Field(text[1..end].to_owned()), rest));
    }
    let end = text.find(']')?;
    Some((Step::Index(text[..end].parse().ok()?), &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn simple_paths_find_one_value() {
        let object = json!({"spec": {"a": 1, "l": [{"t": "x", "v": 2}, {"t": "y", "v": 3}]}, "metadata": {"annotations": {"a.b/c": "d"}}});
        let find = |path: &str| JsonPath::parse(path).unwrap_or_else(|| panic!("{path}")).find(&object).cloned();
        assert_eq!(find(".spec.a"), Some(json!(1)));
        assert_eq!(find(".spec.l[0].v"), Some(json!(2)));
        assert_eq!(find(".spec.l[-1].v"), Some(json!(3)));
        assert_eq!(find(".spec.l[?(@.t==\"y\")].v"), Some(json!(3)));
        assert_eq!(find(".metadata.annotations['a.b/c']"), Some(json!("d")));
        assert_eq!(find(".metadata.annotations.a\\.b/c"), Some(json!("d")));
        assert_eq!((find(".spec.l[7].v"), find(".nope.a")), (None, None));
    }

    #[test]
    fn other_texts_are_no_paths() {
        for text in ["", "spec", "bad[", ".spec[", ".a[x]", ".a..b", ".a b", ".spec[*]", ".a['b", ".[?(@.x)]"] {
            assert_eq!(JsonPath::parse(text), None, "{text}");
        }
    }
}
