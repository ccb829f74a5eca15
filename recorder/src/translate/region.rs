//! The region of a thread: its slots and its log.

use super::event::{LogEvent, MAX_LEN};
use super::layout::{self, CHUNK, CHUNK_COUNT};
use super::memory::SharedMemory;
use super::staged::Staged;
use super::tracee::{Gadget, Tracee};
use crate::PAGE;
use crate::error::{Error, Result};
use crate::signal_state::SignalAction;
use backtrail_bundle::core::SigInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The offset of the gadget page in the file that backs a region.
const GADGET_OFFSET: u64 = PAGE + CHUNK_COUNT * CHUNK;
/// The offset of the stage and the values in the file.
const STAGE_OFFSET: u64 = GADGET_OFFSET + PAGE;
/// The size of the stage and the values.
const STAGE_SIZE: u64 = layout::VALUES - layout::STAGE + layout::VALUES_SIZE;
/// The size of the file that backs a region: the slots, the chunks, then the gadget page. The stage
/// and the values follow, if values are recorded.
const FILE_SIZE: u64 = GADGET_OFFSET + PAGE;

/// The memory of one thread in the program.
#[derive(Debug)]
pub(super) struct Region {
    /// The address in the program.
    base: AtomicU64,
    memory: SharedMemory,
    /// The size of the buffer for values, if they are recorded.
    values: Option<u64>,
    /// Chunks that may be filled, because they have been encoded completely.
    free: Mutex<[bool; CHUNK_COUNT as usize]>,
    /// Signals that a chunk has become free.
    freed: Condvar,
}

impl Region {
    /// Creates the region at the unused address `base`. The tables come from an address in the
    /// program, or from a new file. `values` adds a buffer of this size for values.
    pub(super) fn make(
        tracee: &mut Tracee<'_>,
        base: u64,
        tables: TableSource,
        values: Option<u64>,
    ) -> Result<Self> {
        tracee.reserve(base, layout::REGION_SIZE)?;
        tracee.hide(base, layout::REGION_SIZE)?;
        let (file, descriptor) = tracee.memory_file()?;
        let size = FILE_SIZE + if values.is_some() { STAGE_SIZE } else { 0 };
        let memory = SharedMemory::map(&file, size).map_err(Error::system("map memory"))?;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        tracee.map(base, PAGE, writable, (descriptor, 0))?;
        for chunk in 0..CHUNK_COUNT {
            let at = base + layout::chunk_start(chunk);
            tracee.map(at, CHUNK, writable, (descriptor, PAGE + chunk * CHUNK))?;
        }
        memory.write(GADGET_OFFSET, &layout::GADGET_CODE);
        let executable = libc::PROT_READ | libc::PROT_EXEC;
        tracee.map(
            base + layout::GADGET,
            PAGE,
            executable,
            (descriptor, GADGET_OFFSET),
        )?;
        if values.is_some() {
            let at = base + layout::STAGE;
            tracee.map(at, STAGE_SIZE, writable, (descriptor, STAGE_OFFSET))?;
        }
        tracee.close(descriptor)?;
        let to = base + layout::TABLES;
        match tables {
            TableSource::File(descriptor) => {
                tracee.map(to, layout::TABLES_SIZE, libc::PROT_READ, (descriptor, 0))?
            }
            TableSource::At(from) => tracee.map_again(from, layout::TABLES_SIZE, to)?,
        }
        // Mappings that replace others do not inherit `MADV_DONTDUMP`.
        tracee.hide(base, layout::REGION_SIZE)?;
        let region = Self {
            base: AtomicU64::new(base),
            memory,
            values,
            free: Mutex::new(ALL_BUT_FIRST),
            freed: Condvar::new(),
        };
        region.set_pointer(region.chunk(0));
        region.reset_values();
        Ok(region)
    }

    /// Resets the region for another thread.
    pub(super) fn reset(&self) {
        *self.free() = ALL_BUT_FIRST;
        self.set_pointer(self.chunk(0));
        self.set_version(0);
        self.reset_values();
        self.memory.store(u64::from(layout::ALLOCATOR_STACK), 0);
    }

