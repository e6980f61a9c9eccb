//! `metadata.managedFields`: who owns what, decoded.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use wheelhouse_base::Timestamp;

use super::set::{FieldsError, Set};
use crate::gotext::quote;
use crate::time;

/// How many managers by update an object remembers. Older ones share one entry: a controller that names itself after its process would
/// otherwise grow the object without end.
pub const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager that inherits from those above the limit.
const OLD_UPDATES: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What tells managers apart. Two applies by one name are one manager whatever the version; two updates are not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManagerId {
    pub manager: String,
    pub operation: Operation,
    /// Empty for applies.
    pub api_version: String,
    pub subresource: String,
}

/// What one manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub set: Set,
    /// The version in which the paths are meant.
    pub api_version: String,
    /// RFC 3339, seconds; as stored.
    pub time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    pub(super) owners: BTreeMap<ManagerId, Owned>,
}

/// Why `managedFields` cannot be read. Updates then start afresh; applies are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedError {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    MissingType(usize),
    #[error("invalid fieldsType {} in managed fields entry {entry}", quote(.text))]
    WrongType { text: String, entry: usize },
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

impl ManagerId {
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        Self {
            manager: if manager.is_empty() { "unknown".to_owned() } else { manager.to_owned() },
            operation,
            api_version: if operation == Operation::Apply { String::new() } else { api_version.to_owned() },
            subresource: subresource.to_owned(),
        }
    }
}

impl Managed {
    /// Reads the list of entries; absent and empty are no managers.
    pub fn decode(entries: &[Value]) -> Result<Self, ManagedError> {
        let mut managed = Self::default();
        for (i, entry) in entries.iter().enumerate() {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(ManagedError::Operation),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err(ManagedError::ApiVersion);
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(ManagedError::MissingType(i)),
                other => return Err(ManagedError::WrongType { text: other.to_owned(), entry: i }),
            }
            let id = ManagerId {
                manager: text("manager").to_owned(),
                operation,
                api_version: if operation == Operation::Apply { String::new() } else { api_version.to_owned() },
                subresource: text("subresource").to_owned(),
            };
            let set = match entry.get("fieldsV1").filter(|f| !f.is_null()) {
                Some(fields) => Set::from_fields_v1(fields)?,
                None => Set::new(),
            };
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            managed.owners.insert(id, Owned { set, api_version: api_version.to_owned(), time });
        }
        Ok(managed)
    }

    /// The entries, applies first, then by time, name, version and subresource.
    pub fn encode(&self) -> Vec<Value> {
        let mut owners: Vec<(&ManagerId, &Owned)> = self.owners.iter().collect();
        owners.sort_by_key(|(id, owned)| (id.operation, owned.seconds(), id.manager.clone(), owned.api_version.clone(), id.subresource.clone()));
        owners.into_iter().map(|(id, owned)| owned.to_entry(id)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ManagerId, &Owned)> {
        self.owners.iter()
    }

    pub(super) fn drop_empty(&mut self) {
        self.owners.retain(|_, owned| !owned.set.is_empty());
    }

    /// Folds the oldest managers by update into one per version until the limit holds.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<ManagerId> = self.owners.keys().filter(|id| id.operation == Operation::Update).cloned().collect();
        let mut count = updaters.len();
        if count <= MAX_UPDATE_MANAGERS {
            return;
        }
        updaters.sort_by_key(|id| (self.owners[id].seconds(), id.clone()));
        let mut first_of_version: BTreeMap<String, ManagerId> = BTreeMap::new();
        for id in updaters {
            if count <= MAX_UPDATE_MANAGERS {
                return;
            }
            let version = self.owners[&id].api_version.clone();
            // A lone manager of its version is kept under its own name until a second one joins it.
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, id);
                continue;
            };
            let bucket = ManagerId::new(OLD_UPDATES, Operation::Update, &version, "");
            if !self.owners.contains_key(&bucket)
                && let Some(owned) = self.owners.remove(first)
            {
                self.owners.insert(bucket.clone(), owned);
            }
            if let Some(folded) = self.owners.remove(&id)
                && let Some(into) = self.owners.get_mut(&bucket)
            {
                into.set = into.set.union(&folded.set);
                into.time = folded.time;
            }
            count -= 1;
        }
    }
}

impl Owned {
    fn seconds(&self) -> i64 {
        self.time.as_deref().and_then(time::parse).map_or(0, Timestamp::as_secs)
    }

    fn to_entry(&self, id: &ManagerId) -> Value {
        let mut entry = Map::new();
        let mut put = |key: &str, value: Value| {
            if value != "" {
                entry.insert(key.to_owned(), value);
            }
        };
        put("manager", Value::from(id.manager.as_str()));
        put("operation", Value::from(id.operation.as_str()));
        put("apiVersion", Value::from(self.api_version.as_str()));
        put("subresource", Value::from(id.subresource.as_str()));
        put("fieldsType", Value::from("FieldsV1"));
        put("fieldsV1", self.set.to_fields_v1());
        if let Some(time) = &self.time {
            put("time", Value::from(time.as_str()));
        }
        Value::Object(entry)
    }
}

/// Whether a client asks to forget all managers: an empty list, or one empty entry.
pub(super) fn is_reset(entries: Option<&Value>) -> bool {
    match entries.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(|entry| entry.values().all(|v| v.is_null() || v == "")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, time: i64) -> Value {
        let time = time::rfc3339(Timestamp::from_secs(time));
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
               "fieldsV1": {"f:data": {format!("f:{manager}"): {}}}})
    }

    #[test]
    fn entries_round_trip_in_order() {
        let apply = json!({"manager": "z", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}});
        let entries = vec![entry("b", 2), apply.clone(), entry("a", 3)];
        let managed = Managed::decode(&entries).unwrap();
        assert_eq!(managed.encode(), vec![apply, entry("b", 2), entry("a", 3)]);
    }

    #[test]
    fn the_oldest_updates_share_an_entry() {
        let entries: Vec<Value> = (0..13).map(|i| entry(&format!("m{i:02}"), i)).collect();
        let mut managed = Managed::decode(&entries).unwrap();
        managed.cap();
        let names: Vec<String> = managed.iter().map(|(id, _)| id.manager.clone()).collect();
        assert_eq!(names.len(), MAX_UPDATE_MANAGERS);
        assert_eq!(names[0], OLD_UPDATES);
        let (_, old) = managed.iter().next().unwrap();
        assert_eq!(old.set.to_fields_v1(), json!({"f:data": {"f:m00": {}, "f:m01": {}, "f:m02": {}, "f:m03": {}}}));
        assert_eq!(old.seconds(), 3);
    }

    #[test]
    fn bad_entries_are_named() {
        let decode = |entry: Value| Managed::decode(&[entry]).unwrap_err().to_string();
        assert_eq!(decode(json!({})), "operation must be `Apply` or `Update`");
        assert_eq!(decode(json!({"operation": "Apply"})), "apiVersion must not be empty");
        assert_eq!(decode(json!({"operation": "Apply", "apiVersion": "v1"})), "missing fieldsType in managed fields entry 0");
        assert!(is_reset(Some(&json!([{}]))) && is_reset(Some(&json!([]))) && !is_reset(None));
    }
}
