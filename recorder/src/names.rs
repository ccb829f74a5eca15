//! Names of files in the bundle.

use crate::error::Result;
use backtrail_bundle::BundlePath;
use std::collections::HashSet;

/// Names given out: the kernel may use a thread's number again.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<String>);

impl Names {
    /// This name, or with a number where it is taken.
    pub(crate) fn take(&mut self, name: &str) -> Result<BundlePath> {
        let mut unique = name.to_owned();
        let mut copy = 1;
        while !self.0.insert(unique.clone()) {
            copy += 1;
            unique = format!("{name}.{copy}");
        }
        Ok(BundlePath::new(&unique)?)
    }

    /// A name that may be given out again: its file is not kept.
    pub(crate) fn release(&mut self, path: &BundlePath) {
        self.0.remove(path.as_str());
    }
}
