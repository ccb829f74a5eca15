//! Code of the program, read a page at a time and kept until it may change.

use crate::PAGE;
use crate::ptrace::RawTid;
use backtrail_process::maps::{self, Map};
use std::collections::BTreeMap;
use std::ops::Range;

/// Pages through which code that was read may change, by address.
pub(super) type Ways = BTreeMap<u64, Way>;

/// A page that the program may write, which is one of code or the same memory at another place: a memory is often mapped twice, to
/// be written here and executed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The page of code.
    pub(super) code: u64,
    /// It is executable itself.
    pub(super) executable: bool,
}

/// A page as it was read; shorter where nothing more can be read.
#[derive(Debug)]
struct CodePage {
    bytes: Vec<u8>,
    ways: Vec<(u64, Way)>,
}

/// The executable memory of a process.
#[derive(Debug, Default)]
pub(super) struct CodePages {
    /// All mappings, until they change.
    maps: Option<Vec<Map>>,
    pages: BTreeMap<u64, CodePage>,
    /// Some page was of memory that can be mapped twice.
    shared: bool,
}

impl CodePages {
    /// Some mapping has changed: they are looked at anew. A page of none that was read may be of one now.
    pub(super) fn remapped(&mut self) {
        self.maps = None;
        self.pages.retain(|_, page| !page.bytes.is_empty());
    }

    /// Mappings have changed in `range`: what is there is read anew.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.maps = None;
        self.pages.retain(|page, _| !range.contains(page));
    }

    /// Whether code in `range` was read.
    pub(super) fn has_read(&self, range: &Range<u64>) -> bool {
        self.pages.range(range.clone()).next().is_some()
    }

    /// Whether what is mapped anew may be code that was read.
    pub(super) fn may_be_mapped_twice(&self) -> bool {
        self.shared
    }

    /// The ways by which what was read of memory that can be mapped twice may change now.
    pub(super) fn ways_of_shared(&mut self, pid: RawTid) -> Ways {
        let maps = self.maps.get_or_insert_with(|| maps::maps(pid));
        let of_code = maps.iter().filter(|map| map.shared && map.executable);
        let pages = of_code.flat_map(|map| {
            let read = self.pages.range(map.start..map.end);
            read.map(move |(&page, _)| (map, page))
        });
        pages.flat_map(|(map, page)| ways(maps, map, page)).collect()
    }

    /// Copies code from `from` on; says how many bytes there are, and notes the ways by which they may change.
    pub(super) fn read(&mut self, pid: RawTid, from: u64, out: &mut [u8], changing: &mut Ways) -> usize {
        let mut done = 0;
        while let Some(room) = out.get_mut(done..).filter(|room| !room.is_empty()) {
            let at = from.wrapping_add(done as u64);
            let number = at & !(PAGE - 1);
            let page = self.page(pid, number);
            changing.extend(page.ways.iter().copied());
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
        let maps = self.maps.get_or_insert_with(|| maps::maps(pid));
        self.pages.entry(number).or_insert_with(|| {
            let Some(map) = executable(maps, number) else {
                return CodePage {
                    bytes: Vec::new(),
                    ways: Vec::new(),
                };
            };
            self.shared |= map.shared;
            let mut bytes = vec![0; PAGE as usize];
            let read = crate::code::read_code(pid, number, &mut bytes);
            bytes.truncate(read);
            CodePage {
                bytes,
                ways: ways(maps, map, number).collect(),
            }
        })
    }
}

/// The mapping that a page may be executed in.
fn executable(maps: &[Map], page: u64) -> Option<&Map> {
    let mut of_page = maps.iter().filter(|map| (map.start..map.end).contains(&page));
    of_page.find(|map| map.executable && map.path != "[vsyscall]")
}

/// By which pages the program may write a page of code of this mapping.
fn ways<'a>(maps: &'a [Map], map: &'a Map, page: u64) -> impl Iterator<Item = (u64, Way)> + 'a {
    let offset = map.offset + (page - map.start);
    let itself = std::slice::from_ref(map).iter();
    let others = maps.iter().filter(move |other| {
        let same = other.shared && other.inode == map.inode && other.path == map.path && map.inode != 0;
        map.shared && same && other.start != map.start
    });
    let places = itself.chain(others).filter(|other| other.writable);
    places.filter_map(move |other| {
        let at = other.start.checked_add(offset.checked_sub(other.offset)?)?;
        let way = Way {
            code: page,
            executable: other.executable,
        };
        (at < other.end).then_some((at, way))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_mapped_twice_is_written_at_one_place_and_executed_at_the_other() {
        let map = |start, permissions: &str, offset, inode| Map {
            start,
            end: start + 4 * PAGE,
            readable: true,
            writable: permissions.contains('w'),
            executable: permissions.contains('x'),
            shared: permissions.contains('s'),
            offset,
            inode,
            path: "/memfd:jit (deleted)".to_owned(),
            ..Map::default()
        };
        let maps = [
            map(0x10000, "xs", 0, 7),
            map(0x20000, "ws", 2 * PAGE, 7),
            map(0x30000, "ws", 0, 8),
            map(0x40000, "wp", 0, 7),
            map(0x50000, "wxp", 0, 0),
        ];
        let of = |page: u64| {
            let map = executable(&maps, page).unwrap();
            ways(&maps, map, page).collect::<Vec<_>>()
        };
        let way = |code, executable| Way { code, executable };
        assert_eq!(of(0x10000), []);
        assert_eq!(of(0x13000), [(0x21000, way(0x13000, false))]);
        assert_eq!(of(0x51000), [(0x51000, way(0x51000, true))]);
        assert!(executable(&maps, 0x20000).is_none());
    }
}
