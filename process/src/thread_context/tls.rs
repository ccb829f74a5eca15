//! Where a thread has the variable `otel_thread_ctx_v1`.
//!
//! A static variable has the same offset from the thread pointer in each thread. A dynamic one is
//! in the block of a module. The dynamic thread vector (DTV) of a thread has the addresses of its
//! blocks. The vector's address is at offset 8 from the thread pointer in both C libraries:
//!
//! - glibc (`sysdeps/x86_64/nptl/tls.h`, `sysdeps/generic/dl-dtv.h`, `elf/dl-tls.c`): entries of 16
//!   bytes. The one before the first is the number of entries, and the first one the generation.
//!   Entry N is the block of module N, or all ones before its first use.
//! - musl (`src/internal/pthread_impl.h`, `src/thread/__tls_get_addr.c`): entries of 8 bytes. The
//!   first one is the number of modules, and entry N the block of module N.
//!
//! The argument of a descriptor is the negative offset of a static variable, or points to the
//! module and the offset of a dynamic one. In glibc the generation follows (`struct
//! tlsdesc_dynamic_arg` in `sysdeps/x86_64/dl-tlsdesc.h`): a thread with an older DTV has not used
//! the variable yet.

use super::symbol::TlsAccess;
use super::word;
use crate::maps::Map;
use backtrail_bundle::core::Memory;

/// The lowest accepted offset of a static variable.
const MIN_OFFSET: i64 = -(1 << 30);
/// Maximum size of a module's block.
const MAX_BLOCK: u64 = 1 << 30;
/// Maximum id of a module.
const MAX_MODULE: u64 = 1 << 16;
/// The entry of a block that was not allocated yet, in glibc.
const UNALLOCATED: u64 = u64::MAX;

/// A C library, which determines the layout of the DTV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    /// The GNU C library.
    Glibc,
    /// musl.
    Musl,
}

impl Libc {
    /// Returns the C library of a process, by the names of its loader and its library. The file of
    /// musl is both. Alpine calls it `ld-musl-x86_64.so.1`, and Debian `libc.so`. Android has
    /// another library of this name, which belongs to `linker64`.
    #[must_use]
    pub fn of_maps(maps: &[Map]) -> Option<Self> {
        let files = || {
            let files = maps.iter().filter(|map| map.is_file());
            files.filter_map(|map| map.path.trim_end_matches(" (deleted)").rsplit('/').next())
        };
        let named = files().find_map(|name| {
            if name.starts_with("ld-musl-") {
                return Some(Self::Musl);
            }
            (name.starts_with("ld-linux-x86-64.so") || name.starts_with("libc.so.6")).then_some(Self::Glibc)
        });
        let is_musl = || files().any(|name| name == "libc.so") && files().all(|name| name != "linker64");
        named.or_else(|| is_musl().then_some(Self::Musl))
    }
}

/// Where each thread of a process has the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsSlot {
    /// At this offset from the thread pointer.
    Static(i64),
    /// In the block of a module.
    Dynamic {
        /// The layout of the DTV.
        libc: Libc,
        /// The id of the module.
        module: u64,
        /// The offset in the block.
        offset: u64,
        /// The first generation of a DTV with the block.
        generation: u64,
    },
}

