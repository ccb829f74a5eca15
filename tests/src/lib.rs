//! The example programs of the tests, and the helpers that end-to-end tests share.
//!
//! Other crates take this as a dev-dependency for [`programs`]; it depends on none of them.

pub mod backtrail;
pub mod captures;
pub mod programs;

mod build;

pub use build::{build, built};
