//! Logs what became of a crash.

use crate::crash::SaveOutcome;
use crate::error::Result;
use backtrail_pt::Pid;

/// Logs the outcome of saving a crash.
pub(super) fn log_outcome(what: &str, saved: Result<SaveOutcome>, pid: Pid) {
    match saved {
        Ok(SaveOutcome::Bundle(id)) => tracing::info!("{what} process {pid}: {id}"),
        Ok(SaveOutcome::Limited) => {
            tracing::debug!("{what} process {pid}, which is not saved because of the rate limit")
        }
        Err(error) => tracing::error!("{what} process {pid}, which could not be saved: {error}"),
    }
}
