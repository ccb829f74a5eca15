//! The debugger of a trace: positions, forward and reverse motions, breakpoints, stacks, calls.
//!
//! A [`Session`] is an opened trace. A [`Navigator`] has a position in it and moves by [`step`]
//! motions. [`lines`] defines what the start of a line is.
//!
//! **Navigation is a query, never a replay**: it reads the blocks of the history and the call
//! forest. **Nothing that was not executed is shown as executed, and nothing unknown as known.**
//! Registers are exact at the crash, where the core has them, and recovered or unknown before. The
//! crate knows no command, no terminal, and no protocol.
#![forbid(unsafe_code)]

pub mod abort_message;
pub mod branches;
pub mod breakpoint;
pub mod calls;
pub mod code;
pub mod compare;
pub mod complete_calls;
pub mod coverage;
pub mod crash_stack;
pub mod disassembly;
mod error;
pub mod evaluation;
pub mod fault;
pub mod functions;
pub mod heap;
pub mod inlined;
pub mod latency;
pub mod lines;
pub mod location;
pub mod module_history;
pub mod navigator;
pub mod origin;
pub mod own_code;
pub mod registers;
mod replay;
pub mod session;
pub mod signal;
pub mod skip;
pub mod source;
pub mod source_names;
pub mod stack;
pub mod step;
mod stop;
pub mod thread_at_time;
mod thread_order;
pub mod time;
pub mod timeline;
mod unwind;
pub mod value_check;
pub mod virtual_call;
pub mod watchpoint;

pub use backtrail_decoder::{Progress, Stage, Watch};
pub use error::{Error, Result};
pub use navigator::{Navigator, Stop};
pub use session::{OpenOptions, Session};
pub use step::{Direction, Motion};
pub use stop::StopReason;
