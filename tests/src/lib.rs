//! The example programs of the tests, and the helpers that end-to-end tests share.
//!
//! Other crates have this crate as a dev-dependency for [`programs`]. This crate depends on none of
//! them. [`real`] is the table of real programs, which the tests and the benchmarks share.

pub mod backtrail;
pub mod bundle;
pub mod captures;
pub mod compiled;
pub mod debian_source;
pub mod hub_process;
pub mod hub_server;
pub mod jfr;
pub mod perf_data;
pub mod programs;
pub mod random;
pub mod real;
pub mod terminal;
pub mod webhook;

mod build;

pub use build::{build, built};
