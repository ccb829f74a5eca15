//! Finds the thread-local data of a shared library by the tables of its dynamic linker.
//!
//! See ELF Handling For Thread-Local Storage, section 3. The layout of the tables in glibc is not
//! fixed. Symbols called `_thread_db_…`, which are made for libthread_db, describe it.

use super::source::ValueSource;
use super::types::ModuleRef;
use backtrail_symbolizer::Unknown;
use std::sync::Arc;

/// More modules, or more pieces of the list of those with thread-local data, are not gone through.
const MAX_MODULES: usize = 4096;
/// The limit of a field's offset in its structure.
const MAX_OFFSET: u64 = 1 << 16;

/// The descriptions are found by this one.
const MODULE_NUMBER: &str = "_thread_db_link_map_l_tls_modid";

/// The dynamic linker of a process.
pub(crate) struct Linker<'a> {
    source: &'a dyn ValueSource,
    modules: &'a [Arc<ModuleRef>],
    /// The library with the descriptions.
    library: &'a ModuleRef,
}

type Lookup<T> = Result<T, Unknown>;

impl<'a> Linker<'a> {
    /// That of these modules.
    pub fn new(source: &'a dyn ValueSource, modules: &'a [Arc<ModuleRef>]) -> Lookup<Self> {
        let mut libraries = modules
            .iter()
            .filter(|module| module.file.data_named(MODULE_NUMBER).is_some());
        let library = libraries
            .next()
            .ok_or("the C library does not describe the thread-local data of its dynamic linker")?;
        Ok(Self {
            source,
            modules,
            library,
        })
    }

    /// The address of a thread's copy of what is at `offset` in a module's thread-local data;
    /// `thread`: the thread pointer.
    pub fn address(&self, module: &ModuleRef, thread: u64, offset: u64) -> Lookup<u64> {
        let entry = self.entry(module)?;
        Ok(self.block(entry, thread)?.wrapping_add(offset))
    }

    /// Returns the start of a module's block, by its entry in the linker's list.
    fn block(&self, entry: u64, thread: u64) -> Lookup<u64> {
        let number = self.field(entry, MODULE_NUMBER)?;
        if number == 0 {
            return Err("its module has no thread-local data in the dynamic linker".into());
        }
        // Modules loaded at start are below the thread pointer. 0 and all ones mean a later load.
        let below = self.field(entry, "_thread_db_link_map_l_tls_offset")?;
        if below != 0 && below != u64::MAX {
            return Ok(thread.wrapping_sub(below));
        }
        // Other blocks are made when they are first used; the table of a thread may be older than
        // the module.
        let table = self.field(thread, "_thread_db_pthread_dtvp")?;
        let not_yet = "the thread has not used the thread-local data of the module yet";
        if self.field(table, "_thread_db_dtv_t_counter")? < self.generation(entry, number)? {
            return Err(not_yet.into());
        }
        let (size, start) = self.description("_thread_db_dtv_dtv")?;
        let slot = (size / 8)
            .checked_mul(number)
            .and_then(|distance| table.checked_add(start)?.checked_add(distance))
            .ok_or("the thread's table of thread-local data is damaged")?;
        let block = self.field(slot, "_thread_db_dtv_t_pointer_val")?;
        // Addresses of blocks are even.
        match block & 1 {
            0 => Ok(block),
            _ => Err(not_yet.into()),
        }
    }

    /// The entry of a module in the linker's list, by where it is loaded.
    fn entry(&self, module: &ModuleRef) -> Lookup<u64> {
        // `struct r_debug` and `struct link_map` are fixed (System V ABI, chapter 5; <link.h>).
        let start = self.data("_r_debug")?;
        let mut entry = self.word(start.wrapping_add(8))?;
        for _ in 0..MAX_MODULES {
            if entry == 0 {
                break;
            }
            if self.word(entry)? == module.bias {
                return Ok(entry);
            }
            entry = self.word(entry.wrapping_add(24))?;
        }
        Err("its module is not in the dynamic linker's list".into())
    }

