//! The memory accesses of a part, in order.

use super::kernel::KernelWrites;
use super::run::AccessSink;
use super::sharing::MapChange;
use backtrail_semantics::Observer;

/// The most accesses of a part.
const MAX_ACCESSES: usize = 8 << 20;

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

/// The accesses of a part.
#[derive(Debug, Default)]
pub struct Accesses {
    list: Vec<Access>,
    bytes: Vec<u8>,
    /// The instruction before which the replay ended.
    pub reached: u64,
}

impl Accesses {
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
        match access.kind {
            AccessKind::Load | AccessKind::Store => self.bytes.get(access.bytes..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Returns the bytes in use.
    pub fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.list)
    }

    /// Returns the places of the identifiers in `struct clone_args` (`linux/sched.h`): the process
    /// descriptor, and the ids for child and parent. `None`: the thread has not accessed them.
    fn identifiers(&self, arguments: u64) -> Option<[u64; 3]> {
        const NEAREST: usize = 4096;
        let mut found = [None; 24];
        let start = arguments.wrapping_add(8);
        for access in self.list.iter().rev().take(NEAREST) {
            let data = self.bytes_of(access);
            for (at, byte) in found.iter_mut().enumerate().filter(|(_, byte)| byte.is_none()) {
                let offset = start.wrapping_add(at as u64).wrapping_sub(access.address);
                *byte = usize::try_from(offset)
                    .ok()
                    .and_then(|offset| data.get(offset).copied());
            }
        }
        let mut addresses = [0; 3];
        for (address, bytes) in addresses.iter_mut().zip(found.chunks(8)) {
            for &byte in bytes.iter().rev() {
                *address = *address << 8 | u64::from(byte?);
            }
        }
        Some(addresses)
    }

    fn push(&mut self, index: u64, address: u64, size: u64, kind: AccessKind, bytes: &[u8]) {
        if self.list.len() >= MAX_ACCESSES {
            // All that follows is unknown.
            if self.list.len() == MAX_ACCESSES {
                self.list.push(Access {
                    index,
                    address: 0,
                    size: 0,
                    kind: AccessKind::Anywhere,
                    bytes: 0,
                });
            }
            return;
        }
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
            KernelWrites::Clone { arguments } => match self.identifiers(arguments) {
                Some(addresses) => {
                    for address in addresses.into_iter().filter(|address| *address != 0) {
                        self.push(index, address, 4, AccessKind::Kernel, &[]);
                    }
                }
                None => self.push(index, 0, 0, AccessKind::Anywhere, &[]),
            },
            KernelWrites::Anywhere => self.push(index, 0, 0, AccessKind::Anywhere, &[]),
        }
    }

    fn maps(&mut self, _index: u64, _change: MapChange) {}
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
