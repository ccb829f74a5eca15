//! Names that frames share: files and functions of an index.

use gsym::FileIndex;
use std::sync::Arc;

/// Supplies the names and paths of frames.
pub trait Names {
    /// Returns the demangled name and the name itself.
    fn name(&self, bytes: &[u8]) -> (Arc<str>, Arc<str>);
    /// Returns the path of a file.
    fn path(&self, file: FileIndex) -> Option<Arc<str>>;
}
