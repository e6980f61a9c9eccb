//! The order of merged lists: the server's for what the patch does not name, the patch's for what it does.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use wheelhouse_schema::Schema;

use super::{
    DIRECTIVE, Object, PatchError, SET_ELEMENT_ORDER, directive_field, expect_array, expect_object, merge_list, no_merge_key, rule,
    without_directives,
};
use crate::gotext::plain;

/// Executes every `$setElementOrder/field`, together with the patch's own list of that field, which it takes out of the patch.
pub(super) fn set_element_order(target: &mut Object, patch: &mut Object, schema: &Schema) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = patch.remove(&directive).unwrap_or_default();
        let order = expect_array(order)?;
        let field = directive_field(&directive, SET_ELEMENT_ORDER, "invalid patch format of setElementOrder list")?;
        let old = target.get(&field).cloned().map(expect_array).transpose()?;
        let new = patch.get(&field).cloned().map(expect_array).transpose()?;
        let rule = rule(schema, &field)?;
        check_order(new.as_deref().unwrap_or_default(), &order, rule.key)?;

        let server_order = old.clone().unwrap_or_default();
        let types = [server_order.clone(), new.clone().unwrap_or_default()];
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => match without_directives(Value::Array(new)) {
                Some(Value::Array(new)) => new,
                _ => continue,
            },
            (Some(old), Some(new)) => merge_list(old, new, &rule, false)?,
        };
        let (listed, server_only) = partition(merged, &order, rule.key, !rule.key.is_empty())?;
        let are_maps = element_type(&[&types[0], &types[1]])?;
        let ordered = order_elements(listed, server_only, &order, &server_order, rule.key, are_maps)?;
        target.insert(field.clone(), Value::Array(ordered));
        patch.remove(&field);
    }
    Ok(())
}

/// The patch's elements must come in the order of the directive's list.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut kept: Vec<&Value> = Vec::with_capacity(patch.len());
    for element in patch {
        let deleted = !key.is_empty() && expect_object(element)?.get(DIRECTIVE).is_some_and(|d| d == "delete");
        if !deleted && element.get(DIRECTIVE).is_none() {
            kept.push(element);
        }
    }
    let (mut at, mut in_order) = (0, 0);
    while at < kept.len() && in_order < order.len() {
        if equal_by_key(kept[at], &order[in_order], key)? {
            at += 1;
        }
        in_order += 1;
    }
    if at < kept.len() {
        return Err(PatchError::Plain(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
            plain(&Value::Array(patch.to_vec())),
            plain(&Value::Array(order.to_vec())),
        )));
    }
    Ok(())
}

fn equal_by_key(left: &Value, right: &Value, key: &str) -> Result<bool, PatchError> {
    if key.is_empty() {
        return Ok(left == right);
    }
    let (left, right) = (expect_object(left)?, expect_object(right)?);
    let left = left.get(key).ok_or_else(|| no_merge_key(left, key))?;
    let right = right.get(key).ok_or_else(|| no_merge_key(right, key))?;
    Ok(left == right)
}

/// Where the elements of a list are: maps by their merge key, scalars by themselves. Of equal ones the first counts.
pub(super) struct Places<'a> {
    key: &'a str,
    are_maps: bool,
    by_name: HashMap<String, usize>,
}

impl<'a> Places<'a> {
    pub(super) fn of(list: &[Value], key: &'a str, are_maps: bool) -> Self {
        let mut places = Self { key, are_maps, by_name: HashMap::with_capacity(list.len()) };
        for (i, element) in list.iter().enumerate() {
            places.insert(element, i);
        }
        places
    }

    /// The name as JSON, so that `1` and `"1"` differ. A map without the key has the name of an absent one.
    fn name(&self, element: &Value) -> String {
        match (self.are_maps, element.get(self.key)) {
            (false, _) => element.to_string(),
            (true, Some(value)) => value.to_string(),
            (true, None) => String::new(),
        }
    }

    pub(super) fn insert(&mut self, element: &Value, at: usize) {
        let name = self.name(element);
        self.by_name.entry(name).or_insert(at);
    }

    pub(super) fn find(&self, element: &Value) -> Option<usize> {
        self.by_name.get(&self.name(element)).copied()
    }
}

