//! The reasons why an expression has no value.

use super::value::{Unavailable, Value};
use crate::error::Error;

/// The reason why an expression has no value.
pub enum Failure {
    /// A value that it depends on is unknown.
    Unavailable(Unavailable),
    /// The expression is invalid.
    Error(Error),
}

impl From<Unavailable> for Failure {
    fn from(cause: Unavailable) -> Self {
        Self::Unavailable(cause)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The result of evaluating.
pub type Evaluated<T = Value> = Result<T, Failure>;

pub(crate) fn wrong<T>(text: impl Into<String>) -> Evaluated<T> {
    Err(Failure::Error(Error(text.into())))
}

/// Returns the error of an index into a container of `count` elements.
pub(crate) fn outside<T>(count: u64) -> Evaluated<T> {
    match count {
        1 => wrong("the index is out of range: there is 1 element"),
        count => wrong(format!("the index is out of range: there are {count} elements")),
    }
}
