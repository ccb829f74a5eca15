//! The memory of a process at a position of a thread.

use super::recovery::read_constant;
use super::shared_memory::{SharedMemory, Sharing};
use crate::replay::{FoundAccess, MemoryRange};
use crate::session::{Process, Session, Thread};
use crate::unwind::Memory;
use backtrail_decoder::Watch;
use backtrail_pt::Avma;
use backtrail_symbolizer::Unknown;

/// The memory before an instruction of a thread, or at the end of its history.
#[derive(Clone, Copy)]
pub(crate) struct PastMemory<'a> {
    pub session: &'a Session,
    pub process: &'a Process,
    pub thread: &'a Thread,
    pub index: u64,
    pub watch: &'a Watch<'a>,
}

impl<'a> PastMemory<'a> {
    /// Fills `out` with the memory at an address.
    ///
    /// # Errors
    /// Fails with the reason if a byte is not known.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Unknown> {
        if self.index >= self.thread.history.len()
            && let Some(core) = self.session.core()
        {
            return Memory::new(core, &self.process.image)
                .read(Avma(at), out)
                .ok_or_else(|| format!("the core does not have the memory at {at:#x}").into());
        }
        if read_constant(self.session, self.process, Avma(at), out).is_some() {
            return Ok(());
        }
        self.shared().read(at, out)
    }

    /// Returns the last write to a range before the position, and its thread. `None`: nothing wrote
    /// there while values were recorded.
    ///
    /// # Errors
    /// Fails with the reason if the last write is not known.
    pub fn last_writer(&self, range: MemoryRange) -> Result<Option<(&'a Thread, FoundAccess)>, Unknown> {
        self.shared().last_writer(range)
    }

    /// Returns how other processes share a range.
    ///
    /// # Errors
    /// Fails with the reason if that is not known.
    pub fn sharing(&self, range: MemoryRange) -> Result<Option<Sharing>, Unknown> {
        self.shared().sharing(range)
    }

    fn shared(&self) -> SharedMemory<'a> {
        SharedMemory {
            session: self.session,
            process: self.process,
            thread: self.thread,
            index: self.index,
            watch: self.watch,
        }
    }
}
