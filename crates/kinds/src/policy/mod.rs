//! `policy/v1`.

pub mod poddisruptionbudget;
