//! A thread's region: its slots and its log.

use super::event::{Event, MAX_LEN};
use super::layout::{self, CHUNK, CHUNK_COUNT};
use super::memory::SharedMemory;
use super::tracee::Tracee;
use crate::PAGE;
use crate::error::{Error, Result};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of the file behind a region: the slots, then the chunks.
const FILE_SIZE: u64 = PAGE + CHUNK_COUNT * CHUNK;

/// A region of the program.
#[derive(Debug)]
pub(super) struct Region {
    /// Its address in the program.
    pub(super) base: u64,
    memory: SharedMemory,
    /// Chunks that may be written: read to their end.
    free: Mutex<[bool; CHUNK_COUNT as usize]>,
    /// One has become free.
    freed: Condvar,
}

impl Region {
    /// Makes the region at `base`, where nothing is; the tables are those that the program has at
    /// `tables`, or in a file of its own.
    pub(super) fn make(tracee: &mut Tracee<'_>, base: u64, tables: Tables) -> Result<Self> {
        tracee.reserve(base, layout::REGION_SIZE)?;
        tracee.hide(base, layout::REGION_SIZE)?;
        let (file, descriptor) = tracee.memory_file()?;
        let memory = SharedMemory::map(&file, FILE_SIZE).map_err(Error::system("map memory"))?;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        tracee.map(base, PAGE, writable, (descriptor, 0))?;
        for chunk in 0..CHUNK_COUNT {
            let at = base + layout::chunk_start(chunk);
            tracee.map(at, CHUNK, writable, (descriptor, PAGE + chunk * CHUNK))?;
        }
        tracee.close(descriptor)?;
        let to = base + layout::TABLES;
        match tables {
            Tables::File(descriptor) => {
                tracee.map(to, layout::TABLES_SIZE, libc::PROT_READ, (descriptor, 0))?
            }
            Tables::At(from) => tracee.map_again(from, layout::TABLES_SIZE, to)?,
        }
        // Mappings do not take the wish over from what they replace.
        tracee.hide(base, layout::REGION_SIZE)?;
        let region = Self {
            base,
            memory,
            free: Mutex::new(ALL_BUT_FIRST),
            freed: Condvar::new(),
        };
        region.set_pointer(region.chunk(0));
        Ok(region)
    }

    /// Makes it as new, for another thread.
    pub(super) fn reset(&self) {
        *self.free() = ALL_BUT_FIRST;
        self.set_pointer(self.chunk(0));
        self.set_version(0);
    }

    /// The program's address of a chunk.
    pub(super) fn chunk(&self, chunk: u64) -> u64 {
        self.base + layout::chunk_start(chunk)
    }

    /// The program's address of the next byte of the log.
    pub(super) fn pointer(&self) -> u64 {
        self.memory.load(u64::from(layout::LOG_POINTER))
    }

    pub(super) fn set_pointer(&self, pointer: u64) {
        self.memory.store(u64::from(layout::LOG_POINTER), pointer);
    }

    /// Notes the last change of code that the log tells of.
    pub(super) fn set_version(&self, version: u32) {
        self.memory.store(u64::from(layout::VERSION), u64::from(version));
    }

    /// Copies what a system call is given; returns its address in the program.
    pub(super) fn set_arguments(&self, bytes: &[u8]) -> u64 {
        self.memory.write(u64::from(layout::ARGUMENTS), bytes);
        self.base + u64::from(layout::ARGUMENTS)
    }

    /// A register's value that waits in its slot.
    pub(super) fn slot(&self, slot: u32) -> u64 {
        self.memory.load(u64::from(slot))
    }

    /// Copies part of a chunk.
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

    /// Takes a chunk to be written, once it has been read to its end.
    pub(super) fn take(&self, chunk: u64) {
        let mut free = self.free();
        while let Some(false) = free.get(chunk as usize) {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(free) = free.get_mut(chunk as usize) {
            *free = false;
        }
    }

    /// A chunk has been read to its end.
    pub(super) fn give_back(&self, chunk: u64) {
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

/// Where a new region's tables come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tables {
    /// A descriptor open in the program.
    File(u64),
    /// An address in the program.
    At(u64),
}

/// The recorder's end of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// The chunk being written.
    pub(super) chunk: u64,
}

impl Cursor {
    /// How much of its chunk is written.
    pub(super) fn written(&self, region: &Region) -> u64 {
        region.pointer().wrapping_sub(region.chunk(self.chunk)).min(CHUNK)
    }

    /// Adds an event to the log of a stopped thread; `false`: the chunk is full.
    pub(super) fn write(&self, region: &Region, event: Event) -> bool {
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
