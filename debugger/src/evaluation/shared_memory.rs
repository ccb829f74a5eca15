//! Memory at a past position, by the accesses of all threads of its process.
//!
//! The accesses of a thread are in order. Those of two threads are ordered by time stamps. Where
//! these leave the order of two writes open, and the values differ, the byte is unknown.

use super::kernel_data;
use super::recorded_sharing::RecordedSharing;
use super::thread_path::ThreadPath;
use crate::replay::{AccessFilter, Byte, CoreMemory, FoundAccess, MemoryRange, ReplayGap, ThreadReplay};
use crate::session::{Process, Session, Thread};
use crate::thread_at_time::{ThreadAtTime, thread_at_time};
use crate::unwind::Memory;
use backtrail_decoder::Watch;
use backtrail_pt::{Avma, Tid};
use backtrail_symbolizer::Unknown;
use std::fmt;
use std::ops::Range;

/// The memory of a process when a thread was before one of its instructions.
pub(super) struct SharedMemory<'a> {
    pub session: &'a Session,
    pub process: &'a Process,
    pub thread: &'a Thread,
    pub index: u64,
    pub watch: &'a Watch<'a>,
}

/// The names of mappings that processes share (`shmem_zero_setup`, `memfd_create`, `shmat` and
/// `shm_open`).
const SHARED_NAMES: [&str; 4] = ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/"];

/// The sharing of memory with other processes, or with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// The position of the system call that mapped it, if it is known.
    pub since: Option<String>,
    /// Whether the kernel changes it, instead of other processes.
    pub is_of_kernel: bool,
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.is_of_kernel {
            true => "memory that the kernel changes at any time",
            false => "memory shared with other processes",
        })
    }
}

/// Returns whether all bytes have their values by this instruction.
fn is_by(bytes: &[Byte], index: Option<u64>) -> bool {
    let is_known = |byte: &Byte| matches!(byte, Byte::Known(_, at) if Some(*at) == index);
    bytes.iter().all(is_known)
}

/// The core, if it is of the end of the history.
struct EndMemory<'a>(Option<Memory<'a>>);

impl CoreMemory for EndMemory<'_> {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let read = |core: &Memory<'_>| core.read(Avma(address), out).is_some();
        self.0.as_ref().is_some_and(read)
    }
}

/// A byte, and the access that decides it.
#[derive(Clone, Copy)]
struct DecidedByte<'a> {
    byte: Byte,
    by: Option<Access<'a>>,
}

/// An access of a thread.
#[derive(Clone, Copy)]
struct Access<'a> {
    thread: &'a Thread,
    index: u64,
}

impl PartialEq for Access<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.thread.tid, self.index) == (other.thread.tid, other.index)
    }
}

