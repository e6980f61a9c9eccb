//! The Common Expression Language as Kubernetes uses it in policies.
//!
//! ```text
//! text --Program::compile--> syntax tree --Program::run(bindings, budget)--> Value | error
//! ```
//!
//! Parsing and macros are the `cel` crate's. Evaluation is ours because expressions come from tenants: every step and every byte that is looked at
//! is paid for out of a [`Budget`], nesting and size are bounded when an expression is compiled, and objects are read in place. There is no type
//! check before evaluation: what upstream refuses when a policy is written is an error here when it runs, and is then treated as its failure
//! policy says.
//!
//! Language: <https://github.com/google/cel-spec>. Functions beyond the standard's: Kubernetes' lists, regex, strings and quantities.

mod error;
mod evaluate;
mod functions;
mod quantities;
mod strings;
mod times;
mod value;

use cel::parser::{Expression, PrattParser};

pub use error::{CompileError, EvalError};
pub use evaluate::Bindings;
pub use value::{Key, Value};

/// Nodes of one expression. The longest policies in use have a few hundred.
const MAX_NODES: usize = 4_000;

/// How deep an expression may nest; upstream's limit is 50 for calls, and parsing recurses.
const MAX_DEPTH: u16 = 100;

/// How deep evaluation may recurse: a long sum nests as deep as it has terms. A level takes about a kilobyte of the stack.
const MAX_NESTING: usize = 300;

/// Bytes of one expression; upstream's limit.
const MAX_BYTES: usize = 10 * 1024;

/// What one evaluation may still cost. A step is one; looking at text or copying a list costs by its length.
#[derive(Clone, Copy, Debug)]
pub struct Budget(u64);

impl Budget {
    /// Upstream's limit for one expression.
    pub const EXPRESSION: u64 = 1_000_000;

    pub fn new(units: u64) -> Self {
        Self(units)
    }

    fn pay(&mut self, units: usize) -> Result<(), EvalError> {
        self.0 = self.0.checked_sub(units as u64).ok_or(EvalError::Budget)?;
        Ok(())
    }
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Program(Expression);

impl Program {
    pub fn compile(text: &str) -> Result<Self, CompileError> {
        if text.len() > MAX_BYTES {
            return Err(CompileError::TooLong);
        }
        let parser = PrattParser::new().max_recursion_depth(MAX_DEPTH).max_expression_node_count(MAX_NODES).enable_optional_syntax(true);
        parser.parse(text).map(Self).map_err(|error| CompileError::Syntax(error.to_string()))
    }

    pub fn run<'a>(&self, bindings: &Bindings<'a>, budget: &mut Budget) -> Result<Value<'a>, EvalError> {
        evaluate::run(&self.0, bindings, budget)
    }
}

#[cfg(test)]
mod tests;
