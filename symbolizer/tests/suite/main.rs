//! Tests on real programs: with binutils, GDB, and damaged files.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking, its helpers too.

mod builds;
mod captures;
mod gdb;
mod go_table;
mod hostile;
mod oracle;
mod support;
mod types;
mod unwind;
