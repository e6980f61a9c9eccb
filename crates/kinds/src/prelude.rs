//! What nearly every kind's files need. For use inside this crate's kind folders only.

pub(crate) use serde_json::Value;
pub(crate) use wheelhouse_base::Timestamp;
pub(crate) use wheelhouse_meta::field::{BadValue, ErrorList, FieldError, Path};

pub(crate) use crate::kind::{Action, Column, KindInfo, NameRule, OtherVersion, RequestContext, Subresource, TypedKind, Verdict};
pub(crate) use crate::validation::{items, text};
pub(crate) use crate::{subresource, table, validation};