impl TlsAccess {
    /// Resolves an access model in a process where the file is loaded `bias` bytes above its own
    /// addresses. Returns `None` if the loader has not stored the words, or they are implausible.
    pub fn resolve(self, bias: u64, libc: Option<Libc>, memory: &mut impl Memory) -> Option<TlsSlot> {
        match self {
            Self::FixedOffset(offset) => fixed(offset),
            Self::StoredOffset { address } => fixed(word(memory, bias.wrapping_add(address))?.cast_signed()),
            Self::ModuleAndOffset { address, offset } => {
                let address = bias.wrapping_add(address);
                let stored = word(memory, address.wrapping_add(8))?;
                let is_right = offset.is_none_or(|offset| offset == stored);
                let module = word(memory, address)?;
                is_right.then(|| dynamic(libc, module, stored, 0)).flatten()
            }
            Self::Descriptor { address } => {
                let argument = word(memory, bias.wrapping_add(address).wrapping_add(8))?;
                if let Some(slot) = fixed(argument.cast_signed()) {
                    return Some(slot);
                }
                let module = word(memory, argument)?;
                let offset = word(memory, argument.wrapping_add(8))?;
                let generation = match libc? {
                    Libc::Glibc => word(memory, argument.wrapping_add(16))?,
                    Libc::Musl => 0,
                };
                dynamic(libc, module, offset, generation)
            }
        }
    }
}

/// Returns a static slot, if the offset is plausible. Blocks are below the thread pointer.
fn fixed(offset: i64) -> Option<TlsSlot> {
    (MIN_OFFSET..0)
        .contains(&offset)
        .then_some(TlsSlot::Static(offset))
}

/// Returns a dynamic slot, if it is plausible.
fn dynamic(libc: Option<Libc>, module: u64, offset: u64, generation: u64) -> Option<TlsSlot> {
    let is_plausible = (1..=MAX_MODULE).contains(&module) && offset < MAX_BLOCK;
    let slot = TlsSlot::Dynamic {
        libc: libc?,
        module,
        offset,
        generation,
    };
    is_plausible.then_some(slot)
}

