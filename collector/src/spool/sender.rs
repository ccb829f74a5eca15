//! The seam to whoever takes bundles off this machine.

use super::StoredBundle;
use crate::error::Result;

/// Takes bundles somewhere else, a crash server say.
pub trait BundleSender {
    /// Takes one; once this returns, the bundle may be removed here.
    ///
    /// # Errors
    /// When it could not be taken; it stays, and is offered again.
    fn send(&mut self, stored: &StoredBundle) -> Result<()>;
}
