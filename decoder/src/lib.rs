//! Decodes Intel PT bytes to what each thread executed: instruction flow, time, threads of per-CPU
//! traces, the compact history and the call forest.
//!
//! The crate is sans-IO: bytes in, data out. **It knows no file, no ELF symbol, no DWARF and no
//! terminal.** The caller reports the address ranges of functions through [`Functions`].
//!
//! An [`Engine`] turns PT bytes and an [`Image`] into instructions and [`Event`]s, and pushes them
//! into a [`Sink`]. [`HistoryBuilder`] is the sink that makes a [`History`]. [`Decoder`] does so
//! for all threads of a trace, and splits per-CPU traces by context switches. [`Forest::build`]
//! finds the calls in a history.
//!
//! **No stretch of flow spans two versions of the code.** Tracing is off in every thread while code
//! changes. Each stretch is decoded with the [`Version`] of the code that it ran. Where only the
//! times of changes are known ([`TimedChange`]), code that may be of two versions is a gap.
//!
//! **Decoding never fails.** Trace that cannot be decoded becomes a [`Gap`] in the history, with
//! its place and cause. Only the caller can end a decode early ([`Canceled`]).
//!
//! # Example
//!
//! Decode a trace of one thread, and print what it executed. `examples/decode.rs` does the same for
//! files.
//!
//! ```
//! use backtrail_decoder::{Config, Decoder, Image, Input, Section};
//! use backtrail_pt::{Avma, Encoder, EncoderOptions, Tid};
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! // The code: `nop`, `jne` back to it, `nop`. The trace: the branch is taken twice.
//! let mut image = Image::new();
//! image.add(Section { start: Avma(0x1000), bytes: Arc::new([0x90, 0x75, 0xfd, 0x90]) });
//! let mut encoder = Encoder::new(EncoderOptions::default());
//! encoder.start();
//! encoder.enable(Avma(0x1000));
//! [true, true, false].map(|taken| encoder.conditional(taken));
//! encoder.disable_async(Avma(0x1003));
//!
//! let trace = Arc::new(encoder.take());
//! let input = Input::Thread { tid: Tid(1), trace, image: Arc::new(image) };
//! let config = Config::default();
//! let decoded = Decoder::new(&config).decode(&[input], &BTreeMap::new())?;
//! let history = &decoded.threads[0];
//! for instruction in history.walk(0) {
//!     println!("{}", instruction.pc);
//! }
//! assert_eq!((history.len(), history.errors()), (6, 0));
//! # Ok::<(), backtrail_decoder::Canceled>(())
//! ```
#![forbid(unsafe_code)]

mod append_vec;
pub mod aux_ends;
pub mod block;
mod cache_throttle;
pub mod clock;
pub mod config;
pub mod decode_cache_pool;
pub mod decoder;
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
pub mod position;
pub mod split;
pub mod switches;
mod table;
pub mod trace;
mod trace_tail;
pub mod walk;
pub mod watch;

pub use aux_ends::AuxEnd;
pub use block::{BlockId, Instruction};
pub use clock::TimeEstimate;
pub use config::{AddressFilter, Config, FilterKind, Resync, UncompressedReturns};
pub use decode_cache_pool::DecodeCachePool;
pub use decoder::Decoder;
pub use digest::Digest;
pub use engine::{Engine, Event, Sink, Stamp};
pub use forest::{Call, CallId, Entered, Forest, Functions, Left};
pub use history::{History, HistoryBuilder, PausedValues, Ptwrite};
pub use image::{Boundary, Bytes, Change, CodeChange, Image, Memory, NewCode, Section, TimedChange, Version};
pub use mark::{Gap, GapCause, Mark, MarkKind, Resumed};
pub use path::{PathIdx, PathTable};
pub use pcset::PcSet;
pub use position::Position;
pub use split::{CpuReport, Unattributed, UnattributedReason};
pub use switches::{Execution, Switch};
pub use trace::{Decoded, Input};
pub use walk::Walker;
pub use watch::{Canceled, Progress, Stage, Watch};