    /// Returns the address of the region in the program.
    pub(super) fn base(&self) -> u64 {
        self.base.load(Ordering::Acquire)
    }

    /// Moves the region to unused addresses. Its thread must be outside the cache.
    pub(super) fn move_to(&self, tracee: &mut Tracee<'_>, to: u64) -> Result<()> {
        let from = self.base();
        tracee.reserve(to, layout::REGION_SIZE)?;
        let chunks = (0..CHUNK_COUNT).map(|chunk| (layout::chunk_start(chunk), CHUNK));
        let pages = [
            (0, PAGE),
            (layout::TABLES, layout::TABLES_SIZE),
            (layout::GADGET, PAGE),
        ];
        let values = self.values.map(|_| (layout::STAGE, STAGE_SIZE));
        for (offset, size) in pages.into_iter().chain(chunks).chain(values) {
            tracee.move_mapping(from + offset, size, to + offset)?;
            if offset == layout::GADGET && tracee.gadget == Gadget::at(from + offset) {
                tracee.gadget = Gadget::at(to + offset);
            }
        }
        tracee.hide(to, layout::REGION_SIZE)?;
        let logged = self.pointer().wrapping_sub(from);
        let values = self.slot(layout::VALUE_POINTER).wrapping_sub(from);
        self.base.store(to, Ordering::Release);
        self.set_pointer(to.wrapping_add(logged));
        self.memory
            .store(u64::from(layout::VALUE_POINTER), to.wrapping_add(values));
        Ok(())
    }

    /// Returns the SYSCALL instruction of the region, which the program cannot change.
    pub(super) fn gadget(&self) -> Gadget {
        Gadget::at(self.base() + layout::GADGET)
    }

    /// Returns the address of a chunk in the program.
    pub(super) fn chunk(&self, chunk: u64) -> u64 {
        self.base() + layout::chunk_start(chunk)
    }

    /// Returns the address of the next byte of the log in the program.
    pub(super) fn pointer(&self) -> u64 {
        self.memory.load(u64::from(layout::LOG_POINTER))
    }

    pub(super) fn set_pointer(&self, pointer: u64) {
        self.memory.store(u64::from(layout::LOG_POINTER), pointer);
    }

    /// Takes all logged values out of the buffer, and appends them to `out`.
    pub(super) fn take_values(&self, out: &mut Vec<u8>) {
        let start = self.values_start();
        let len = self.slot(layout::VALUE_POINTER).wrapping_sub(self.base() + start);
        let at = STAGE_OFFSET + start - layout::STAGE;
        self.memory.read(at, len.min(layout::VALUES_SIZE) as usize, out);
        self.reset_values();
    }

    /// Empties the buffer of values.
    pub(super) fn reset_values(&self) {
        self.memory.store(
            u64::from(layout::VALUE_POINTER),
            self.base() + self.values_start(),
        );
    }

    /// Returns the offset of the buffer for values. It ends at its guard page.
    fn values_start(&self) -> u64 {
        let size = self.values.unwrap_or(layout::VALUES_SIZE);
        layout::VALUES + layout::VALUES_SIZE - size.min(layout::VALUES_SIZE)
    }

    /// Returns the size of the buffer for values.
    pub(super) fn values_size(&self) -> u64 {
        layout::VALUES + layout::VALUES_SIZE - self.values_start()
    }

    /// Appends the values on the stage to `out`.
    pub(super) fn read_stage(&self, staged: Staged, out: &mut Vec<u8>) {
        for (slot, size) in staged.values() {
            let at = STAGE_OFFSET + u64::from(slot) - layout::STAGE;
            self.memory.read(at, size as usize, out);
        }
    }

    /// Stores the value of an operand on the stage: whole words from `slot` on.
    pub(super) fn write_stage(&self, slot: u32, bytes: &[u8]) {
        for (number, word) in (0_u64..).zip(bytes.as_chunks::<8>().0) {
            let at = STAGE_OFFSET + u64::from(slot) + 8 * number - layout::STAGE;
            self.memory.store(at, u64::from_le_bytes(*word));
        }
    }

