//! The debugger of a trace: positions, every forward and reverse verb, breakpoints, stacks, calls.
//!
//! A [`Session`] is an opened trace. A [`Navigator`] stands at a position in it and moves by verbs
//! ([`step`] says exactly where each goes, [`lines`] what a line start is). [`commands`] is the one table of
//! commands over it, which answer in [`Output`]s; [`repl`] and [`batch`] are two ways to type them.
//!
//! **Navigation is a query over an index, never a replay**: of the history's blocks and the call forest. **Nothing
//! that was not executed is shown as executed, nothing unknown as known**: registers are exact at the crash, where
//! the core has them, and unknown before. The crate knows neither DAP nor HTTP.
#![forbid(unsafe_code)]

pub mod batch;
pub mod breakpoint;
pub mod calls;
pub mod code;
pub mod commands;
pub mod compare;
pub mod complete;
pub mod coverage;
pub mod disassembly;
mod error;
pub mod evaluation;
pub mod functions;
pub mod latency;
pub mod lines;
pub mod location;
pub mod meanwhile;
pub mod navigator;
pub mod output;
pub mod registers;
pub mod repl;
pub mod session;
pub mod signal;
pub mod source;
pub mod stack;
pub mod step;
mod stop;
pub mod time;
pub mod timeline;
mod unwind;
pub mod views;
pub mod virtual_call;

pub use error::{Error, Result};
pub use navigator::{Navigator, Stop};
pub use output::Output;
pub use session::{OpenOptions, Session};
pub use step::{Direction, Motion};
pub use stop::StopReason;
