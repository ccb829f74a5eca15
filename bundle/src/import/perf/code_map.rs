//! The code that was mapped into a process, by address and time.
//!
//! perf records mappings, and does not record that memory was unmapped. Code that is not mapped
//! does not run, so a mapping counts until another one replaces it. This holds after an `execve`
//! too.

use backtrail_perf::record::{MappedFile, Mmap};
use backtrail_pt::{Avma, FileOffset, Nanos};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The last file that was mapped under each path.
#[derive(Debug, Default)]
pub(super) struct NewestFiles(HashMap<String, MappedFile>);

impl NewestFiles {
    /// Adds a mapping that is later than the others.
    pub(super) fn add(&mut self, mmap: &Mmap) {
        let Some(file) = mmap.file else { return };
        match self.0.get_mut(&mmap.path) {
            Some(known) => *known = file,
            None => _ = self.0.insert(mmap.path.clone(), file),
        }
    }

    /// Returns whether another file was mapped later under the path of a mapping. The build id of a
    /// file distinguishes it, too.
    pub(super) fn supersede(&self, mmap: &Mmap) -> bool {
        let newest = self.0.get(&mmap.path);
        let is_other = |file: MappedFile| newest.is_some_and(|newest| !newest.may_be(&file));
        mmap.build_id.is_none() && mmap.file.is_some_and(is_other)
    }
}

/// The records about the code of a process, in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeRecords {
    records: Vec<CodeRecord>,
}

#[derive(Clone, Debug)]
enum CodeRecord {
    /// A mapping, and its time.
    Mapped(Rc<Mmap>, Option<Nanos>),
    /// The process starts with the code of its parent so far.
    Forked,
    /// The process executes a program.
    Executed,
}

impl CodeRecords {
    /// Returns whether there is no mapping.
    pub(super) fn is_empty(&self) -> bool {
        self.mappings().next().is_none()
    }

    fn mappings(&self) -> impl DoubleEndedIterator<Item = &Rc<Mmap>> {
        self.records.iter().filter_map(|record| match record {
            CodeRecord::Mapped(mmap, _) => Some(mmap),
            _ => None,
        })
    }

    /// Returns the number of mappings.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.mappings().count()
    }

    /// Adds a mapping, at a time.
    pub(super) fn map(&mut self, mmap: Mmap, at: Option<Nanos>) {
        self.records.push(CodeRecord::Mapped(Rc::new(mmap), at));
    }

    /// Adds an `execve`. The code before it stays: nothing of it runs where it is not mapped.
    pub(super) fn execute(&mut self) {
        if !matches!(self.records.last(), Some(CodeRecord::Executed)) {
            self.records.push(CodeRecord::Executed);
        }
    }

    /// Returns the size of a copy of the records in bytes.
    pub(super) fn memory(&self) -> usize {
        self.records.len() * size_of::<CodeRecord>()
    }

    /// Adds the start of the process as a child of another.
    pub(super) fn fork(&mut self, parent: &Self, at: Option<Nanos>) {
        if self.records.is_empty() {
            // Of the parent's history, only its mappings and its last program matter.
            let execution = parent.last_execution();
            let mapped = parent.records.iter().enumerate();
            let mapped = mapped
                .filter(|(at, record)| matches!(record, CodeRecord::Mapped(..)) || Some(*at) == execution);
            self.records = mapped.map(|(_, record)| record.clone()).collect();
            self.records.push(CodeRecord::Forked);
        } else {
            // An earlier process had the same id, and its code counts as replaced.
            let mapped = parent.mappings().cloned();
            let mapped: Vec<_> = mapped.map(|mmap| CodeRecord::Mapped(mmap, at)).collect();
            self.records.extend(mapped);
        }
    }

    /// Returns the path of the program: the first file mapped since the last `execve`.
    pub(super) fn program(&self) -> Option<&str> {
        let since = self.last_execution().map_or(0, |at| at + 1);
        let mut since = self.records.iter().skip(since);
        since.find_map(|record| match record {
            CodeRecord::Mapped(mmap, _) if is_file(&mmap.path) => Some(&*mmap.path),
            _ => None,
        })
    }

    fn last_execution(&self) -> Option<usize> {
        let is_execution = |record: &CodeRecord| matches!(record, CodeRecord::Executed);
        self.records.iter().rposition(is_execution)
    }

    /// Returns the code by address and time. `size` returns the size of a mapping's code: what is
    /// beyond a file's segment was unmapped at once.
    pub(super) fn code(&self, size: impl Fn(&Mmap) -> u64) -> CodeMap {
        let mut code = CodeMap::default();
        for record in &self.records {
            match record {
                CodeRecord::Mapped(mmap, at) => code.map(mmap, size(mmap).min(mmap.size), *at),
                CodeRecord::Forked => code.fork(),
                CodeRecord::Executed => {}
            }
        }
        code
    }
}