    /// Sets the bases of FS and GS that system calls log.
    pub(super) fn set_bases(&self, bases: [u64; 2]) {
        if self.values.is_some() {
            let at = STAGE_OFFSET + layout::BASES - layout::STAGE;
            self.memory.store(at, bases[0]);
            self.memory.store(at + 8, bases[1]);
        }
    }

    /// Sets the code version that the thread has logged.
    pub(super) fn set_version(&self, version: u32) {
        self.memory.store(u64::from(layout::VERSION), u64::from(version));
    }

    /// Copies system call arguments into the region, and returns their address in the program.
    pub(super) fn set_arguments(&self, bytes: &[u8]) -> u64 {
        self.memory.write(u64::from(layout::ARGUMENTS), bytes);
        self.base() + u64::from(layout::ARGUMENTS)
    }

    /// Copies a disposition into the region, and returns its address in the program.
    pub(super) fn set_action(&self, action: &SignalAction) -> u64 {
        self.memory.write(u64::from(layout::ACTION), &action.to_bytes());
        self.base() + u64::from(layout::ACTION)
    }

    /// Copies the information of a signal into the region, and returns its address in the program.
    pub(super) fn set_signal(&self, info: &SigInfo) -> u64 {
        self.memory.write(u64::from(layout::SIGNAL), &info.0);
        self.base() + u64::from(layout::SIGNAL)
    }

    /// Reads the disposition that a system call has written to [`layout::ACTION`].
    pub(super) fn action(&self) -> SignalAction {
        let at = u64::from(layout::ACTION);
        SignalAction([0, 8, 16, 24].map(|offset| self.memory.load(at + offset)))
    }

    /// Returns the value of a spilled register.
    pub(super) fn slot(&self, slot: u32) -> u64 {
        self.memory.load(u64::from(slot))
    }

    /// Appends a part of a chunk to `out`.
    pub(super) fn read(&self, chunk: u64, from: u64, to: u64, out: &mut Vec<u8>) {
        let to = to.min(CHUNK);
        if from < to {
            self.memory
                .read(PAGE + chunk * CHUNK + from, (to - from) as usize, out);
        }
    }

    fn write(&self, chunk: u64, at: u64, bytes: &[u8]) {
        self.memory.write(PAGE + chunk * CHUNK + at, bytes);
    }

    /// Takes a chunk for filling. Waits until it has been encoded completely.
    pub(super) fn acquire_chunk(&self, chunk: u64) {
        let mut free = self.free();
        while let Some(false) = free.get(chunk as usize) {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(free) = free.get_mut(chunk as usize) {
            *free = false;
        }
    }

    /// Releases a chunk that has been encoded completely.
    pub(super) fn release_chunk(&self, chunk: u64) {
        if let Some(free) = self.free().get_mut(chunk as usize) {
            *free = true;
        }
        self.freed.notify_one();
    }

    fn free(&self) -> MutexGuard<'_, [bool; CHUNK_COUNT as usize]> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A log begins in its first chunk.
const ALL_BUT_FIRST: [bool; CHUNK_COUNT as usize] = {
    let mut free = [true; CHUNK_COUNT as usize];
    free[0] = false;
    free
};

/// The source of the tables of a new region.
#[derive(Clone, Copy, Debug)]
pub(super) enum TableSource {
    /// A file descriptor that is open in the program.
    File(u64),
    /// An address in the program.
    At(u64),
}

/// The position of the recorder in a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogCursor {
    /// The chunk that is being filled.
    pub(super) chunk: u64,
}

impl LogCursor {
    /// Returns the number of bytes written to the current chunk.
    pub(super) fn written(&self, region: &Region) -> u64 {
        region.pointer().wrapping_sub(region.chunk(self.chunk)).min(CHUNK)
    }

    /// Appends an event to the log of a stopped thread. Returns `false` if the chunk is full.
    pub(super) fn write(&self, region: &Region, event: LogEvent) -> bool {
        let at = self.written(region);
        if at + MAX_LEN as u64 > CHUNK {
            return false;
        }
        let (bytes, len) = event.write();
        region.write(self.chunk, at, bytes.get(..len).unwrap_or_default());
        region.set_pointer(region.chunk(self.chunk) + at + len as u64);
        true
    }
}
