//! Field paths and field errors: how validation says what is wrong and where.
//!
//! A validator takes a [`Path`] and appends to an [`ErrorList`]; the list becomes a `Status` with
//! [`Status::invalid`](crate::status::Status::invalid). Texts are those of upstream's `field` package, to the byte.

mod error;
mod path;

pub use error::{BadValue, ErrorList, FieldError, FieldErrorKind};
pub use path::Path;