/// A part of a mapping, with the time at which it held.
#[derive(Clone, Debug)]
pub(super) struct MappedPart {
    /// The mapping.
    pub(super) mmap: Rc<Mmap>,
    /// The first address.
    pub(super) start: u64,
    /// The address after the last.
    pub(super) end: u64,
    /// The time at which it replaced other code; `None`: there was none before.
    pub(super) from: Option<Nanos>,
    /// The time at which other code replaced it; `None`: it was not replaced.
    pub(super) until: Option<Nanos>,
}

impl MappedPart {
    /// Returns the first address.
    pub(super) fn address(&self) -> Avma {
        Avma(self.start)
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Returns the file offset of the first address.
    pub(super) fn offset(&self) -> FileOffset {
        let skipped = self.start.wrapping_sub(self.mmap.start.0);
        FileOffset(self.mmap.offset.0.wrapping_add(skipped))
    }

    /// Returns the part from one address to another.
    fn within(&self, start: u64, end: u64) -> Option<Self> {
        let (start, end) = (start.max(self.start), end.min(self.end));
        (start < end).then(|| Self {
            start,
            end,
            ..self.clone()
        })
    }
}

/// The code of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeMap {
    /// The code that nothing replaced, by first address. The parts do not overlap.
    live: BTreeMap<u64, MappedPart>,
    /// The code that was replaced.
    replaced: Vec<MappedPart>,
    /// The number of mappings added.
    added: usize,
}

impl CodeMap {
    /// The most parts for each mapping added. Beyond it, a mapping is not split.
    const MAX_PARTS: usize = 4;

    /// Returns all code: first what was replaced, in the order of the replacements.
    pub(super) fn parts(&self) -> impl Iterator<Item = &MappedPart> {
        self.replaced.iter().chain(self.live.values())
    }

    /// Returns how often code was replaced.
    #[cfg(test)]
    pub(super) fn replacements(&self) -> usize {
        self.replaced.len()
    }

    /// Keeps only the code that a child process starts with.
    fn fork(&mut self) {
        self.replaced.clear();
        self.live.values_mut().for_each(|part| part.from = None);
        self.added = self.live.len();
    }

    /// Adds the first `size` bytes of a mapping, at a time.
    fn map(&mut self, mmap: &Rc<Mmap>, size: u64, at: Option<Nanos>) {
        let range = mmap.start.0..mmap.start.0.saturating_add(size);
        self.add(mmap, range, at);
    }

    fn add(&mut self, mmap: &Rc<Mmap>, range: std::ops::Range<u64>, at: Option<Nanos>) {
        if range.is_empty() {
            return;
        }
        self.added += 1;
        let mut new = MappedPart {
            mmap: Rc::clone(mmap),
            start: range.start,
            end: range.end,
            from: None,
            until: None,
        };
        // A change without a time could have happened at any time.
        let time = at.unwrap_or(Nanos(0));
        let mut conflicts: Vec<(u64, u64)> = Vec::new();
        for old in self.take_over(range.start, range.end) {
            if is_same_code(&old.mmap, mmap) {
                new.start = new.start.min(old.start);
                new.end = new.end.max(old.end);
                new.from = new.from.max(old.from);
                if mmap.build_id.is_none() {
                    new.mmap = Rc::clone(&old.mmap);
                }
                continue;
            }
            for rest in [old.within(0, range.start), old.within(range.end, u64::MAX)] {
                self.live.extend(rest.map(|rest| (rest.start, rest)));
            }
            if let Some(replaced) = old.within(range.start, range.end) {
                match conflicts.last_mut() {
                    Some((_, end)) if *end == replaced.start => *end = replaced.end,
                    _ => conflicts.push((replaced.start, replaced.end)),
                }
                // A part that was replaced at the time of its mapping never held.
                if replaced.from != Some(time) {
                    self.replaced.push(MappedPart {
                        until: Some(time),
                        ..replaced
                    });
                }
            }
        }
        if at.is_none() && !conflicts.is_empty() {
            new.mmap = Rc::new(unknown(&new));
        }
        self.insert(new, &conflicts, time);
    }

