//! Functions of strings: the standard's, and the extension that Kubernetes enables. Positions count characters.

use crate::error::EvalError;
use crate::value::Value;

pub fn call<'a>(name: &str, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let text = args[0].str()?;
    let characters = || text.chars().collect::<Vec<char>>();
    let part = |from: usize, to: usize| Ok(Value::text(characters()[from..to].iter().collect::<String>()));
    let position = |at: &Value<'a>, most: usize| {
        let at = at.int()?;
        usize::try_from(at).ok().filter(|at| *at <= most).ok_or(EvalError::OutOfBounds(at))
    };
    let length = || text.chars().count();
    match (name, &args[1..]) {
        ("contains", [other]) => Ok(Value::Bool(text.contains(other.str()?))),
        ("startsWith", [other]) => Ok(Value::Bool(text.starts_with(other.str()?))),
        ("endsWith", [other]) => Ok(Value::Bool(text.ends_with(other.str()?))),
        ("charAt", [at]) => {
            let at = position(at, length())?;
            Ok(Value::text(text.chars().nth(at).map(String::from).unwrap_or_default()))
        }
        ("indexOf", [other]) => Ok(found(text, other.str()?, 0)),
        ("indexOf", [other, from]) => Ok(found(text, other.str()?, position(from, length())?)),
        ("lastIndexOf", [other]) => {
            let at = text.rfind(other.str()?).map(|at| text[..at].chars().count());
            Ok(Value::Int(at.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX))))
        }
        ("lowerAscii", []) => Ok(Value::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::text(text.trim())),
        ("reverse", []) => Ok(Value::text(text.chars().rev().collect::<String>())),
        ("replace", [from, to]) => Ok(Value::text(text.replace(from.str()?, to.str()?))),
        ("replace", [from, to, count]) => match usize::try_from(count.int()?) {
            Ok(count) => Ok(Value::text(text.replacen(from.str()?, to.str()?, count))),
            Err(_) => Ok(Value::text(text.replace(from.str()?, to.str()?))),
        },
        ("split", [by]) => Ok(split(text, by.str()?, -1)),
        ("split", [by, count]) => Ok(split(text, by.str()?, count.int()?)),
        ("substring", [from]) => {
            let length = length();
            part(position(from, length)?, length)
        }
        ("substring", [from, to]) => {
            let to_at = position(to, length())?;
            part(position(from, to_at)?, to_at)
        }
        _ => Err(EvalError::NoOverload),
    }
}

fn found<'a>(text: &str, other: &str, from: usize) -> Value<'a> {
    let skipped = text.char_indices().nth(from).map_or(text.len(), |(at, _)| at);
    let at = text[skipped..].find(other).map(|at| from + text[skipped..skipped + at].chars().count());
    Value::Int(at.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX)))
}

/// Go's `SplitN`: an empty separator parts every character.
fn split<'a>(text: &str, by: &str, count: i64) -> Value<'a> {
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    if most == 0 {
        return Value::list(Vec::new());
    }
    if !by.is_empty() {
        return Value::list(text.splitn(most, by).map(Value::text).collect());
    }
    let characters: Vec<char> = text.chars().collect();
    let single = characters.len().min(most.saturating_sub(1));
    let mut parts: Vec<Value<'a>> = characters[..single].iter().map(|c| Value::text(c.to_string())).collect();
    if single < characters.len() {
        parts.push(Value::text(characters[single..].iter().collect::<String>()));
    }
    Value::list(parts)
}
