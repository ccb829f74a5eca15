//! The worker: a process without privileges that reads one crash and writes its bundle.
//!
//! The daemon is root. It holds events, pipes and descriptors, and parses nothing that a crashing
//! process could have written. For each crash it starts a worker ([`Workers`]), by the messages of
//! [`Task`], [`TaskInput`] and [`Report`]. The worker first opens the files of the process, while it
//! still may; then it gives up all privileges for good ([`confine`]); only then it parses ELF,
//! copies memory, and writes the bundle into a directory that is its own. The daemon takes that
//! directory over when the worker has ended.
//!
//! A worker that crashes, or that a file system without an answer blocks for ever, harms the one
//! bundle that it was to write.

pub mod confine;
mod core_file;
mod deposit;
mod drafts;
mod history_files;
mod memory;
mod open;
mod opener;
mod reachable;
mod run;
mod sealed;
mod stopped;
mod supervise;
mod task;
mod write;

pub use run::run;
pub use sealed::Sealed;
pub(crate) use supervise::WorkerJob;
pub use supervise::{Workers, WrittenBundle};
pub use task::{Description, Policy, Report, SampleRecord, Task, TaskInput, Work};