pub(super) fn merge_scalars(old: Vec<Value>, new: Vec<Value>, deletes: bool) -> Vec<Value> {
    let in_patch = Places::of(&new, "", false);
    if deletes {
        return old.into_iter().filter(|v| in_patch.find(v).is_none()).collect();
    }
    let mut seen = HashSet::new();
    let merged: Vec<Value> = old.iter().chain(&new).filter(|v| seen.insert(v.to_string())).cloned().collect();
    let (patched, server_only): (Vec<Value>, Vec<Value>) = merged.into_iter().partition(|v| in_patch.find(v).is_some());
    let by_server = Places::of(&old, "", false);
    let patched = sort_by_order(patched, &in_patch);
    let server_only = sort_by_order(server_only, &by_server);
    interleave(server_only, patched, &by_server)
}

/// The elements that are in `by`, and the others.
pub(super) fn partition(list: Vec<Value>, by: &[Value], key: &str, are_maps: bool) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    if are_maps {
        require_merge_key(&list, key)?;
        for element in by {
            expect_object(element)?;
        }
    }
    let by = Places::of(by, key, are_maps);
    Ok(list.into_iter().partition(|element| by.find(element).is_some()))
}

fn require_merge_key(list: &[Value], key: &str) -> Result<(), PatchError> {
    for element in list {
        let map = expect_object(element)?;
        if !map.contains_key(key) {
            return Err(no_merge_key(map, key));
        }
    }
    Ok(())
}

/// The patch's elements in the patch's order, the server's in its own, merged so that known pairs keep the server's order.
pub(super) fn order_elements(
    patched: Vec<Value>,
    server_only: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: &str,
    are_maps: bool,
) -> Result<Vec<Value>, PatchError> {
    if are_maps {
        for list in [&patched, patch_order, &server_only, server_order] {
            require_merge_key(list, key)?;
        }
    }
    let by_server = Places::of(server_order, key, are_maps);
    let patched = sort_by_order(patched, &Places::of(patch_order, key, are_maps));
    let server_only = sort_by_order(server_only, &by_server);
    Ok(interleave(server_only, patched, &by_server))
}

/// Elements that the order does not name compare as less than everything: no total order, so those lists take an insertion sort, which
/// gives upstream's result.
fn sort_by_order(mut list: Vec<Value>, order: &Places<'_>) -> Vec<Value> {
    let mut deleted = Vec::new();
    if order.are_maps {
        (deleted, list) = list.into_iter().partition(|v| v.get(DIRECTIVE).is_some_and(|d| d == "delete"));
    }
    let places: Vec<Option<usize>> = list.iter().map(|v| order.find(v)).collect();
    let mut sequence: Vec<usize> = (0..list.len()).collect();
    if places.iter().all(Option::is_some) {
        sequence.sort_by_key(|i| places[*i]);
    } else {
        let less = |a: usize, b: usize| match (places[a], places[b]) {
            (Some(a), Some(b)) => a < b,
            _ => true,
        };
        for i in 1..sequence.len() {
            let mut j = i;
            while j > 0 && less(sequence[j], sequence[j - 1]) {
                sequence.swap(j, j - 1);
                j -= 1;
            }
        }
    }
    let mut sorted: Vec<Value> = sequence.into_iter().map(|i| std::mem::take(&mut list[i])).collect();
    sorted.append(&mut deleted);
    sorted
}

/// Merges two ordered lists; where both elements have a place in the server's order, the earlier one comes first, else the patch's.
fn interleave(server_only: Vec<Value>, patched: Vec<Value>, server: &Places<'_>) -> Vec<Value> {
    let mut merged = Vec::with_capacity(server_only.len() + patched.len());
    let mut left = server_only.into_iter().peekable();
    let mut right = patched.into_iter().peekable();
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => return merged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(l), Some(r)) => matches!((server.find(l), server.find(r)), (Some(l), Some(r)) if l < r),
        };
        merged.extend(if take_left { left.next() } else { right.next() });
    }
}

/// Whether the elements are maps. All must be of one type, and lists of lists have no meaning here.
pub(super) fn element_type(lists: &[&[Value]]) -> Result<bool, PatchError> {
    let mut first: Option<&Value> = None;
    for value in lists.iter().flat_map(|l| l.iter()) {
        match first {
            None if value.is_array() => {
                return Err(PatchError::NotApplicable("lists of lists are not supported".to_owned()));
            }
            None => first = Some(value),
            Some(first) if same_type(first, value) => {}
            Some(_) => {
                let printed: Vec<String> = lists.iter().map(|l| plain(&Value::Array(l.to_vec()))).collect();
                return Err(PatchError::Plain(format!("list element types are not identical: [{}]", printed.join(" "))));
            }
        }
    }
    match first {
        Some(value) => Ok(value.is_object()),
        None => Err(PatchError::Plain("no elements in any of the given slices".to_owned())),
    }
}

pub(super) fn same_type(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.is_f64() == b.is_f64(),
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}
