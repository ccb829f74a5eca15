//! The functions of a program whose calls become heap events.

use crate::ptrace::RawTid;
use backtrail_bundle::heap::AllocatorFunction;
use backtrail_process::{maps, symbols};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// The maximum number of watched functions. A program has a few tens of them.
const MAX_FUNCTIONS: usize = 1 << 16;

/// A function whose calls are noticed at its first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchedFunction {
    /// Its calls are logged.
    Allocator(AllocatorFunction),
    /// A function that leaves others before they return: `longjmp`, or the start of a C++
    /// exception. The call of an allocator function may be over then.
    Unwinder,
}

impl WatchedFunction {
    fn of_symbol(symbol: &str) -> Option<Self> {
        const UNWINDERS: [&str; 6] = [
            "__cxa_throw",
            "_Unwind_RaiseException",
            "longjmp",
            "_longjmp",
            "siglongjmp",
            "__longjmp_chk",
        ];
        if UNWINDERS.contains(&symbol) {
            return Some(Self::Unwinder);
        }
        AllocatorFunction::of_symbol(symbol).map(Self::Allocator)
    }
}

/// The watched functions of an address space. A mapping is searched before its code is translated.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchedFunctions {
    functions: FxHashMap<u64, WatchedFunction>,
    /// The mappings that were searched.
    searched: Vec<Range<u64>>,
}

impl WatchedFunctions {
    /// Returns the function that begins at this address.
    pub(super) fn at(&self, ip: u64) -> Option<WatchedFunction> {
        self.functions.get(&ip).copied()
    }

    /// Searches the mapping that contains `ip`, unless it was searched before.
    pub(super) fn search(&mut self, pid: RawTid, ip: u64) {
        if self.searched.iter().any(|range| range.contains(&ip)) {
            return;
        }
        let maps = maps::maps(pid);
        let Some(map) = maps.iter().find(|map| (map.start..map.end).contains(&ip)) else {
            return;
        };
        self.searched.push(map.start..map.end);
        if !map.is_file() {
            return;
        }
        // Blocks of code that was here before may still run, and are translated again with the
        // functions of their time. Functions therefore stay until others replace them.
        for (address, function) in symbols::functions(pid, map, WatchedFunction::of_symbol) {
            if self.functions.len() < MAX_FUNCTIONS {
                self.functions.insert(address, function);
            }
        }
    }

    /// Handles a change of the code in a range, which is then searched again.
    pub(super) fn code_changed(&mut self, changed: &Range<u64>) {
        self.searched
            .retain(|range| range.end <= changed.start || changed.end <= range.start);
    }

    /// Adds a function, for tests.
    #[cfg(test)]
    pub(super) fn insert(&mut self, ip: u64, function: WatchedFunction) {
        self.functions.insert(ip, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_allocator_is_found_until_code_changes() {
        let pid = std::process::id() as RawTid;
        let malloc = libc::malloc as *const () as u64;
        let mut watched = WatchedFunctions::default();
        watched.search(pid, malloc);
        let expected = WatchedFunction::Allocator(AllocatorFunction::Malloc);
        assert_eq!(watched.at(malloc), Some(expected));
        assert_eq!(watched.searched.len(), 1);
        watched.search(pid, malloc);
        assert_eq!(watched.searched.len(), 1, "once");
        watched.code_changed(&(malloc..malloc + 1));
        assert!(watched.searched.is_empty());
        assert_eq!(watched.at(malloc), Some(expected));
    }

    #[test]
    fn unwinders_are_no_allocators() {
        assert_eq!(
            WatchedFunction::of_symbol("longjmp"),
            Some(WatchedFunction::Unwinder)
        );
        assert_eq!(WatchedFunction::of_symbol("long"), None);
    }
}
