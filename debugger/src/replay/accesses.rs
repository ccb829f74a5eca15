//! The memory accesses of a segment, in order.

use super::kernel::KernelWrites;
use super::run::AccessSink;
use backtrail_semantics::{Observer, State};

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The instruction.
    pub index: u64,
    /// The first address.
    pub address: u64,
    /// The number of bytes.
    pub size: u64,
    /// The kind.
    pub kind: AccessKind,
    /// The place of its bytes.
    bytes: usize,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// The bytes were there.
    Load,
    /// The bytes were written.
    Store,
    /// The kernel wrote unknown bytes there.
    Kernel,
    /// Unknown bytes may have been written anywhere.
    Anywhere,
}

/// The accesses of a segment.
#[derive(Debug, Default)]
pub struct Accesses {
    start: u64,
    list: Vec<Access>,
    bytes: Vec<u8>,
    /// Whether the whole segment was replayed.
    pub is_complete: bool,
    /// The registers at the end.
    pub end: Option<State>,
}

impl Accesses {
    /// Returns an empty list for a segment that begins at instruction `start`.
    pub fn new(start: u64) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// Returns the first instruction.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the accesses before instruction `index`.
    pub fn before(&self, index: u64) -> &[Access] {
        let end = self.list.partition_point(|access| access.index < index);
        self.list.get(..end).unwrap_or_default()
    }

    /// Returns the accesses from instruction `index` on.
    pub fn from(&self, index: u64) -> &[Access] {
        let start = self.list.partition_point(|access| access.index < index);
        self.list.get(start..).unwrap_or_default()
    }

    /// Returns the bytes of a load or store.
    pub fn bytes_of(&self, access: &Access) -> &[u8] {
        let end = access.bytes + access.size as usize;
        self.bytes.get(access.bytes..end).unwrap_or_default()
    }

    /// Returns the bytes in use.
    pub fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.list)
    }

    fn push(&mut self, index: u64, address: u64, size: u64, kind: AccessKind, bytes: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.list.push(Access {
            index,
            address,
            size,
            kind,
            bytes: at,
        });
    }
}

impl AccessSink for Accesses {
    type Observer<'a> = InstructionAccesses<'a>;

    fn of(&mut self, index: u64) -> InstructionAccesses<'_> {
        InstructionAccesses {
            accesses: self,
            index,
        }
    }

    fn kernel(&mut self, index: u64, writes: KernelWrites) {
        match writes {
            KernelWrites::Ranges(ranges) => {
                for (address, size) in ranges.into_iter().filter(|(_, size)| *size > 0) {
                    self.push(index, address, size, AccessKind::Kernel, &[]);
                }
            }
            KernelWrites::Anywhere => self.push(index, 0, 0, AccessKind::Anywhere, &[]),
        }
    }
}

/// The receiver of the accesses of one instruction.
pub struct InstructionAccesses<'a> {
    accesses: &'a mut Accesses,
    index: u64,
}

impl Observer for InstructionAccesses<'_> {
    fn loaded(&mut self, address: u64, bytes: &[u8]) {
        let size = bytes.len() as u64;
        self.accesses
            .push(self.index, address, size, AccessKind::Load, bytes);
    }

    fn stored(&mut self, address: u64, bytes: &[u8]) {
        let size = bytes.len() as u64;
        self.accesses
            .push(self.index, address, size, AccessKind::Store, bytes);
    }

    fn stored_unknown(&mut self) {
        self.accesses.push(self.index, 0, 0, AccessKind::Anywhere, &[]);
    }
}
