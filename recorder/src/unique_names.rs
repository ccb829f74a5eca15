//! Unique file names in the bundle.

use crate::error::Result;
use backtrail_bundle::BundlePath;
use std::collections::HashSet;

/// The names in use. The kernel may reuse a thread id, so a name may be asked for again.
#[derive(Debug, Default)]
pub(crate) struct UniqueNames(HashSet<String>);

impl UniqueNames {
    /// Returns this name, with a number appended if it is already in use.
    pub(crate) fn take(&mut self, name: &str) -> Result<BundlePath> {
        let mut unique = name.to_owned();
        let mut copy = 1;
        while !self.0.insert(unique.clone()) {
            copy += 1;
            unique = format!("{name}.{copy}");
        }
        Ok(BundlePath::new(&unique)?)
    }

    /// Releases a name whose file is not kept.
    pub(crate) fn release(&mut self, path: &BundlePath) {
        self.0.remove(path.as_str());
    }
}
