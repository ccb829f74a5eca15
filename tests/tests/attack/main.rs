//! Programs and inputs that are made to bring Backtrail down.
#![cfg(test)]

mod recorder;
#[path = "../support/mod.rs"]
mod support;
