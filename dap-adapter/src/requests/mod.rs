//! The requests of the protocol, a file for those that belong together.

pub mod breakpoints;
pub mod completions;
pub mod data_breakpoints;
pub mod disassemble;
pub mod evaluate;
pub mod exception;
pub mod goto;
pub mod launch;
pub mod lifecycle;
pub mod memory;
pub mod modules;
pub mod scopes;
pub mod source;
pub mod stack;
pub mod step_back;
pub mod stepping;
pub mod threads;
pub mod variables;

/// Arguments that make no difference.
#[derive(Debug, Default, serde::Deserialize)]
pub struct Ignored {}
