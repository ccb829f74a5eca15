//! The analysis of a bundle: a child process without privileges reads it, and writes a result.
//!
//! The hub's own process never parses a bundle. [`Supervisor`] starts this program again as
//! `analyze BUNDLE --output FILE`. The child calls [`run`], which confines the process, decodes the
//! newest history, and writes an [`Analysis`] as JSON.

mod branches;
mod calls;
mod child;
mod collect;
mod confine;
pub mod elf_file;
mod exact_calls;
mod exit;
mod modules;
mod panic_message;
mod redaction;
pub mod repack;
mod result;
mod stacks;
mod supervise;

pub use child::{AnalyzeArguments, run};
pub use confine::ChildLimits;
pub use elf_file::{ElfContents, ElfTask};
pub use exit::{EXIT_MACHINE, EXIT_REFUSED};
pub(crate) use modules::{is_library_source, is_system};
pub use redaction::Redaction;
pub use repack::{BundleModule, RepackTask, Repacked};
pub use result::{
    Access, Analysis, BranchOutcome, CallEdge, Cause, ExactCalls, ExecutedLine, FrameView, GapView,
    InterruptedBy, KnownValue, LastCall, LineBranches, ModuleView, Snapshot, SourceCheck, SourceView,
    StackView, SymbolState, VERSION, ValueKind,
};
pub use supervise::{AnalysisError, AnalysisRequest, Limits, Progress, Supervisor};
