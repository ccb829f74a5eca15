//! The interface for sending bundles to another machine.

use super::StoredBundle;
use crate::error::Result;

/// Sends bundles to another place, for example a crash server.
pub trait BundleSender {
    /// Sends one bundle. After success, the bundle may be removed here.
    ///
    /// # Errors
    /// When the bundle could not be sent. It stays, and is offered again.
    fn send(&mut self, stored: &StoredBundle) -> Result<()>;
}
