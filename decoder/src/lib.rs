//! Decodes Intel PT bytes to what each thread executed: instruction flow, time, threads of per-CPU
//! traces, the compact history and the call forest.
//!
//! The crate is sans-IO: bytes in, data out. **It knows no file, no ELF symbol, no DWARF and no
//! terminal.** The caller reports the address ranges of functions through [`Functions`].
//!
//! An [`Engine`] turns PT bytes and an [`Image`] into instructions and [`Event`]s, and pushes them
//! into a [`Sink`]. [`HistoryBuilder`] is the sink that makes a [`History`]. [`decode`] does so for
//! all threads of a trace, and splits per-CPU traces by context switches. [`Forest::build`] finds
//! the calls in a history.
//!
//! **No stretch of flow spans two versions of the code.** Tracing is off in every thread while code
//! changes. Each stretch is decoded with the [`Version`] of the code that it ran.
//!
//! **Decoding never fails.** Trace that cannot be decoded becomes a [`Gap`] in the history, with
//! its place and cause. Only the caller can end a decode early ([`Canceled`]).
#![cfg_attr(not(feature = "libipt"), forbid(unsafe_code))]

mod append_vec;
pub mod block;
mod cache_throttle;
pub mod clock;
pub mod config;
pub mod decode_cache_pool;
pub mod digest;
pub mod engine;
pub mod forest;
mod hash;
pub mod history;
pub mod image;
pub mod mark;
mod meter;
mod parallel;
mod path;
pub mod pcset;
mod plan;
pub mod position;
pub mod split;
pub mod switches;
mod table;
pub mod trace;
mod trace_tail;
pub mod walk;
pub mod watch;

pub use block::{BlockId, Instruction};
pub use clock::TimeEstimate;
pub use config::{AddressFilter, Config, FilterKind, UncompressedReturns};
pub use decode_cache_pool::DecodeCachePool;
pub use digest::Digest;
pub use engine::{Engine, EngineKind, Event, Sink, Stamp};
pub use forest::{Call, CallId, Entered, Forest, Functions, Left};
pub use history::{History, HistoryBuilder, Ptwrite};
pub use image::{Boundary, Bytes, Change, CodeChange, Image, Memory, Section, Version};
pub use mark::{Gap, GapCause, Mark, MarkKind, Resumed};
pub use path::{PathIdx, PathTable};
pub use pcset::PcSet;
pub use plan::Plan;
pub use position::Position;
pub use split::{CpuReport, Unattributed, UnattributedReason};
pub use switches::{Execution, Switch};
pub use trace::{Decoded, Input, decode, decode_by};
pub use walk::Walker;
pub use watch::{Canceled, Progress, Stage, Watch};
