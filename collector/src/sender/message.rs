//! The messages between the daemon and the sender.

use crate::config::HubConfig;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A message of the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SenderInput {
    /// The task, which is the first message.
    Task(SenderTask),
    /// A running program. Its file is attached.
    Running {
        /// The path of the program.
        executable: String,
        /// The service that it belongs to.
        service: String,
    },
    /// All running programs were sent.
    RunningEnd,
}

/// The task of a sender.
#[derive(Clone, Serialize, Deserialize)]
pub struct SenderTask {
    /// The configuration.
    pub hub: HubConfig,
    /// The token.
    pub token: Option<String>,
    /// The directory of bundles.
    pub spool: PathBuf,
}

impl fmt::Debug for SenderTask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token stays out of logs.
        formatter
            .debug_struct("SenderTask")
            .field("hub", &self.hub)
            .field("spool", &self.spool)
            .finish_non_exhaustive()
    }
}

/// A message of the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SenderReport {
    /// The hub has a crash.
    Sent {
        /// The name of its bundle.
        id: String,
    },
}
