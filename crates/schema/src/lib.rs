//! Kubernetes API types as data.
//!
//! One generated table ([`catalog`]) holds every v1.36 type: fields, what Go omits when empty, list types, map keys, merge
//! keys, protobuf numbers. What is generic in an API server runs on it: decoding with field validation ([`decode`]),
//! the canonical form ([`normalise`]), protobuf ([`protobuf`]), OpenAPI, and in other crates merge and apply. Custom
//! resources build the same [`Schema`] at run time.

mod catalog;
mod decode;
mod load;
mod normalise;
pub mod openapi;
pub mod protobuf;
mod quantity;
mod scalar;
mod syntax;
mod time;
mod types;

pub use catalog::{Catalog, Kind, catalog};
pub use decode::{DecodeError, Decoded, FieldValidation, MAX_DEPTH, MAX_PROBLEMS, MAX_VALUES, decode, decode_value, strict_error};
pub use normalise::normalise;
pub use quantity::{QuantityError, canonical_quantity};
pub use syntax::json_syntax_error;
pub use time::{ApiTime, Layout, TimeError};
pub use types::{Choice, Field, List, ListKind, Map, Name, PatchStrategy, Presence, Scalar, Schema, Slot, Struct, StructRef};
