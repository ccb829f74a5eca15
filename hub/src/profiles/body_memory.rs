//! The memory of the bodies of pushes. A request waits before it is received or unpacked.

use crate::error::{Error, Result};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The memory of all bodies of a kind, in KiB.
const KIBIBYTES: usize = 256 << 10;
/// The memory that is counted for a message whose size is not known before it is received.
const UNKNOWN_SIZE: usize = 4 << 20;

/// The memory of bodies that were received, and of those that are unpacked.
#[derive(Debug)]
pub struct BodyMemory {
    received: Arc<Semaphore>,
    unpacked: Arc<Semaphore>,
}

impl Default for BodyMemory {
    fn default() -> Self {
        let semaphore = || Arc::new(Semaphore::new(KIBIBYTES));
        Self {
            received: semaphore(),
            unpacked: semaphore(),
        }
    }
}

impl BodyMemory {
    /// Waits until there is memory for a body of a size. It is free again with the value.
    ///
    /// # Errors
    /// Fails if the hub ends.
    pub async fn received(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        reserve(&self.received, bytes).await
    }

    /// Waits until there is memory for a message of unknown size.
    ///
    /// # Errors
    /// Fails if the hub ends.
    pub async fn message(&self) -> Result<OwnedSemaphorePermit> {
        reserve(&self.received, UNKNOWN_SIZE).await
    }

    /// Waits until there is memory for an unpacked body, which has at most this size.
    ///
    /// # Errors
    /// Fails if the hub ends.
    pub async fn unpacked(&self, most: usize) -> Result<OwnedSemaphorePermit> {
        reserve(&self.unpacked, most).await
    }
}

fn kibibytes(bytes: usize) -> usize {
    ((bytes >> 10) + 1).min(KIBIBYTES)
}

async fn reserve(memory: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit> {
    let size = u32::try_from(kibibytes(bytes)).unwrap_or(u32::MAX);
    let permit = Arc::clone(memory).acquire_many_owned(size).await;
    permit.map_err(|_| Error::Ending)
}

/// Frees what a body of this size does not need.
pub fn shrink(memory: &mut OwnedSemaphorePermit, bytes: usize) {
    let rest = memory.num_permits().saturating_sub(kibibytes(bytes));
    drop(memory.split(rest));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unpacked_body_counts_its_size() {
        let memory = BodyMemory::default();
        let mut body = memory.unpacked(128 << 20).await.unwrap();
        assert_eq!(memory.unpacked.available_permits(), KIBIBYTES - (128 << 10) - 1);
        shrink(&mut body, 1 << 20);
        assert_eq!(memory.unpacked.available_permits(), KIBIBYTES - 1025);
        shrink(&mut body, 1 << 30);
        drop(body);
        assert_eq!(memory.unpacked.available_permits(), KIBIBYTES);
        let all = memory.received(usize::MAX).await.unwrap();
        assert_eq!(all.num_permits(), KIBIBYTES);
    }
}
