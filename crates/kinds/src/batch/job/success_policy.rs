//! When an indexed Job is done before all of its indexes are.

use k8s_openapi::api::batch::v1::{JobSpec, SuccessPolicy};

use crate::prelude::*;

/// Rules of one policy.
const MAX_RULES: usize = 20;

pub fn validate(spec: &JobSpec, policy: &SuccessPolicy, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("rules");
    if policy.rules.is_empty() {
        errors.push(FieldError::required(&path, "at least one rules must be specified when the successPolicy is specified"));
    }
    if policy.rules.len() > MAX_RULES {
        errors.push(FieldError::too_many(&path, policy.rules.len(), MAX_RULES));
    }
    let completions = spec.completions.unwrap_or_default();
    for (at, rule) in policy.rules.iter().enumerate() {
        let path = path.index(at);
        if rule.succeeded_count.is_none() && rule.succeeded_indexes.is_none() {
            errors.push(FieldError::required(&path, "at least one of succeededCount or succeededIndexes must be specified"));
        }
        let mut listed = 0;
        if let Some(indexes) = &rule.succeeded_indexes {
            match count_indexes(indexes, completions) {
                Ok(count) => listed = count,
                Err(why) => {
                    let why = format!("error parsing succeededIndexes: {why}");
                    errors.push(FieldError::invalid(&path.child("succeededIndexes"), indexes, why));
                }
            }
        }
        let Some(count) = rule.succeeded_count else { continue };
        let here = path.child("succeededCount");
        errors.extend(wheelhouse_meta::validation::nonnegative(i64::from(count), &here));
        if count > completions {
            let why = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(FieldError::invalid(&here, count, why));
        }
        if rule.succeeded_indexes.is_some() && count > listed {
            let why = format!("must be less than or equal to {listed} (the number of indexes in the specified succeededIndexes field)");
            errors.push(FieldError::invalid(&here, count, why));
        }
    }
}

/// How many indexes `0-1,3` holds; each is below `completions` and above the one before.
fn count_indexes(text: &str, completions: i32) -> Result<i32, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let number = |text: &str| text.parse::<i32>().map_err(|_| format!("cannot convert string to integer for index: {text:?}"));
    let bounded = |text: &str| {
        let index = number(text)?;
        if index >= completions { Err(format!("too large index: {text:?}")) } else { Ok(index) }
    };
    let mut last: Option<i32> = None;
    let mut count = 0;
    for part in text.split(',') {
        let ends: Vec<&str> = part.split('-').collect();
        if ends.len() > 2 {
            let rule = "violates the requirement that an index interval can have at most two parts separated by '-'";
            return Err(format!("the fragment {part:?} {rule}"));
        }
        let first = bounded(ends[0])?;
        if let Some(last) = last.filter(|l| *l >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        let end = match ends.get(1) {
            Some(end) => bounded(end)?,
            None => first,
        };
        if ends.len() == 2 && first >= end {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        count += end - first + 1;
        last = Some(end);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_and_ordered() {
        assert_eq!(count_indexes("0-2,4", 5), Ok(4));
        assert_eq!(count_indexes("", 5), Ok(0));
        assert_eq!(count_indexes("3,1", 5), Err("non-increasing order, previous: 3, current: 1".to_owned()));
        assert_eq!(count_indexes("9-1", 4), Err("too large index: \"9\"".to_owned()));
        assert_eq!(count_indexes("a", 4), Err("cannot convert string to integer for index: \"a\"".to_owned()));
    }
}
