//! Code of the program, read a page at a time and kept until it may change.

use crate::PAGE;
use crate::ptrace::RawTid;
use backtrail_process::maps::{self, Map};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A page as it was read; shorter where nothing more can be read.
#[derive(Debug)]
struct CodePage {
    bytes: Vec<u8>,
    /// The program may write it.
    writable: bool,
}

/// The executable memory of a process.
#[derive(Debug, Default)]
pub(super) struct CodePages {
    /// Executable mappings, until they change.
    executable: Option<Vec<Map>>,
    pages: BTreeMap<u64, CodePage>,
}

impl CodePages {
    /// Some mapping has changed: they are looked at anew. A page of none that was read may be of one now.
    pub(super) fn remapped(&mut self) {
        self.executable = None;
        self.pages.retain(|_, page| !page.bytes.is_empty());
    }

    /// Mappings have changed in `range`: what is there is read anew.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.executable = None;
        self.pages.retain(|page, _| !range.contains(page));
    }

    /// Whether code in `range` was read.
    pub(super) fn has_read(&self, range: &Range<u64>) -> bool {
        self.pages.range(range.clone()).next().is_some()
    }

    /// Copies code from `from` on; says how many bytes there are, and notes pages that the program may
    /// write.
    pub(super) fn read(
        &mut self,
        pid: RawTid,
        from: u64,
        out: &mut [u8],
        writable: &mut BTreeSet<u64>,
    ) -> usize {
        let mut done = 0;
        while let Some(room) = out.get_mut(done..).filter(|room| !room.is_empty()) {
            let at = from.wrapping_add(done as u64);
            let number = at & !(PAGE - 1);
            let page = self.page(pid, number);
            if page.writable {
                writable.insert(number);
            }
            let rest = page.bytes.get((at - number) as usize..).unwrap_or_default();
            let len = rest.len().min(room.len());
            if len == 0 {
                break;
            }
            room.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
            done += len;
        }
        done
    }

    fn page(&mut self, pid: RawTid, number: u64) -> &CodePage {
        let executable = self.executable.get_or_insert_with(|| {
            let mut maps = maps::maps(pid);
            maps.retain(|map| map.executable && map.path != "[vsyscall]");
            maps
        });
        self.pages.entry(number).or_insert_with(|| {
            let map = executable
                .iter()
                .find(|map| (map.start..map.end).contains(&number));
            let mut bytes = Vec::new();
            if map.is_some() {
                bytes.resize(PAGE as usize, 0);
                let read = crate::code::read_code(pid, number, &mut bytes);
                bytes.truncate(read);
            }
            CodePage {
                bytes,
                writable: map.is_some_and(|map| map.writable),
            }
        })
    }
}