impl TlsSlot {
    /// Returns the address of the variable of a thread. `None`: the thread has none yet.
    pub fn address(&self, thread_pointer: u64, memory: &mut impl Memory) -> Option<u64> {
        match *self {
            Self::Static(offset) => Some(thread_pointer.wrapping_add_signed(offset)),
            Self::Dynamic {
                libc,
                module,
                offset,
                generation,
            } => {
                let vector = word(memory, thread_pointer.wrapping_add(8))?;
                let (first, size) = match libc {
                    Libc::Glibc => (vector.wrapping_sub(16), 16),
                    Libc::Musl => (vector, 8),
                };
                if module > word(memory, first)? {
                    return None;
                }
                if libc == Libc::Glibc && word(memory, vector)? < generation {
                    return None;
                }
                let block = word(memory, vector.wrapping_add(module.wrapping_mul(size)))?;
                (block != 0 && block != UNALLOCATED).then(|| block.wrapping_add(offset))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Avma;
    use std::collections::HashMap;

    /// A memory that consists of these words.
    fn memory(words: &[(u64, u64)]) -> impl Memory + use<> {
        let words: HashMap<u64, u64> = words.iter().copied().collect();
        move |address: Avma, out: &mut [u8]| match words.get(&address.0) {
            Some(word) if out.len() == 8 => {
                out.copy_from_slice(&word.to_le_bytes());
                8
            }
            _ => 0,
        }
    }

    fn slot(libc: Libc, generation: u64) -> TlsSlot {
        TlsSlot::Dynamic {
            libc,
            module: 2,
            offset: 0x18,
            generation,
        }
    }

    #[test]
    fn access_models_are_resolved_by_the_loaders_words() {
        let resolve =
            |access: TlsAccess, libc, words: &[(u64, u64)]| access.resolve(0x1000, libc, &mut memory(words));
        let glibc = Some(Libc::Glibc);
        let minus = |offset: i64| offset.cast_unsigned();
        let stored = TlsAccess::StoredOffset { address: 0x10 };
        assert_eq!(
            resolve(stored, None, &[(0x1010, minus(-0x40))]),
            Some(TlsSlot::Static(-0x40))
        );
        for unlikely in [0, 8, 1 << 40] {
            assert_eq!(resolve(stored, None, &[(0x1010, unlikely)]), None);
        }
        let pair = TlsAccess::ModuleAndOffset {
            address: 0x10,
            offset: None,
        };
        let words = [(0x1010, 2), (0x1018, 0x18)];
        assert_eq!(resolve(pair, glibc, &words), Some(slot(Libc::Glibc, 0)));
        assert_eq!(resolve(pair, None, &words), None, "the C library is unknown");
        assert_eq!(resolve(pair, glibc, &[(0x1010, 0), (0x1018, 0x18)]), None);
        let other = TlsAccess::ModuleAndOffset {
            address: 0x10,
            offset: Some(0x20),
        };
        assert_eq!(resolve(other, glibc, &words), None);
        let descriptor = TlsAccess::Descriptor { address: 0x10 };
        assert_eq!(
            resolve(descriptor, None, &[(0x1018, minus(-8))]),
            Some(TlsSlot::Static(-8))
        );
        let words = [(0x1018, 0x5000), (0x5000, 2), (0x5008, 0x18), (0x5010, 7)];
        assert_eq!(resolve(descriptor, glibc, &words), Some(slot(Libc::Glibc, 7)));
        assert_eq!(
            resolve(descriptor, Some(Libc::Musl), &words),
            Some(slot(Libc::Musl, 0))
        );
        assert_eq!(resolve(descriptor, glibc, &words[..3]), None);
    }

    #[test]
    fn block_of_glibc_has_an_entry_of_two_words() {
        let vector = |count, generation, block| {
            [
                (0x108, 0x2000),
                (0x1ff0, count),
                (0x2000, generation),
                (0x2020, block),
            ]
        };
        let at = |words: &[(u64, u64)]| slot(Libc::Glibc, 7).address(0x100, &mut memory(words));
        assert_eq!(at(&vector(2, 7, 0x9000)), Some(0x9018));
        assert_eq!(at(&vector(1, 7, 0x9000)), None, "the vector is shorter");
        assert_eq!(at(&vector(2, 6, 0x9000)), None, "the vector is older");
        assert_eq!(at(&vector(2, 7, UNALLOCATED)), None);
        assert_eq!(at(&vector(2, 7, 0)), None);
    }

    #[test]
    fn block_of_musl_has_an_entry_of_one_word() {
        let at = |words: &[(u64, u64)]| slot(Libc::Musl, 0).address(0x100, &mut memory(words));
        assert_eq!(
            at(&[(0x108, 0x2000), (0x2000, 2), (0x2010, 0x9000)]),
            Some(0x9018)
        );
        assert_eq!(at(&[(0x108, 0x2000), (0x2000, 1), (0x2010, 0x9000)]), None);
        assert_eq!(TlsSlot::Static(-8).address(0x100, &mut memory(&[])), Some(0xf8));
    }

    #[test]
    fn loader_names_the_c_library() {
        let libc = |paths: &[&str]| {
            let map = |path: &&str| Map {
                inode: 1,
                path: (*path).to_owned(),
                ..Map::default()
            };
            let maps: Vec<_> = paths.iter().map(map).collect();
            Libc::of_maps(&[&[Map::default()], &*maps].concat())
        };
        assert_eq!(libc(&["/lib/ld-musl-x86_64.so.1"]), Some(Libc::Musl));
        let debian = "/usr/lib/x86_64-linux-musl/libc.so";
        assert_eq!(libc(&["/bin/program", debian]), Some(Libc::Musl));
        assert_eq!(libc(&["/lib/libc.so (deleted)"]), Some(Libc::Musl));
        assert_eq!(libc(&["/lib64/ld-linux-x86-64.so.2"]), Some(Libc::Glibc));
        assert_eq!(libc(&[debian, "/lib64/ld-linux-x86-64.so.2"]), Some(Libc::Glibc));
        assert_eq!(libc(&["/usr/lib/libc.so.6 (deleted)"]), Some(Libc::Glibc));
        assert_eq!(libc(&["/system/lib64/libc.so", "/system/bin/linker64"]), None);
        assert_eq!(libc(&["/bin/program"]), None);
    }
}
