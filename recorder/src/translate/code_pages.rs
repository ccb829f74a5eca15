//! Caches pages of program code until they may change.

use crate::PAGE;
use crate::ptrace::RawTid;
use backtrail_process::maps::{self, Map};
use backtrail_process::uprobes;
use std::collections::BTreeMap;
use std::ops::Range;

/// Writable pages that alias code pages, by address.
pub(super) type WritableAliases = BTreeMap<u64, WritableAlias>;

/// A page that the program may write: a code page itself, or another mapping of the same memory.
/// JIT compilers often map memory twice, once writable and once executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WritableAlias {
    /// The address of the code page.
    pub(super) code: u64,
    /// Whether the writable page is executable too.
    pub(super) executable: bool,
}

/// The content of a page, shorter if the rest cannot be read.
#[derive(Debug)]
struct CodePage {
    bytes: Vec<u8>,
    aliases: Vec<(u64, WritableAlias)>,
}

/// The executable memory of a process.
#[derive(Debug, Default)]
pub(super) struct CodePages {
    /// All mappings, or `None` after they have changed.
    maps: Option<Vec<Map>>,
    pages: BTreeMap<u64, CodePage>,
    /// Whether some page belongs to shared memory, which can be mapped twice.
    shared: bool,
}

impl CodePages {
    /// Handles a change of the mappings. Pages that could not be read may exist now.
    pub(super) fn remapped(&mut self) {
        self.maps = None;
        self.pages.retain(|_, page| !page.bytes.is_empty());
    }

    /// Discards the pages in `range`, whose mappings have changed.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.maps = None;
        self.pages.retain(|page, _| !range.contains(page));
    }

    /// Returns whether code in `range` was read.
    pub(super) fn has_read(&self, range: &Range<u64>) -> bool {
        self.pages.range(range.clone()).next().is_some()
    }

    /// Returns whether a new mapping may alias code that was read.
    pub(super) fn may_be_mapped_twice(&self) -> bool {
        self.shared
    }

    /// Returns the executable mapping that contains `ip`, and the mapping of the start of its file.
    /// `None`: the code is not from a file, or the program may change it.
    pub(super) fn file_mapping(&mut self, pid: RawTid, ip: u64) -> Option<(Map, Map)> {
        let maps = self.maps.get_or_insert_with(|| maps::maps(pid));
        let map = executable(maps, ip)?;
        let is_constant = map.is_file() && !map.writable && !map.shared;
        let is_start = |other: &&Map| {
            other.offset == 0
                && other.inode == map.inode
                && other.path == map.path
                && other.start <= map.start
        };
        let start = maps.iter().rfind(is_start)?;
        is_constant.then(|| (map.clone(), start.clone()))
    }

    /// Returns the writable aliases of all code pages in shared memory.
    pub(super) fn aliases_of_shared(&mut self, pid: RawTid) -> WritableAliases {
        let maps = self.maps.get_or_insert_with(|| maps::maps(pid));
        let of_code = maps.iter().filter(|map| map.shared && map.executable);
        let pages = of_code.flat_map(|map| {
            let read = self.pages.range(map.start..map.end);
            read.map(move |(&page, _)| (map, page))
        });
        pages
            .flat_map(|(map, page)| writable_aliases(maps, map, page))
            .collect()
    }

    /// Reads code from address `from` on. Returns the number of bytes read, and adds the writable
    /// aliases of its pages to `changing`.
    pub(super) fn read(
        &mut self,
        pid: RawTid,
        from: u64,
        out: &mut [u8],
        changing: &mut WritableAliases,
    ) -> usize {
        let mut done = 0;
        while let Some(room) = out.get_mut(done..).filter(|room| !room.is_empty()) {
            let at = from.wrapping_add(done as u64);
            let number = at & !(PAGE - 1);
            let page = self.page(pid, number);
            changing.extend(page.aliases.iter().copied());
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
                    aliases: Vec::new(),
                };
            };
            self.shared |= map.shared;
            let mut bytes = vec![0; PAGE as usize];
            let read = crate::code::read_code(pid, number, &mut bytes);
            bytes.truncate(read);
            uprobes::remove_breakpoints(pid, map, number, &mut bytes);
            CodePage {
                bytes,
                aliases: writable_aliases(maps, map, number).collect(),
            }
        })
    }
}

/// Returns the executable mapping that contains a page.
fn executable(maps: &[Map], page: u64) -> Option<&Map> {
    let mut of_page = maps.iter().filter(|map| (map.start..map.end).contains(&page));
    of_page.find(|map| map.executable && map.path != "[vsyscall]")
}

/// Returns the writable aliases of a code page in this mapping.
fn writable_aliases<'a>(
    maps: &'a [Map],
    map: &'a Map,
    page: u64,
) -> impl Iterator<Item = (u64, WritableAlias)> + 'a {
    let offset = map.offset + (page - map.start);
    let itself = std::slice::from_ref(map).iter();
    let others = maps.iter().filter(move |other| {
        let same = other.shared && other.inode == map.inode && other.path == map.path && map.inode != 0;
        map.shared && same && other.start != map.start
    });
    let places = itself.chain(others).filter(|other| other.writable);
    places.filter_map(move |other| {
        let at = other.start.checked_add(offset.checked_sub(other.offset)?)?;
        let alias = WritableAlias {
            code: page,
            executable: other.executable,
        };
        (at < other.end).then_some((at, alias))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_mapping_of_shared_memory_is_a_writable_alias() {
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
            writable_aliases(&maps, map, page).collect::<Vec<_>>()
        };
        let alias = |code, executable| WritableAlias { code, executable };
        assert_eq!(of(0x10000), []);
        assert_eq!(of(0x13000), [(0x21000, alias(0x13000, false))]);
        assert_eq!(of(0x51000), [(0x51000, alias(0x51000, true))]);
        assert!(executable(&maps, 0x20000).is_none());
    }
}
