//! Work that needs a processor for long, outside the threads of the runtime.

use crate::{Error, Result};

/// Runs a function on a thread of its own, and returns its result.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::System {
            action: "finish the work of a thread",
            reason: error.to_string(),
        }),
    }
}