    /// Inserts a part. Where it replaced other code, it holds from `time` on.
    fn insert(&mut self, new: MappedPart, conflicts: &[(u64, u64)], time: Nanos) {
        let room = self.added.saturating_mul(Self::MAX_PARTS);
        let parts = self.live.len() + self.replaced.len();
        let mut put = |start: u64, end: u64, from: Option<Nanos>| {
            let part = new.within(start, end);
            self.live
                .extend(part.map(|part| (part.start, MappedPart { from, ..part })));
        };
        if conflicts.is_empty() {
            put(new.start, new.end, new.from);
            return;
        }
        if parts + 2 * conflicts.len() > room {
            put(new.start, new.end, Some(time));
            return;
        }
        let mut at = new.start;
        for &(start, end) in conflicts {
            put(at, start, new.from);
            put(start, end, Some(time));
            at = end;
        }
        put(at, new.end, new.from);
    }

    /// Removes and returns the parts with an address in `start..end`, ascending.
    fn take_over(&mut self, start: u64, end: u64) -> Vec<MappedPart> {
        let before = self.live.range(..start).next_back();
        let before = before
            .filter(|(_, part)| part.end > start)
            .map(|(first, _)| *first);
        let inside = self.live.range(start..end).map(|(first, _)| *first);
        let starts: Vec<u64> = before.into_iter().chain(inside).collect();
        starts
            .iter()
            .filter_map(|first| self.live.remove(first))
            .collect()
    }
}

/// Returns a mapping of unknown code in the place of one.
fn unknown(part: &MappedPart) -> Mmap {
    Mmap {
        path: String::new(),
        build_id: None,
        file: None,
        ..Mmap::clone(&part.mmap)
    }
}

/// Returns whether two mappings show the same code at the same addresses: a part of one file,
/// or unknown code.
fn is_same_code(one: &Mmap, other: &Mmap) -> bool {
    if !is_file(&one.path) || !is_file(&other.path) {
        return is_file(&one.path) == is_file(&other.path);
    }
    let bias = |mmap: &Mmap| mmap.start.0.wrapping_sub(mmap.offset.0);
    let is_same_file = match (&one.build_id, &other.build_id, one.file, other.file) {
        (Some(one), Some(other), _, _) => one == other,
        (_, _, Some(one), Some(other)) => one.may_be(&other),
        _ => true,
    };
    one.path == other.path && bias(one) == bias(other) && is_same_file
}

