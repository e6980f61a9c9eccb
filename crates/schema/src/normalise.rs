//! The form upstream stores and serves: what Go's encoder would write for the decoded struct.

use serde_json::Value;

use crate::types::Schema;

/// Drops nulls and empty `omitempty` fields, writes the zero value of fields that are always there, and brings
/// quantities and times to their canonical text. Idempotent. Fields without a schema are left alone.
pub fn normalise(value: &mut Value, schema: &Schema) {
    let _ = (value, schema);
    todo!()
}
