//! Compares indexes with the symbols they come from, with LLVM and with blazesym.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

mod agreement;
mod hostile;
mod peers;
mod support;
