//! File descriptors of the recorder: their limit, and a reserve.
#![allow(unsafe_code)]

use std::fs::File;

/// A resource limit of getrlimit(2).
pub(crate) type Limit = libc::rlimit;

/// The soft limit on file descriptors, raised to the hard limit until this value is dropped.
#[derive(Debug)]
pub(crate) struct RaisedLimit {
    before: Option<Limit>,
    now: u64,
}

impl RaisedLimit {
    /// Raises the soft limit. If that fails, the limit stays as it is.
    pub(crate) fn raise() -> Self {
        let Some(before) = limit() else {
            return Self {
                before: None,
                now: u64::MAX,
            };
        };
        let raised = Limit {
            rlim_cur: before.rlim_max,
            ..before
        };
        let now = match set_limit(&raised) {
            true => raised.rlim_cur,
            false => before.rlim_cur,
        };
        Self {
            before: Some(before),
            now,
        }
    }

    /// Returns the original limit, which the recorded program gets.
    pub(crate) fn before(&self) -> Option<Limit> {
        self.before
    }

    /// Returns the current soft limit.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            set_limit(before);
        }
    }
}

fn limit() -> Option<Limit> {
    let mut limit = Limit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes the limit, and no more.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0).then_some(limit)
}

/// Sets the descriptor limit of the calling process, and returns whether that succeeded. Safe
/// between fork and exec.
pub(crate) fn set_limit(limit: &Limit) -> bool {
    // SAFETY: the kernel only reads the limit.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) == 0 }
}

/// Descriptors in reserve, so that a recording can be saved when all others are in use.
#[derive(Debug, Default)]
pub(crate) struct ReservedDescriptors(Vec<File>);

impl ReservedDescriptors {
    /// Descriptors that saving uses at a time: a source, a copy, directories, lists in `/proc`.
    const SIZE: usize = 8;

    /// Opens descriptors until the reserve is full, or none is available.
    pub(crate) fn fill(&mut self) {
        while self.0.len() < Self::SIZE
            && let Ok(file) = File::open("/dev/null")
        {
            self.0.push(file);
        }
    }

    /// Closes the reserved descriptors.
    pub(crate) fn release(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_descriptors_can_be_used() {
        let mut reserve = ReservedDescriptors::default();
        reserve.fill();
        assert_eq!(reserve.0.len(), ReservedDescriptors::SIZE);
        reserve.release();
        assert!(reserve.0.is_empty());
    }
}
