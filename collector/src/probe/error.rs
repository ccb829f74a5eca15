//! The errors of the probe.

use super::{AttachKind, FunctionLocation};
use std::path::PathBuf;

/// An error of the probe.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No kind of attachment works. Each has its reason.
    #[error("the crash probe cannot be attached: {}", listed(.0))]
    Refused(Vec<(AttachKind, String)>),
    /// A trigger on a function could not be attached.
    #[error("a trigger on {location} of {} cannot be attached: {reason}", path.display())]
    Function {
        /// The binary.
        path: PathBuf,
        /// The function.
        location: FunctionLocation,
        /// The reason.
        reason: String,
    },
    /// The calls of allocator functions cannot be recorded.
    #[error("the heap probe cannot be attached: {0}")]
    Heap(String),
    /// A signal that does not kill by default, or an invalid signal.
    #[error("signal {0} does not kill a process by default; remove it")]
    Harmless(i32),
}

fn listed(refused: &[(AttachKind, String)]) -> String {
    let listed: Vec<String> = refused
        .iter()
        .map(|(kind, reason)| format!("{kind}: {reason}"))
        .collect();
    listed.join("; ")
}
