//! The part of a field selector that authorization looks at.

use crate::attributes::FieldRequirement;

/// Requirements of a field selector, with `\`-escapes undone. An unparsable selector has none; the registry refuses it later with 400.
pub fn parse(text: &str) -> Vec<FieldRequirement> {
    let mut requirements = Vec::new();
    for term in split_unescaped(text) {
        if term.is_empty() {
            continue;
        }
        let Some((field, negated, value)) = split_term(&term) else { return Vec::new() };
        let Some(value) = unescape(value) else { return Vec::new() };
        requirements.push(FieldRequirement { field: field.to_owned(), negated, value });
    }
    requirements
}

fn split_unescaped(text: &str) -> Vec<String> {
    let (mut terms, mut term, mut escaped) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            _ if escaped => {
                escaped = false;
                term.push(c);
            }
            '\\' => {
                escaped = true;
                term.push(c);
            }
            ',' => terms.push(std::mem::take(&mut term)),
            c => term.push(c),
        }
    }
    terms.push(term);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (i, _) in term.char_indices() {
        let rest = &term[i..];
        if let Some(value) = rest.strip_prefix("!=") {
            return Some((&term[..i], true, value));
        }
        if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            return Some((&term[..i], false, value));
        }
    }
    None
}

fn unescape(value: &str) -> Option<String> {
    let (mut out, mut chars) = (String::with_capacity(value.len()), value.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                _ => return None,
            },
            ',' | '=' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_split_and_unescaped() {
        let requirement = |field: &str, negated, value: &str| FieldRequirement { field: field.into(), negated, value: value.into() };
        assert_eq!(
            parse("spec.nodeName=n1,status.phase!=Failed"),
            [requirement("spec.nodeName", false, "n1"), requirement("status.phase", true, "Failed")]
        );
        assert_eq!(parse(r"a==b\,c"), [requirement("a", false, "b,c")]);
        for bad in ["a", "a=b=c", r"a=\x"] {
            assert!(parse(bad).is_empty(), "{bad}");
        }
    }
}
