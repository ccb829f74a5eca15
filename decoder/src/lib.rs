//! From Intel PT bytes to what each thread executed: instruction flow, time, threads out of per-CPU
//! traces, the compact history and the call forest.
//!
//! The crate is sans-IO: bytes in, data out. **It knows no file, no ELF symbol, no DWARF and no
//! terminal.** Where functions lie is told to it through [`Functions`].
//!
//! The way through: an [`Engine`] turns PT bytes and an [`Image`] into instructions and [`Event`]s,
//! pushed into a [`Sink`]; [`HistoryBuilder`] is the sink that makes a [`History`]; [`decode`] does
//! so for all threads of a trace, and splits per-CPU traces by context switches; [`Forest::build`]
//! finds the calls in a history.
//!
//! **No flow has code of two times.** Where code changes, tracing is off in every thread; each flow is
//! decoded with the [`Version`] of the code that it ran.
//!
//! **Decoding never fails.** What cannot be decoded is a [`Gap`] in the history, with its place and
//! cause. The one thing that ends a decode early is its caller ([`Canceled`]).
#![cfg_attr(not(feature = "libipt"), forbid(unsafe_code))]

pub mod block;
pub mod clock;
pub mod config;
pub mod digest;
pub mod engine;
pub mod forest;
mod hash;
pub mod history;
pub mod image;
pub mod knowledge;
mod luck;
pub mod mark;
mod meter;
mod parallel;
mod path;
pub mod pcset;
pub mod position;
mod shelf;
pub mod split;
pub mod switches;
mod table;
pub mod trace;
pub mod walk;
pub mod watch;

pub use block::{BlockId, Instruction, Runs};
pub use clock::TimeEstimate;
pub use config::{AddressFilter, Config, FilterKind, ToldReturns};
pub use digest::Digest;
pub use engine::{Engine, EngineKind, Event, Sink, Stamp};
pub use forest::{Call, CallId, Entered, Forest, Functions, Left};
pub use history::{History, HistoryBuilder, Ptwrite};
pub use image::{Boundary, Bytes, Change, CodeChange, Image, Memory, Section, Version};
pub use knowledge::Knowledge;
pub use mark::{Gap, GapCause, Mark, MarkKind, Resumed};
pub use pcset::PcSet;
pub use position::Position;
pub use split::{CpuReport, Unattributed, UnattributedReason};
pub use switches::{Execution, Switch};
pub use trace::{Decoded, Input, Plan, decode, decode_by};
pub use walk::Walker;
pub use watch::{Canceled, Progress, Stage, Watch};
