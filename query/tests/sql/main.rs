//! Tests of the binary, on small stores that the tests write.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

mod answers;
mod command_line;
mod duckdb;
mod hostile;
mod limits;
mod stack_functions;
mod store;
mod workers;
mod written;
