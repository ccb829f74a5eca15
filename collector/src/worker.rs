//! The worker: a sandboxed process that reads one crash and writes its bundle.
//!
//! The daemon is root. It holds events, pipes and descriptors, and parses nothing that a crashing
//! process could have written. For each crash it starts a worker ([`Workers`]), and exchanges
//! [`Task`], [`TaskInput`] and [`Report`] messages with it.
//!
//! The worker first opens the files of the process, while it has the permission. Then it drops all
//! privileges irreversibly ([`confine`]). Only after that it parses ELF, copies memory, and writes
//! the bundle into its own directory. The daemon takes that directory back after the worker has
//! ended.
//!
//! If a worker crashes, or a file system that does not answer blocks it, only its own bundle is
//! affected.

pub mod confine;
mod context;
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
