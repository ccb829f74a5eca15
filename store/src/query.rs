//! A query: the samples, the limits, and the flag that cancels it.

use crate::filter::Filter;
use crate::limits::{Cancel, Limits};

/// A query.
#[derive(Clone, Debug)]
pub struct Query {
    /// The samples.
    pub filter: Filter,
    /// The limits.
    pub limits: Limits,
    /// The flag that cancels the query.
    pub cancel: Cancel,
}

impl Query {
    /// Returns a query with default limits.
    #[must_use]
    pub fn new(filter: Filter) -> Self {
        Self {
            filter,
            limits: Limits::default(),
            cancel: Cancel::default(),
        }
    }
}
