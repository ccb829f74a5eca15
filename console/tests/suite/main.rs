//! End-to-end tests of the commands, on real captures and on bundles that the tests write.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking, its helpers too.

mod captures;
mod support;
mod versions;