    /// The generation of the module's number, which another module may have used before.
    fn generation(&self, entry: u64, number: u64) -> Lookup<u64> {
        let (_, list) = self.description("_thread_db_rtld_global__dl_tls_dtv_slotinfo_list")?;
        let mut piece = self.word(self.data("_rtld_global")?.wrapping_add(list))?;
        let size = self.number("_thread_db_sizeof_dtv_slotinfo")?;
        let (_, slots) = self.description("_thread_db_dtv_slotinfo_list_slotinfo")?;
        let mut first = 0u64;
        for _ in 0..MAX_MODULES {
            if piece == 0 {
                break;
            }
            let length = self.field(piece, "_thread_db_dtv_slotinfo_list_len")?;
            if let Some(inside) = number.checked_sub(first).filter(|inside| *inside < length) {
                let slot = piece
                    .wrapping_add(slots)
                    .wrapping_add(inside.wrapping_mul(size.into()));
                if self.field(slot, "_thread_db_dtv_slotinfo_map")? != entry {
                    break;
                }
                return self.field(slot, "_thread_db_dtv_slotinfo_gen");
            }
            first = first.saturating_add(length);
            piece = self.field(piece, "_thread_db_dtv_slotinfo_list_next")?;
        }
        Err("its module is not in the dynamic linker's list of thread-local data".into())
    }

    /// The word of a structure that a symbol describes.
    fn field(&self, structure: u64, name: &str) -> Lookup<u64> {
        match self.description(name)? {
            (64, offset) => self.word(structure.wrapping_add(offset)),
            _ => Err(undescribed(name)),
        }
    }

    /// Reads the description of a field from a symbol: its bits, or those of an element, and its
    /// offset.
    fn description(&self, name: &str) -> Lookup<(u64, u64)> {
        let mut words = [0; 12];
        self.source.memory(self.described(name, 12)?, &mut words)?;
        description(&words).ok_or_else(|| undescribed(name))
    }

    /// A number that a symbol gives.
    fn number(&self, name: &str) -> Lookup<u32> {
        let mut bytes = [0; 4];
        self.source.memory(self.described(name, 4)?, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn described(&self, name: &str, size: u64) -> Lookup<u64> {
        let found = self.library.file.data_named(name);
        let (at, _) = found
            .filter(|(_, stated)| *stated >= size)
            .ok_or_else(|| undescribed(name))?;
        Ok(at.to_avma(self.library.bias).0)
    }

    /// The address of data that only the dynamic linker has.
    fn data(&self, name: &str) -> Lookup<u64> {
        let mut found = self.modules.iter().filter_map(|module| {
            let (at, _) = module.file.data_named(name)?;
            Some(at.to_avma(module.bias).0)
        });
        let first = found.next().filter(|_| found.next().is_none());
        first.ok_or_else(|| format!("\"{name}\" of the dynamic linker is not found").into())
    }

    fn word(&self, at: u64) -> Lookup<u64> {
        let mut bytes = [0; 8];
        self.source.memory(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Three numbers of four bytes: how many bits a field, or an element of it, has, how many elements,
/// and where it is.
fn description(words: &[u8; 12]) -> Option<(u64, u64)> {
    let word = |at: usize| {
        let bytes = words.get(at..)?.first_chunk::<4>()?;
        Some(u64::from(u32::from_le_bytes(*bytes)))
    };
    let (size, offset) = (word(0)?, word(8)?);
    let believed = size.is_multiple_of(8) && size <= MAX_OFFSET && offset <= MAX_OFFSET;
    believed.then_some((size, offset))
}

fn undescribed(name: &str) -> Unknown {
    format!("the C library has no \"{name}\", which describes the thread-local data of its dynamic linker")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(size: u32, offset: u32) -> Option<(u64, u64)> {
        let words = [size, 1, offset].map(u32::to_le_bytes).concat();
        description(words.first_chunk().unwrap())
    }

    #[test]
    fn descriptions_are_believed_within_bounds() {
        assert_eq!(of(64, 0x480), Some((64, 0x480)));
        assert_eq!(of(128, 0), Some((128, 0)));
        assert_eq!(of(63, 0), None);
        assert_eq!(of(64, u32::MAX), None);
        assert_eq!(of(u32::MAX - 7, 0), None);
    }
}