/// Returns whether a mapping's name is a file path.
pub(super) fn is_file(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//anon")
        && !path.starts_with("/dev/zero")
        && !path.starts_with("/memfd:")
        && !path.starts_with("/SYSV")
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Pid;

    fn mmap(path: &str, start: u64, size: u64) -> Mmap {
        Mmap {
            pid: Pid(1),
            start: Avma(start),
            size,
            offset: FileOffset(0),
            path: path.to_owned(),
            build_id: None,
            file: None,
            executable: true,
            user: true,
        }
    }

    /// Path, start, end, from, until.
    type Row = (String, u64, u64, Option<u64>, Option<u64>);

    /// The code of these mappings, each with its time.
    fn mapped(mappings: Vec<(Mmap, Option<u64>)>) -> CodeRecords {
        let mut records = CodeRecords::default();
        for (mmap, at) in mappings {
            records.map(mmap, at.map(Nanos));
        }
        records
    }

    fn code(records: &CodeRecords) -> CodeMap {
        records.code(|mmap| mmap.size)
    }

    fn rows(map: &CodeMap) -> Vec<Row> {
        let time = |time: Option<Nanos>| time.map(|time| time.0);
        let row = |part: &MappedPart| {
            let path = part.mmap.path.clone();
            (path, part.start, part.end, time(part.from), time(part.until))
        };
        map.parts().map(row).collect()
    }

    fn row(path: &str, start: u64, end: u64, from: Option<u64>, until: Option<u64>) -> Row {
        (path.to_owned(), start, end, from, until)
    }

    #[test]
    fn replaced_code_holds_until_its_replacement() {
        let records = mapped(vec![
            (mmap("/a", 0x1000, 0x3000), Some(10)),
            (mmap("/b", 0x2000, 0x4000), Some(20)),
            (mmap("//anon", 0x5000, 0x1000), Some(30)),
        ]);
        let map = code(&records);
        let expected = [
            row("/a", 0x2000, 0x4000, None, Some(20)),
            row("/b", 0x5000, 0x6000, None, Some(30)),
            row("/a", 0x1000, 0x2000, None, None),
            row("/b", 0x2000, 0x4000, Some(20), None),
            row("/b", 0x4000, 0x5000, None, None),
            row("//anon", 0x5000, 0x6000, Some(30), None),
        ];
        assert_eq!(rows(&map), expected);
        assert_eq!(map.replacements(), 2);
        assert_eq!(map.parts().nth(4).unwrap().offset(), FileOffset(0x2000));
        let mut child = CodeRecords::default();
        child.fork(&records, Some(Nanos(40)));
        let born = rows(&code(&child));
        assert!(
            born.iter()
                .all(|(.., from, until)| (*from, *until) == (None, None))
        );
        assert_eq!(born.len(), 4);
        // A process id that is used again.
        let mut reused = mapped(vec![(mmap("/c", 0x5000, 0x1000), Some(1))]);
        reused.fork(&records, Some(Nanos(40)));
        assert!(rows(&code(&reused)).contains(&row("/c", 0x5000, 0x6000, None, Some(40))));
    }

    #[test]
    fn only_the_code_of_a_mapping_is_replaced() {
        // The kernel maps an interpreter's whole range first, and unmaps the end of it.
        let records = mapped(vec![
            (mmap("/ld.so", 0x1000, 0x9000), Some(10)),
            (mmap("/lib.so", 0x5000, 0x2000), Some(20)),
        ]);
        let map = records.code(|mmap| if mmap.path == "/ld.so" { 0x2000 } else { u64::MAX });
        let expected = [
            row("/ld.so", 0x1000, 0x3000, None, None),
            row("/lib.so", 0x5000, 0x7000, None, None),
        ];
        assert_eq!(rows(&map), expected);
    }

    #[test]
    fn program_is_the_first_file_after_the_last_exec() {
        let mut records = mapped(vec![(mmap("/sh", 0x1000, 0x1000), None)]);
        assert_eq!(records.program(), Some("/sh"));
        records.execute();
        assert_eq!(records.program(), None);
        records.map(mmap("[vdso]", 0x7000, 0x1000), None);
        records.map(mmap("/ls", 0x1000, 0x1000), None);
        records.map(mmap("/libc", 0x3000, 0x1000), None);
        assert_eq!(records.program(), Some("/ls"));
    }

    #[test]
    fn the_same_code_again_replaces_nothing() {
        // A later part of the same file, as after `mprotect`.
        let part = Mmap {
            offset: FileOffset(0x1000),
            ..mmap("/a", 0x2000, 0x2000)
        };
        let map = code(&mapped(vec![
            (mmap("/a", 0x1000, 0x2000), Some(10)),
            (part, Some(20)),
        ]));
        assert_eq!(rows(&map), [row("/a", 0x1000, 0x4000, None, None)]);
        let anonymous = vec![
            (mmap("//anon", 0x1000, 0x1000), Some(1)),
            (mmap("[heap]", 0x1000, 0x1000), Some(2)),
        ];
        assert_eq!(code(&mapped(anonymous)).replacements(), 0);
    }

    #[test]
    fn another_file_with_the_same_path_is_other_code() {
        let of = |generation| Mmap {
            file: Some(MappedFile {
                major: 8,
                minor: 1,
                inode: 7,
                generation,
            }),
            ..mmap("/plugin.so", 0x1000, 0x1000)
        };
        let mut records = mapped(vec![(of(1), Some(10)), (of(2), Some(20))]);
        let map = code(&records);
        assert_eq!(map.replacements(), 1);
        let mut newest = NewestFiles::default();
        [of(1), of(2)].iter().for_each(|mmap| newest.add(mmap));
        let superseded = map.parts().map(|part| newest.supersede(&part.mmap));
        assert_eq!(superseded.collect::<Vec<_>>(), [true, false]);
        // Another part of the same file at the same address is other code, too.
        let moved = Mmap {
            offset: FileOffset(0x1000),
            ..of(2)
        };
        records.map(moved, Some(Nanos(30)));
        assert_eq!(code(&records).replacements(), 2);
    }

    #[test]
    fn replacement_at_an_unknown_time_leaves_unknown_code() {
        let records = mapped(vec![
            (mmap("/a", 0x1000, 0x1000), None),
            (mmap("/b", 0x1000, 0x2000), None),
        ]);
        let expected = [
            row("/a", 0x1000, 0x2000, None, Some(0)),
            row("", 0x1000, 0x2000, Some(0), None),
            row("", 0x2000, 0x3000, None, None),
        ];
        assert_eq!(rows(&code(&records)), expected);
    }

    #[test]
    fn many_small_parts_stay_bounded() {
        let mut records = CodeRecords::default();
        for round in 0..100 {
            for index in 0..100 {
                let small = mmap(&format!("/{round}"), index * 0x2000, 0x1000);
                records.map(small, Some(Nanos(round)));
            }
            records.map(mmap("/all", 0, 100 * 0x2000), Some(Nanos(round)));
        }
        let map = code(&records);
        let parts = map.parts().count();
        assert!(parts < 101 * 100 * 8, "{parts}");
        let live: Vec<_> = map.live.values().collect();
        assert!(live.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}
