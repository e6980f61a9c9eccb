//! Label and field selectors: parse, match and print.
//!
//! Parsing follows upstream's grammar with its error texts. A selector is a list of requirements, all of which must hold; the empty
//! selector matches everything.

mod field;
mod label;
mod parse;

pub use field::{FieldOperator, FieldRequirement, FieldSelector, FieldSelectorError, ONLY_NAME_AND_NAMESPACE};
pub use label::{LabelSelector, Operator, Requirement, SelectorError, labels_to_string};

#[cfg(test)]
mod golden;
