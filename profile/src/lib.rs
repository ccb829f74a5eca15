//! Profiles: samples with stacks and weights, their formats, and what is computed from them.
//!
//! A [`Profile`] has samples. Each has an event type, a weight and a stack, and may have a time, a
//! thread and labels. Frames are (module, file offset) pairs; symbols may come later. Everything
//! that many samples share is stored once, in a [`Table`] or as [`Stacks`].
//!
//! A [`FunctionProfile`] is the same by functions. [`Rules`] change it, and a [`CallTree`], [`top`]
//! and a [`Comparison`] add it up.
//!
//! ```
//! use backtrail_profile::{CallTree, FunctionProfile, format::folded, top};
//!
//! let profile = folded::read("main;parse 30\nmain;write 12\n".as_bytes())?;
//! let functions = FunctionProfile::new(&profile)?;
//! let tree = CallTree::<1>::new(&functions, |sample| Some((0, sample.weight)));
//! for row in top(&tree) {
//!     println!("{:>6} {:>6} {}", row.own[0], row.total[0], functions.name(row.symbol));
//! }
//! # Ok::<(), backtrail_profile::Error>(())
//! ```
#![forbid(unsafe_code)]

mod address_spaces;
mod branch_stack;
mod calls;
mod columns;
mod diff;
mod error;
pub mod fdo;
mod file_hash;
mod filter;
pub mod format;
mod frame;
mod function_match;
mod function_profile;
mod lines;
mod merge;
mod profile;
mod read_limits;
mod rules;
mod sample;
mod stacks;
mod table;
mod top;
mod tree;
mod units;

pub use address_spaces::{AddressSpaces, MappedModule};
pub use branch_stack::{BranchStack, TakenBranch};
pub use calls::{CallExample, CallSummaries, CallSummary};
pub use diff::{Change, Comparison};
pub use error::{Error, Result};
pub use file_hash::file_hash_id;
pub use filter::Filter;
pub use frame::{Frame, FrameId, Function, FunctionId, Line, Module, ModuleId, StringId};
pub use function_match::{FunctionKey, match_functions};
pub use function_profile::{FunctionProfile, Site, SiteSample, Symbol, SymbolId};
pub use lines::{LineWeight, line_weights};
pub use merge::merge;
pub use profile::Profile;
pub use read_limits::ReadLimits;
pub use rules::{Collapse, MatchedFrames, Rules};
pub use sample::{
    Event, EventId, Label, LabelSet, LabelSetId, LabelValue, Sample, Thread, ThreadId, UnixNanos,
};
pub use stacks::{StackId, Stacks};
pub use table::{Id, Table};
pub use top::{FunctionWeight, top};
pub use tree::{CallTree, Node, NodeIdx};
pub use units::base_unit;
