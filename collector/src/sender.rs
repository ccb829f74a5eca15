//! The sender: a process without privileges that sends the spool's crashes to a hub.
//!
//! The daemon is root, and neither reads bundles nor speaks HTTP. It starts the sender
//! (`backtrail collect-sender`), which can only read the spool, write to its own directory
//! [`DIRECTORY`] in it, and connect to other machines. The daemon gives it a [`SenderTask`], and
//! files of running programs for heartbeats. The sender answers with the names of sent crashes,
//! which the daemon checks and [marks](crate::spool::Spool::mark_sent).
//!
//! If source files are to be sent, the sender has a child process that reads debug information
//! (`backtrail collect-sources`). The child has the sender's rights, and no network.

mod confine;
mod message;
mod running;
mod supervise;

pub use confine::{confine, confine_source_reader, limit_processor_time};
pub use message::{SenderInput, SenderReport, SenderTask};
pub(crate) use supervise::VARIABLES;
pub use supervise::{SenderInbox, SenderSupervisor};

/// The hidden command of the sender.
pub const COMMAND: &str = "collect-sender";
/// The hidden command of the process that reads source files for the sender.
pub const SOURCES_COMMAND: &str = "collect-sources";
/// The sender's directory in the spool.
pub const DIRECTORY: &str = ".hub";
