//! Collects the faults found in a bundle: the first hundred as messages, the others as a count.

use crate::Error;
use std::cell::RefCell;

/// The faults of one bundle. Memory stays bounded if every part of a file is wrong.
#[derive(Debug, Default)]
pub(crate) struct Findings(RefCell<List>);

#[derive(Debug, Default)]
struct List {
    errors: Vec<Error>,
    /// The number of faults beyond [`Findings::MAX`].
    more: u64,
}

impl Findings {
    /// The most faults that are listed.
    pub(crate) const MAX: usize = 100;

    /// Adds a fault. Calls `error` only if the fault will be listed.
    pub(crate) fn add(&self, error: impl FnOnce() -> Error) {
        if self.is_full() {
            let mut list = self.0.borrow_mut();
            list.more = list.more.saturating_add(1);
        } else {
            let error = error();
            self.0.borrow_mut().errors.push(error);
        }
    }

    /// Returns whether further faults would only be counted.
    pub(crate) fn is_full(&self) -> bool {
        self.0.borrow().errors.len() >= Self::MAX
    }

    /// Returns the faults in the order they were found. If some were not listed, the last entry
    /// states their number.
    pub(crate) fn into_vec(self) -> Vec<Error> {
        let List { mut errors, more } = self.0.into_inner();
        if more != 0 {
            let problem = format!("{more} more faults are not listed");
            errors.push(Error::malformed("this bundle", problem));
        }
        errors
    }
}
