//! The sender: a process without privileges that sends the spool's crashes to a hub.
//!
//! The daemon is root, and neither reads bundles nor speaks HTTP. It starts the sender
//! (`backtrail collect-sender`), which can only read the spool, write to its own directory
//! [`DIRECTORY`] in it, and connect to other machines. The daemon gives it a [`SenderTask`], and
//! files of running programs for heartbeats. The sender answers with the names of sent crashes,
//! which the daemon checks and [marks](crate::spool::Spool::mark_sent).

mod confine;
mod message;
mod running;
mod supervise;

pub use confine::confine;
pub use message::{SenderInput, SenderReport, SenderTask};
pub use supervise::{SenderInbox, SenderSupervisor};

/// The hidden command of the sender.
pub const COMMAND: &str = "collect-sender";
/// The sender's directory in the spool.
pub const DIRECTORY: &str = ".hub";
