//! Profiles of several sites: this hub asks others, and adds their sums to its own.
//!
//! Samples stay where they are. A site sends the sum of a selection only. A site that fails or is
//! late is named, and the result is partial.

pub mod answer;
mod ask;
pub mod client;
pub mod manage;
pub mod queries;
pub mod scope;
pub mod sql;
pub mod units;
