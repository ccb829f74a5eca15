//! The debug adapter, and the editors that use it.
#![cfg(test)]

mod adapter;
mod bakery;
#[path = "../collector/collector.rs"]
#[expect(dead_code, reason = "the collector's own tests use all of it")]
mod collector;
mod dap;
mod emacs;
mod hub_path;
mod profile_page;
mod profiles;
mod sources;
mod vscode;
