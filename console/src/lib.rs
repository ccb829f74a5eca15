//! The debugger's console: the command table, its outputs, the REPL and batch mode.
//!
//! [`commands`] is the one table of commands over a navigator. A command returns an [`Output`],
//! which is rendered as text or serialized as JSON. [`repl`] and [`batch`] read commands; the debug
//! adapter's `evaluate` request runs them too.
#![forbid(unsafe_code)]

pub mod batch;
pub mod commands;
pub mod complete;
pub mod output;
pub mod repl;
pub mod views;

pub use output::Output;