impl<'a> SharedMemory<'a> {
    /// Fills `out` with the memory at an address.
    ///
    /// # Errors
    /// Fails with the reason if a byte is not known.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Unknown> {
        let path = self.path_of(self.thread);
        let gap = |gap: ReplayGap| gap.reason(&path);
        let range = MemoryRange {
            address,
            size: out.len() as u64,
        };
        let replay = self.session.replay(self.thread);
        let replay = replay.ok_or_else(|| Unknown::from(super::BEFORE))?;
        if let Some(sharing) = self.sharing(range)? {
            return self.read_at_access(&sharing, range, out);
        }
        let mut bytes = replay
            .last_accesses(&path, self.index, range, self.is_whole(), self.watch)
            .map_err(gap)?;
        let others = self.others();
        self.merge(&others, range, &mut bytes)?;
        let before: Vec<Byte> = bytes.clone();
        let core = EndMemory(self.core().filter(|_| self.core_is_of_end()));
        replay
            .complete_by_later(&path, self.index, range, &mut bytes, &core, self.watch)
            .map_err(gap)?;
        self.check_later(&others, range, &before, &bytes)?;
        self.check_exits(&others, range, &mut bytes)?;
        for (byte, out) in bytes.iter().zip(out.iter_mut()) {
            *out = byte.value(&path)?;
        }
        Ok(())
    }

    /// Returns the last write to a range before the position, and its thread. `None`: nothing wrote
    /// there while values were recorded.
    ///
    /// # Errors
    /// Fails with the reason if the last write is not known.
    pub fn last_writer(&self, range: MemoryRange) -> Result<Option<(&'a Thread, FoundAccess)>, Unknown> {
        let own = self.last_write_of(self.thread, range, &(0..self.index))?;
        let mut last = own.map(|write| (self.thread, write));
        for other in self.others() {
            let now = self.span_of(other, self.thread, self.index)?;
            let known = match &last {
                Some((thread, write)) => self.span_of(other, thread, write.index)?,
                None => 0..0,
            };
            let Some(write) = self.last_write_of(other, range, &(known.start..now.end))? else {
                continue;
            };
            if write.index >= now.start || write.index < known.end {
                let at = other.position(write.index);
                return Err(
                    format!("thread {} writes here at {at}, at about the same time", other.tid).into(),
                );
            }
            last = Some((other, write));
        }
        let is_certain = |(thread, write): &(&Thread, FoundAccess)| {
            thread.tid == self.thread.tid && write.index + 1 == self.index
        };
        match (self.sharing(range)?, &last) {
            (Some(sharing), Some((thread, write))) if !last.as_ref().is_some_and(is_certain) => {
                let at = thread.position(write.index);
                Err(format!("{sharing}; the last write of this process is at {at}").into())
            }
            (Some(sharing), None) => Err(sharing.to_string().into()),
            _ => Ok(last),
        }
    }

    /// Reads memory that other processes may write. It is known at the accesses of this thread
    /// alone: if the instruction before the position accesses it, or the one after loads it.
    fn read_at_access(&self, sharing: &Sharing, range: MemoryRange, out: &mut [u8]) -> Result<(), Unknown> {
        let path = self.path_of(self.thread);
        let gap = |gap: ReplayGap| gap.reason(&path);
        let replay = self.replay_of(self.thread)?;
        let accessed = |filter| {
            replay
                .next_access(
                    &path,
                    (&[range], filter),
                    (self.index, self.index + 1),
                    self.watch,
                )
                .map(|search| search.found.is_some() || search.unknown.is_some())
                .map_err(gap)
        };
        let is_loaded = accessed(AccessFilter::Reads)? && !accessed(AccessFilter::Writes)?;
        let before = |index| {
            replay
                .last_accesses(&path, index, range, false, self.watch)
                .map_err(gap)
        };
        let mut access = before(self.index)?;
        let mut is_certain = is_by(&access, self.index.checked_sub(1));
        if is_loaded && !is_certain {
            let loaded = before(self.index + 1)?;
            is_certain = is_by(&loaded, Some(self.index));
            if is_certain {
                access = loaded;
            }
        }
        let mut values = Vec::new();
        for byte in &access {
            match byte.value(&path) {
                Ok(value) => values.push(value),
                Err(_) => return Err(sharing.to_string().into()),
            }
        }
        if is_certain {
            out.copy_from_slice(&values);
            return Ok(());
        }
        let last = access.iter().filter_map(|byte| byte.decided_at()).max();
        let at = last
            .map(|last| self.thread.position(last).to_string())
            .unwrap_or_default();
        let value: String = values.iter().rev().map(|byte| format!("{byte:02x}")).collect();
        Err(match values.len() {
            1..=8 => format!("{sharing}; its last access here was 0x{value}, at {at}"),
            _ => format!("{sharing}; its last access here was at {at}"),
        }
        .into())
    }

    /// Returns how other processes share a range before the position. `None`: they do not, as far
    /// as the recorded system calls show.
    ///
    /// # Errors
    /// Fails with the reason if the order of system calls is not known; when canceled.
    pub fn sharing(&self, range: MemoryRange) -> Result<Option<Sharing>, Unknown> {
        let size_at = |address: u64| {
            let mut segments = self.session.core()?.contents().segments.iter();
            let found = segments.find(|segment| segment.start.0 == address)?;
            Some(found.size)
        };
        if kernel_data::range(self.session, self.process).is_some_and(|data| data.overlaps(range)) {
            return Ok(Some(Sharing {
                since: None,
                is_of_kernel: true,
            }));
        }
        // The scan of the logs for the times of calls takes long.
        let recorded = RecordedSharing::of(self.session, self.process);
        if !recorded.may_share(range) {
            return Ok(None);
        }
        let mut threads = self.others();
        threads.push(self.thread);
        for thread in &threads {
            let Some(replay) = self.session.replay(thread) else {
                continue;
            };
            let path = self.path_of(thread);
            let shared = replay
                .shared_ranges(&path, size_at, self.watch)
                .map_err(|gap| gap.reason(&path))?;
            for shared in shared.iter().filter(|shared| shared.range.overlaps(range)) {
                let now = self.span_of(thread, self.thread, self.index)?;
                if shared.since < now.end && shared.until.is_none_or(|until| until >= now.start) {
                    return Ok(Some(Sharing {
                        since: Some(thread.position(shared.since).to_string()),
                        is_of_kernel: false,
                    }));
                }
            }
        }
        let begins = |thread: &&Thread| {
            let replay = self.session.replay(thread);
            replay.is_some_and(ThreadReplay::begins_with_thread)
        };
        if recorded.is_shared_unseen(range, threads.iter().all(begins)) {
            return Ok(Some(Sharing {
                since: None,
                is_of_kernel: false,
            }));
        }
        match self.is_whole() {
            true => Ok(None),
            false => self.earlier_sharing(range, size_at),
        }
    }

    /// Returns the sharing that an attached or forked process had before its history.
    fn earlier_sharing(
        &self,
        range: MemoryRange,
        size_at: impl Fn(u64) -> Option<u64> + Copy,
    ) -> Result<Option<Sharing>, Unknown> {
        let files = self.session.core().map(|core| &*core.contents().files);
        let is_named = files.unwrap_or_default().iter().any(|file| {
            let mapped = MemoryRange {
                address: file.start.0,
                size: file.end.0.saturating_sub(file.start.0),
            };
            mapped.overlaps(range) && SHARED_NAMES.iter().any(|name| file.path.starts_with(name))
        });
        if is_named {
            return Ok(Some(Sharing {
                since: None,
                is_of_kernel: false,
            }));
        }
        let is_other = |thread: &&Thread| {
            let process = self.session.process(thread);
            process.is_some_and(|process| process.pid != self.process.pid)
        };
        for thread in self.session.threads().iter().filter(is_other) {
            let (Some(replay), Some(path)) =
                (self.session.replay(thread), ThreadPath::of(self.session, thread))
            else {
                continue;
            };
            let shared = replay
                .shared_ranges(&path, size_at, self.watch)
                .map_err(|gap| gap.reason(&path))?;
            if let Some(shared) = shared.iter().find(|shared| shared.range.overlaps(range)) {
                return Ok(Some(Sharing {
                    since: Some(thread.position(shared.since).to_string()),
                    is_of_kernel: false,
                }));
            }
        }
        Ok(None)
    }

    fn path_of(&self, thread: &'a Thread) -> ThreadPath<'a> {
        ThreadPath::new(self.process, thread)
    }

    /// Returns whether the process was recorded from its start. Then all its threads began in the
    /// recording.
    fn is_whole(&self) -> bool {
        let main = self.session.thread(Tid(self.process.pid.0));
        let replay = main.ok().and_then(|main| self.session.replay(main));
        replay.is_some_and(ThreadReplay::begins_at_exec)
    }

    /// The kernel clears a word when a thread exits (`CLONE_CHILD_CLEARTID`, `clone(2)`). C
    /// libraries keep the thread's id in it. The word is unknown after the exit of the thread.
    fn check_exits(
        &self,
        others: &[&'a Thread],
        range: MemoryRange,
        bytes: &mut [Byte],
    ) -> Result<(), Unknown> {
        for other in others {
            let ended = self.span_of(other, self.thread, self.index)?.end >= other.history.len();
            if ended {
                let by = other.history.len().saturating_sub(1);
                forget_identifier(bytes, range.address, other.tid.0, by);
            }
        }
        Ok(())
    }

    /// Returns the other threads of the process with a history.
    fn others(&self) -> Vec<&'a Thread> {
        let of_process = |other: &&'a Thread| {
            let process = self.session.process(other);
            other.tid != self.thread.tid
                && !other.history.is_empty()
                && process.is_some_and(|process| process.pid == self.process.pid)
        };
        self.session.threads().iter().filter(of_process).collect()
    }

    fn core(&self) -> Option<Memory<'_>> {
        let core = self.session.core()?;
        Some(Memory::new(core, &self.process.image))
    }

    fn core_is_of_end(&self) -> bool {
        let registers = self.session.end_registers(self.thread.tid);
        let end = self.thread.history.pc(self.thread.history.len());
        registers.is_some_and(|registers| end == Some(registers.pc()))
    }

    /// Merges the writes of other threads before the position into bytes.
    fn merge(&self, others: &[&'a Thread], range: MemoryRange, bytes: &mut [Byte]) -> Result<(), Unknown> {
        if others.is_empty() {
            return Ok(());
        }
        let decided = |byte: &Byte| DecidedByte {
            byte: *byte,
            by: byte.decided_at().map(|index| Access {
                thread: self.thread,
                index,
            }),
        };
        let mut all: Vec<DecidedByte<'a>> = bytes.iter().map(decided).collect();
        for other in others {
            // Neighbors usually have the same access.
            let mut start = 0;
            for part in all.chunk_by_mut(|one, next| one.by == next.by) {
                let size = part.len() as u64;
                let range = MemoryRange {
                    address: range.address.wrapping_add(start),
                    size,
                };
                self.merge_part(other, range, part)?;
                start += size;
            }
        }
        for (byte, decided) in bytes.iter_mut().zip(all) {
            *byte = decided.byte;
        }
        Ok(())
    }

    /// Merges the writes of another thread into bytes that one access decides.
    fn merge_part(
        &self,
        other: &'a Thread,
        range: MemoryRange,
        bytes: &mut [DecidedByte<'a>],
    ) -> Result<(), Unknown> {
        let now = self.span_of(other, self.thread, self.index)?;
        let access = match bytes.first().and_then(|first| first.by) {
            Some(by) => self.span_of(other, by.thread, by.index)?,
            None => 0..0,
        };
        let window = access.start..now.end;
        let Some(write) = self.last_write(other, range, &window)? else {
            return Ok(());
        };
        let is_after = write >= access.end && write < now.start;
        let path = self.path_of(other);
        for (offset, byte) in (0..).zip(bytes.iter_mut()) {
            let of_byte = MemoryRange {
                address: range.address.wrapping_add(offset),
                size: 1,
            };
            let write = match range.size {
                1 => Some(write),
                _ => self.last_write(other, of_byte, &window)?,
            };
            let Some(write) = write else {
                continue;
            };
            let replay = self.replay_of(other)?;
            let after = replay
                .last_accesses(&path, write + 1, of_byte, false, self.watch)
                .map_err(|gap| gap.reason(&path))?;
            let value = after.first().copied().unwrap_or(Byte::Open).value(&path)?;
            match byte.byte {
                Byte::Known(known, _) if !is_after && known == value => {}
                known if !is_after => return Err(open_order(other, write, known, value)),
                _ => {
                    byte.byte = Byte::Known(value, self.index);
                    byte.by = Some(Access {
                        thread: other,
                        index: write,
                    });
                }
            }
        }
        Ok(())
    }

    /// Checks that no other thread writes between the position and the later accesses that decide
    /// bytes.
    fn check_later(
        &self,
        others: &[&'a Thread],
        range: MemoryRange,
        before: &[Byte],
        bytes: &[Byte],
    ) -> Result<(), Unknown> {
        let new = before.iter().zip(bytes).filter(|(before, byte)| before != byte);
        let last = new.filter_map(|(_, byte)| byte.decided_at()).max();
        let Some(last) = last else {
            return Ok(());
        };
        for other in others {
            let now = self.span_of(other, self.thread, self.index)?;
            let later = self.span_of(other, self.thread, last)?;
            if let Some(write) = self.last_write(other, range, &(now.start..later.end))? {
                let at = other.position(write);
                return Err(format!("thread {} writes here at {at}, before it is read", other.tid).into());
            }
        }
        Ok(())
    }

    /// Returns the last write of another thread to a range in a part of its history.
    fn last_write(
        &self,
        other: &'a Thread,
        range: MemoryRange,
        window: &Range<u64>,
    ) -> Result<Option<u64>, Unknown> {
        let found = self.last_write_of(other, range, window)?;
        Ok(found.map(|found| found.index))
    }

    /// Returns the last write of a thread to a range in a part of its history.
    fn last_write_of(
        &self,
        other: &'a Thread,
        range: MemoryRange,
        window: &Range<u64>,
    ) -> Result<Option<FoundAccess>, Unknown> {
        if window.is_empty() {
            return Ok(None);
        }
        let path = self.path_of(other);
        let search = self
            .replay_of(other)?
            .previous_access(
                &path,
                (&[range], AccessFilter::Writes),
                (window.start, window.end),
                self.watch,
            )
            .map_err(|gap| gap.reason(&path))?;
        match search.unknown {
            Some(unknown) => {
                let at = other.position(unknown);
                Err(format!("thread {} may have written here unseen, at {at}", other.tid).into())
            }
            None => Ok(search.found),
        }
    }

    fn replay_of(&self, other: &'a Thread) -> Result<&'a ThreadReplay, Unknown> {
        let replay = self.session.replay(other);
        replay.ok_or_else(|| format!("the values of thread {} were not recorded", other.tid).into())
    }

    /// Returns the instructions of `other` before which it may have been when `thread` was before
    /// an instruction. Instructions before the range have run, and those after it have not.
    fn span_of(&self, other: &Thread, thread: &Thread, index: u64) -> Result<Range<u64>, Unknown> {
        let at = thread_at_time(self.session, thread, index, other);
        match at.map_err(|_| Unknown::from("the beginning of the history is not decoded yet"))? {
            ThreadAtTime::Between(from, until) => Ok(from..until),
            ThreadAtTime::NotBegun => Ok(0..0),
            ThreadAtTime::Unknown => {
                Err(format!("thread {} has no times, and may write here", other.tid).into())
            }
        }
    }
}

/// Makes the words unknown that have the identifier of a thread that has exited.
fn forget_identifier(bytes: &mut [Byte], address: u64, tid: u32, by: u64) {
    let id = tid.to_le_bytes();
    let first = (address % 4) as usize;
    let is_id = |at: usize, byte: &Byte| {
        let place = (first + at) % 4;
        matches!(byte, Byte::Known(value, _) if Some(value) == id.get(place))
    };
    let all = bytes.iter().enumerate();
    let same: Vec<bool> = all.map(|(at, byte)| is_id(at, byte)).collect();
    // A word that is read in part is judged by that part.
    let mut start = 0;
    while start < bytes.len() {
        let end = (start + 4 - (first + start) % 4).min(bytes.len());
        let is_word = same
            .get(start..end)
            .is_some_and(|word| word.iter().all(|same| *same));
        // Zeros are what the kernel writes.
        let is_zero = |byte: &Byte| matches!(byte, Byte::Known(0, _));
        if let Some(word) = bytes.get_mut(start..end)
            && is_word
            && !word.iter().all(is_zero)
        {
            word.fill(Byte::Written(by));
        }
        start = end;
    }
}

/// Returns the reason for two writes whose order is open.
fn open_order(other: &Thread, write: u64, known: Byte, written: u8) -> Unknown {
    let at = other.position(write);
    let tid = other.tid;
    let here = match known {
        Byte::Known(value, _) => format!("{value:#04x}"),
        _ => "what was there before".to_owned(),
    };
    format!("{here} or {written:#04x}: thread {tid} writes here at {at}, at about the same time").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(bytes: &[u8]) -> Vec<Byte> {
        bytes.iter().map(|byte| Byte::Known(*byte, 1)).collect()
    }

    #[test]
    fn identifiers_of_exited_threads_are_unknown() {
        let mut bytes = known(&[0, 0, 0x34, 0x12, 0, 0, 5, 0]);
        forget_identifier(&mut bytes, 0x1002, 0x1234, 9);
        let mut expected = known(&[0, 0, 0x34, 0x12, 0, 0, 5, 0]);
        expected[2..6].fill(Byte::Written(9));
        assert_eq!(bytes, expected);
        // A number at another place in its word is no identifier, and neither are zeros.
        let other = known(&[0x34, 0x12, 0, 0]);
        let mut bytes = other.clone();
        forget_identifier(&mut bytes, 0x1001, 0x1234, 9);
        assert_eq!(bytes, other);
    }
}
