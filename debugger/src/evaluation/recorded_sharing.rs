//! The memory that a process has shared at any time, as the recorder has listed it.

use crate::replay::MemoryRange;
use crate::session::{Process, Session};
use backtrail_bundle::manifest::SharedMemory;

/// The list of a process. Without a list, any memory may be shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedSharing<'a>(Option<&'a [SharedMemory]>);

impl<'a> RecordedSharing<'a> {
    /// Returns the list of a process.
    pub fn of(session: &'a Session, process: &Process) -> Self {
        let mut processes = session
            .bundle()
            .into_iter()
            .flat_map(|bundle| &bundle.manifest().processes);
        let recorded = processes.find(|recorded| recorded.pid == process.pid);
        Self(recorded.and_then(|recorded| recorded.shared_memory.as_deref()))
    }

    /// Returns whether a range may have been shared at any time.
    pub fn may_share(self, range: MemoryRange) -> bool {
        self.0.is_none() || self.shared(range).next().is_some()
    }

    /// Returns whether a range was shared by a call that the value logs may lack. `are_whole`: the
    /// logs of all threads begin with their threads.
    pub fn is_shared_unseen(self, range: MemoryRange, are_whole: bool) -> bool {
        self.shared(range).any(|shared| shared.is_unseen || !are_whole)
    }

    fn shared(self, range: MemoryRange) -> impl Iterator<Item = &'a SharedMemory> {
        let overlaps = move |shared: &&SharedMemory| {
            range.overlaps(MemoryRange {
                address: shared.start.0,
                size: shared.size,
            })
        };
        self.0.unwrap_or_default().iter().filter(overlaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Avma;

    fn range(address: u64) -> MemoryRange {
        MemoryRange { address, size: 8 }
    }

    #[test]
    fn memory_without_a_list_may_be_shared() {
        let unknown = RecordedSharing(None);
        assert!(unknown.may_share(range(0x1000)));
        assert!(!unknown.is_shared_unseen(range(0x1000), false));
    }

    #[test]
    fn only_listed_memory_may_be_shared() {
        assert!(!RecordedSharing(Some(&[])).may_share(range(0x1000)));
        let listed = [SharedMemory {
            start: Avma(0x1000),
            size: 0x1000,
            is_unseen: false,
        }];
        let listed = RecordedSharing(Some(&listed));
        assert!(listed.may_share(range(0xffc)) && listed.may_share(range(0x1ff8)));
        assert!(!listed.may_share(range(0xff8)) && !listed.may_share(range(0x2000)));
    }

    #[test]
    fn sharing_is_unseen_without_whole_logs() {
        let shared = |is_unseen| SharedMemory {
            start: Avma(0x1000),
            size: 0x1000,
            is_unseen,
        };
        let (seen, unseen) = ([shared(false)], [shared(true)]);
        assert!(!RecordedSharing(Some(&seen)).is_shared_unseen(range(0x1000), true));
        assert!(RecordedSharing(Some(&seen)).is_shared_unseen(range(0x1000), false));
        assert!(RecordedSharing(Some(&unseen)).is_shared_unseen(range(0x1000), true));
        assert!(!RecordedSharing(Some(&unseen)).is_shared_unseen(range(0x3000), false));
    }
}
