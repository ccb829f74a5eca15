//! The debug adapter, and the editors that use it.
#![cfg(test)]

mod adapter;
mod bakery;
mod dap;
mod emacs;
mod profile_page;
mod profiles;
mod sources;
mod vscode;
