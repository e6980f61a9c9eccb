//! The kinds that are questions: each is answered at once and never stored.

mod access;
mod authentication;

pub use access::{AccessReview, access, rules};
pub use authentication::{self_subject, token};

#[cfg(test)]
mod tests;
