//! The error of parsing or evaluating an expression.

/// An expression that cannot be parsed or evaluated, as a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// The result of parsing, or of looking up a name.
pub type Result<T> = std::result::Result<T, Error>;
