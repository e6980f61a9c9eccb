//! What goes wrong with an expression. The texts are upstream's: they reach the user in a policy's refusal.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error("the expression is too long")]
    TooLong,
    #[error("{0}")]
    Syntax(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("no such key: {0}")]
    NoSuchKey(String),
    #[error("no such attribute(s): {0}")]
    NoSuchVariable(String),
    #[error("no such overload")]
    NoOverload,
    #[error("index out of bounds: {0}")]
    OutOfBounds(i64),
    #[error("integer overflow")]
    Overflow,
    #[error("division by zero")]
    DivisionByZero,
    #[error("modulus by zero")]
    ModulusByZero,
    #[error("optional.none() dereference")]
    NoValue,
    #[error("{0}")]
    Conversion(String),
    #[error("operation cancelled: actual cost limit exceeded")]
    Budget,
    #[error("the expression nests too deeply")]
    TooDeep,
    #[error("this kind of expression is not supported")]
    Unsupported,
}
