//! The address space of a recorded process, with the memory that the recorder has added.
//!
//! Forked processes share one until the code of one of them changes: shared memory stays shared
//! after fork, and so does the code cache.

use super::block::{BlockOptions, Fetch};
use super::cache::Cache;
use super::code_pages::{CodePages, WritableAlias, WritableAliases};
use super::free_places::{find_slab_place, free_below};
use super::interception::Interception;
use super::layout;
use super::memory::SharedMemory;
use super::region::{Region, TableSource};
use super::stored::mappings::StoredMappings;
use super::stored::store::CodeStore;
use super::tracee::{Gadget, Tracee};
use super::watched::WatchedFunctions;
use crate::attributes::OF_CREDENTIALS;
use crate::clone_flags::CloneCall;
use crate::error::{Error, Result};
use crate::ptrace::RawTid;
use crate::standard_error;
use crate::{PAGE, ValueOptions};
use backtrail_bundle::versions::Fragment;
use backtrail_process::maps::{self, Map};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// System calls that the recorder makes itself, because they change state that it tracks.
const INTERCEPTED: [libc::c_long; 20] = [
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_rt_sigreturn,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_arch_prctl,
    libc::SYS_remap_file_pages,
    libc::SYS_rt_sigprocmask,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_ptrace,
];

/// The options for translating a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TranslateOptions {
    /// Log calls, so that returns can be compressed.
    pub(crate) calls: bool,
    /// Let threads register restartable sequences. Threads that ran before attaching have already
    /// done so.
    pub(crate) rseq: bool,
    /// Translate every block as a superblock, not only frequently executed ones.
    pub(crate) superblock: bool,
    /// The number of cache bytes near each module. A full cache is flushed.
    pub(crate) room: u64,
    /// Keep the process dumpable.
    pub(crate) keeps_dumpable: bool,
    /// Make every system call at its original address.
    pub(crate) calls_in_place: bool,
    /// Log calls of allocator functions.
    pub(crate) heap: bool,
    /// Intercept writes to standard error.
    pub(crate) standard_error: bool,
    /// Log values.
    pub(crate) values: Option<ValueOptions>,
}

/// The maximum number of attempts to place a region. Another thread may take a free address in the
/// meantime.
const TRIES: u64 = 64;

/// Identifies the memory of a process among the copies that fork makes, by the first process in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryId(pub(crate) RawTid);

/// An address space with its code cache.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    pub(super) cache: Cache,
    pub(super) gadget: Gadget,
    block_options: BlockOptions,
    /// [`TranslateOptions::keeps_dumpable`].
    pub(super) keeps_dumpable: bool,
    /// [`TranslateOptions::values`].
    pub(super) values: Option<ValueOptions>,
    /// The address of the lookup tables in the program.
    tables: u64,
    next_region: u64,
    /// Regions of ended threads, with the memory that contains them. A forked copy contains only
    /// the regions that existed before, and processes that share memory use all of them.
    free_regions: Vec<(MemoryId, Arc<Region>)>,
    /// The start and size of each range of regions, in any memory. Usually one range holds them
    /// all.
    regions: Vec<(u64, u64)>,
    code: CodePages,
    /// The mappings whose translations are kept, if any are.
    stored: Option<StoredMappings>,
    /// Writable pages that were made read-only because they contain translated code, or alias it.
    protected: BTreeSet<u64>,
    /// Pages that were protected before, and that the program may write again. When several threads
    /// fault at once, the later ones find the page here.
    unprotected: BTreeSet<u64>,
    /// The code pages that protected and unprotected pages alias.
    aliases: WritableAliases,
    /// The addresses that current system calls of threads need.
    claimed: Vec<(RawTid, Range<u64>)>,
    /// Places of code without a free address in reach. This code is stepped.
    crowded: Vec<u64>,
    was_crowded: bool,
}

impl AddressSpace {
    /// Prepares the address space of a process, and returns it with the region of its thread.
    ///
    pub(super) fn prepare(
        tracee: &mut Tracee<'_>,
        block_options: BlockOptions,
        options: TranslateOptions,
        store: Option<&Arc<CodeStore>>,
    ) -> Result<(Self, Arc<Region>)> {
        let refused = [libc::SYS_rseq].into_iter().filter(|_| !options.rseq);
        let of_credentials = OF_CREDENTIALS.into_iter().filter(|_| options.keeps_dumpable);
        let (file, descriptor) = tracee.memory_file()?;
        let memory = SharedMemory::map(&file, layout::TABLES_SIZE).map_err(Error::system("map memory"))?;
        let gadget = tracee.gadget;
        let next_region = layout::first_region(tracee.mapped_by_kernel(layout::REGION_SIZE)?);
        let mut space = Self {
            cache: Cache::new(memory, block_options, options.room),
            gadget,
            block_options,
            keeps_dumpable: options.keeps_dumpable,
            values: options.values,
            tables: 0,
            next_region,
            free_regions: Vec::new(),
            regions: Vec::new(),
            code: CodePages::default(),
            // Calls of watched functions depend on the addresses of other modules.
            stored: store
                .filter(|_| !options.heap)
                .map(|store| StoredMappings::new(store, block_options)),
            protected: BTreeSet::new(),
            unprotected: BTreeSet::new(),
            aliases: WritableAliases::new(),
            claimed: Vec::new(),
            crowded: Vec::new(),
            was_crowded: false,
        };
        for number in INTERCEPTED.into_iter().chain(refused).chain(of_credentials) {
            space.intercept(number);
        }
        let actions = Interception::OfForcedSignals;
        space.cache.intercept(libc::SYS_rt_sigaction, actions);
        space.cache.watched = options.heap.then(WatchedFunctions::default);
        if options.standard_error {
            for number in standard_error::WRITES {
                space.cache.intercept(number, Interception::OfStandardError);
            }
        }
        if options.calls_in_place {
            space.intercept_all();
        }
        let region = space.make_region(tracee, TableSource::File(descriptor))?;
        // From here on the program may unmap the gadget that was found.
        space.gadget = region.gadget();
        tracee.gadget = space.gadget;
        tracee.close(descriptor)?;
        space.tables = region.base() + layout::TABLES;
        Ok((space, region))
    }

    /// Returns a region for the tracee, which runs in `memory`.
    pub(super) fn region(&mut self, tracee: &mut Tracee<'_>, memory: MemoryId) -> Result<Arc<Region>> {
        if let Some(index) = self.free_regions.iter().position(|(place, _)| *place == memory) {
            let (_, region) = self.free_regions.swap_remove(index);
            return Ok(region);
        }
        self.make_region(tracee, TableSource::At(self.tables))
    }

    fn make_region(&mut self, tracee: &mut Tracee<'_>, tables: TableSource) -> Result<Arc<Region>> {
        for _ in 0..TRIES {
            let base = self.next_region;
            self.next_region = base.saturating_sub(layout::REGION_SIZE);
            if base < layout::LOWEST_REGION {
                break;
            }
            match Region::make(tracee, base, tables, self.values.map(ValueOptions::segment)) {
                Err(Error::Ptrace { source, .. }) if source.raw_os_error() == Some(libc::EEXIST) => {
                    let mut maps = maps::maps(tracee.tid);
                    maps.extend(self.claimed_maps());
                    maps.sort_by_key(|map| map.start);
                    self.next_region = free_below(&maps, base).ok_or_else(|| no_place(tracee.tid))?;
                }
                Err(error) => return Err(error),
                Ok(region) => {
                    add_stretch(&mut self.regions, base);
                    return Ok(Arc::new(region));
                }
            }
        }
        Err(no_place(tracee.tid))
    }

    /// Returns the region of an ended thread to the free list.
    pub(super) fn release_region(&mut self, memory: MemoryId, region: Arc<Region>) {
        self.free_regions.push((memory, region));
    }

    /// Forgets the free regions of a memory that no thread uses any more. Its identifier may be
    /// reused.
    pub(crate) fn forget(&mut self, memory: MemoryId) {
        self.free_regions.retain(|(place, _)| *place != memory);
    }

    /// Intercepts a system call from now on.
    pub(crate) fn intercept(&mut self, number: libc::c_long) {
        self.cache.intercept(number, Interception::Always);
    }

    /// Makes every system call at its original address from now on.
    pub(crate) fn intercept_all(&mut self) {
        self.cache.intercept_all();
    }

    /// Returns whether the code at `ip` can be translated without another slab.
    pub(super) fn has_room(&self, ip: u64) -> bool {
        self.cache.has_room(ip)
    }

    /// Flushes the cache. No thread may be in it.
    pub(crate) fn flush(&mut self) {
        let changing = self.changing();
        self.cache.flush(|page| changing.contains(&page));
    }

    /// Adds a slab near `ip`. Returns `false` if no address in reach is free.
    pub(super) fn extend(&mut self, tracee: &mut Tracee<'_>, ip: u64) -> Result<bool> {
        if self.is_out_of_reach(ip) {
            return Ok(false);
        }
        let mut maps = maps::maps(tracee.tid);
        maps.extend(self.claimed_maps());
        let Some(at) = find_slab_place(&maps, ip) else {
            self.crowded.push(ip & !(layout::SLAB_SIZE - 1));
            self.was_crowded = true;
            return Ok(false);
        };
        let memory = map_slab(tracee, at, true)?;
        self.cache.add_slab(at, memory);
        Ok(true)
    }

    /// Returns whether no address in reach of `ip` was free, and the mappings have not changed.
    fn is_out_of_reach(&self, ip: u64) -> bool {
        self.crowded.contains(&(ip & !(layout::SLAB_SIZE - 1)))
    }

    /// Returns and clears whether code had no free address in reach.
    pub(crate) fn take_was_crowded(&mut self) -> bool {
        std::mem::take(&mut self.was_crowded)
    }

    /// Keeps the recorder's memory away from addresses that the system call of a thread needs.
    pub(super) fn avoid(&mut self, tid: RawTid, claimed: &[Range<u64>]) {
        self.claimed
            .extend(claimed.iter().map(|range| (tid, range.clone())));
    }

    /// Handles the end of a system call of a thread.
    pub(super) fn call_ended(&mut self, tid: RawTid) {
        self.claimed.retain(|(caller, _)| *caller != tid);
    }

    /// Returns the addresses that system calls need, as if they were mapped.
    fn claimed_maps(&self) -> impl Iterator<Item = Map> {
        self.claimed.iter().map(|(_, range)| Map {
            start: range.start,
            end: range.end,
            ..Map::default()
        })
    }

    /// Returns the translation of `ip`, or `None` if no slab is in reach.
    ///
    /// Translated code cannot change unnoticed: writable pages are made read-only first, so that
    /// the next write faults ([`Self::is_protected`]).
    pub(super) fn lookup_or_translate(
        &mut self,
        tracee: &mut Tracee<'_>,
        pid: RawTid,
        ip: u64,
    ) -> Result<Option<u64>> {
        if let Some(watched) = &mut self.cache.watched {
            watched.search(pid, ip);
        }
        if let Some(stored) = &mut self.stored {
            stored.place(pid, ip, &mut self.code, &mut self.cache);
        }
        self.translate(tracee, pid, |cache, fetch| cache.lookup_or_translate(ip, fetch))
    }

    /// Replaces the frequently executed block at `ip` by a superblock.
    pub(super) fn promote(&mut self, tracee: &mut Tracee<'_>, pid: RawTid, ip: u64) -> Result<()> {
        self.translate(tracee, pid, |cache, fetch| cache.promote(ip, fetch))
    }

    /// Repeats a translation until all code that it has read is protected from writes.
    fn translate<T>(
        &mut self,
        tracee: &mut Tracee<'_>,
        pid: RawTid,
        mut work: impl FnMut(&mut Cache, &mut Fetch<'_>) -> T,
    ) -> Result<T> {
        loop {
            let mut aliases = WritableAliases::new();
            let code = &mut self.code;
            let mut read = |from: u64, out: &mut [u8]| code.read(pid, from, out, &mut aliases);
            let done = work(&mut self.cache, &mut read);
            let open = self.write_protect(tracee, aliases)?;
            if open.is_empty() {
                return Ok(done);
            }
            for code in open {
                // The code may have changed just before the page was protected.
                self.cache.invalidate(code..code + PAGE);
                self.code.forget(&(code..code + PAGE));
            }
        }
    }

    /// Makes writable aliases read-only. Returns the code pages that still had a writable alias.
    fn write_protect(&mut self, tracee: &mut Tracee<'_>, aliases: WritableAliases) -> Result<Vec<u64>> {
        let mut open = Vec::new();
        for (page, alias) in aliases {
            if self.protected.contains(&page) {
                continue;
            }
            let execute = if alias.executable { libc::PROT_EXEC } else { 0 };
            tracee.protect(page, PAGE, libc::PROT_READ | execute)?;
            self.protected.insert(page);
            self.unprotected.remove(&page);
            self.aliases.insert(page, alias);
            open.push(alias.code);
        }
        Ok(open)
    }

    /// Returns whether a new mapping may alias translated code.
    pub(super) fn may_be_mapped_twice(&self) -> bool {
        self.code.may_be_mapped_twice()
    }

    /// Protects the writable aliases that new mappings have created.
    pub(super) fn protect_new_aliases(&mut self, tracee: &mut Tracee<'_>, pid: RawTid) -> Result<()> {
        let aliases = self.code.aliases_of_shared(pid);
        self.write_protect(tracee, aliases).map(drop)
    }

    /// Returns whether a write to `address` faults only because of our protection.
    pub(super) fn is_protected(&self, address: u64) -> bool {
        self.protected.contains(&(address & !(PAGE - 1)))
    }

    /// Returns whether a write to `address` that has faulted would succeed now.
    pub(super) fn is_unprotected(&self, address: u64) -> bool {
        self.unprotected.contains(&(address & !(PAGE - 1)))
    }

    /// Returns the code pages that the program may write.
    fn changing(&self) -> BTreeSet<u64> {
        self.aliases.values().map(|alias| alias.code).collect()
    }

    /// Makes a page writable again, and invalidates the blocks translated from it.
    pub(super) fn unprotect(&mut self, tracee: &mut Tracee<'_>, address: u64) -> Result<()> {
        let page = address & !(PAGE - 1);
        self.protected.remove(&page);
        self.unprotected.insert(page);
        let itself = WritableAlias {
            code: page,
            executable: true,
        };
        let WritableAlias { code, executable } = self.aliases.get(&page).copied().unwrap_or(itself);
        if let Some(stored) = &mut self.stored {
            stored.forget(&(code..code + PAGE));
        }
        self.cache.code_changed(code..code + PAGE);
        self.code.forget(&(code..code + PAGE));
        let execute = if executable { libc::PROT_EXEC } else { 0 };
        tracee.protect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE | execute)
    }

    /// Returns whether code in `range` was translated or read.
    pub(crate) fn has_code_in(&self, range: Range<u64>) -> bool {
        self.protected.range(range.clone()).next().is_some()
            || self.code.has_read(&range)
            || self.cache.has_code_in(range)
    }

    /// Handles a change of the mappings.
    pub(crate) fn remapped(&mut self) {
        self.crowded.clear();
        self.code.remapped();
    }

    /// Handles a change of code mappings in `range`.
    pub(crate) fn code_changed(&mut self, range: Range<u64>) {
        if let Some(stored) = &mut self.stored {
            stored.forget(&range);
        }
        self.code.forget(&range);
        self.protected.retain(|page| !range.contains(page));
        self.unprotected.retain(|page| !range.contains(page));
        self.aliases.retain(|page, _| !range.contains(page));
        self.cache.code_changed(range);
    }

    /// Returns the old code of pages whose code has changed.
    pub(crate) fn fragments(&self) -> Vec<Fragment> {
        let changing = self.changing();
        self.cache.fragments(|page| changing.contains(&page))
    }

    /// Notes that other code was at the addresses in `range` before.
    pub(crate) fn mark_changed(&mut self, range: std::ops::Range<u64>) {
        self.cache.mark_changed(range);
    }

    /// Returns the number of changes of code that was translated.
    pub(crate) fn version(&self) -> u32 {
        self.cache.version()
    }

    /// Removes all memory that the recorder has added, and restores write access.
    pub(super) fn remove_additions(&mut self, tracee: &mut Tracee<'_>) -> Result<()> {
        let pages: Vec<u64> = self.protected.iter().copied().collect();
        for page in pages {
            self.unprotect(tracee, page)?;
        }
        // The gadget makes the calls, so its area is unmapped last.
        let mut areas = self.areas();
        let gadget = tracee.gadget.syscall;
        areas.sort_by_key(|(start, size)| (*start..start + size).contains(&gadget));
        for (start, size) in areas {
            tracee.unmap(start, size)?;
        }
        Ok(())
    }

    /// Returns the start and size of each range of regions.
    pub(super) fn region_ranges(&self) -> Vec<(u64, u64)> {
        self.regions.clone()
    }

    /// Replaces the list of regions, after they have moved.
    pub(super) fn set_regions(&mut self, bases: impl Iterator<Item = u64>) {
        self.regions.clear();
        bases.for_each(|base| add_stretch(&mut self.regions, base));
    }

    /// Uses the tables and the gadget of a region that has moved.
    pub(super) fn adopt(&mut self, region: &Region) {
        self.tables = region.base() + layout::TABLES;
        self.gadget = region.gadget();
    }

    /// Returns the highest place for another region, if the kernel would place a new mapping at
    /// `mapped`.
    pub(super) fn next_region_place(&mut self, mapped: u64) -> u64 {
        self.next_region = layout::first_region(mapped);
        self.next_region
    }

    /// Returns the start and size of all memory that the recorder has added.
    pub(crate) fn areas(&self) -> Vec<(u64, u64)> {
        self.regions.iter().copied().chain(self.cache.areas()).collect()
    }

    /// Returns a copy for the tracee's `memory` alone, before its code diverges. `regions` are
    /// those of its threads.
    pub(super) fn unshare(&self, tracee: &mut Tracee<'_>, memory: MemoryId, regions: &[u64]) -> Result<Self> {
        let (file, descriptor) = tracee.memory_file()?;
        let tables = SharedMemory::map(&file, layout::TABLES_SIZE).map_err(Error::system("map memory"))?;
        let free_regions = self.free_regions.iter().filter(|(place, _)| *place == memory);
        let free_regions: Vec<_> = free_regions.cloned().collect();
        let free_bases = free_regions.iter().map(|(_, region)| region.base());
        for base in regions.iter().copied().chain(free_bases) {
            tracee.map(
                base + layout::TABLES,
                layout::TABLES_SIZE,
                libc::PROT_READ,
                (descriptor, 0),
            )?;
        }
        tracee.close(descriptor)?;
        let mut slabs = Vec::new();
        for (at, _) in self.cache.areas() {
            slabs.push(map_slab(tracee, at, false)?);
        }
        Ok(Self {
            cache: self.cache.copy(tables, slabs),
            gadget: self.gadget,
            block_options: self.block_options,
            keeps_dumpable: self.keeps_dumpable,
            values: self.values,
            tables: regions.first().map_or(self.tables, |base| base + layout::TABLES),
            next_region: self.next_region,
            free_regions,
            regions: self.regions.clone(),
            code: CodePages::default(),
            stored: self.stored.clone(),
            protected: self.protected.clone(),
            unprotected: self.unprotected.clone(),
            aliases: self.aliases.clone(),
            claimed: self.claimed.clone(),
            crowded: Vec::new(),
            was_crowded: false,
        })
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        if let Some(stored) = &self.stored {
            stored.keep(&mut self.cache);
        }
    }
}

/// Adds a region to a list of ranges, each a start and a size.
fn add_stretch(stretches: &mut Vec<(u64, u64)>, base: u64) {
    match stretches.last_mut() {
        Some((start, size)) if base + layout::REGION_SIZE == *start => {
            *start = base;
            *size += layout::REGION_SIZE;
        }
        _ => stretches.push((base, layout::REGION_SIZE)),
    }
}

/// Maps new memory for a slab, at an unused address or over an existing slab.
fn map_slab(tracee: &mut Tracee<'_>, at: u64, reserve: bool) -> Result<SharedMemory> {
    if reserve {
        tracee.reserve(at, layout::SLAB_SIZE)?;
    }
    let (file, descriptor) = tracee.memory_file()?;
    let memory = SharedMemory::map(&file, layout::SLAB_SIZE).map_err(Error::system("map memory"))?;
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    tracee.map(at, layout::SLAB_SIZE, executable, (descriptor, 0))?;
    tracee.close(descriptor)?;
    tracee.hide(at, layout::SLAB_SIZE)?;
    Ok(memory)
}

pub(super) fn no_place(tid: RawTid) -> Error {
    Error::Ptrace {
        action: "find address space in",
        tid: tid as u32,
        source: io::Error::from_raw_os_error(libc::ENOMEM),
    }
}

/// How a new thread shares the memory of its parent (CLONE_VM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressSpaceSharing {
    /// Both use the same memory.
    Shared,
    /// The child has a copy.
    Copied,
}

/// Returns how the child of a clone, fork or vfork call shares memory.
pub(super) fn address_space_sharing(pid: RawTid, number: u64, first: u64) -> AddressSpaceSharing {
    let flags = match CloneCall::of(number) {
        Some(call) => call.flags(pid, first),
        None if number == libc::SYS_vfork as u64 => libc::CLONE_VM as u64,
        None => 0,
    };
    if flags & libc::CLONE_VM as u64 != 0 {
        AddressSpaceSharing::Shared
    } else {
        AddressSpaceSharing::Copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_regions_merge_into_one_range() {
        let (size, mut stretches) = (layout::REGION_SIZE, Vec::new());
        let top = 0x7fef_0000_0000;
        for number in [0, 1, 2, 4, 5] {
            add_stretch(&mut stretches, top - number * size);
        }
        assert_eq!(
            stretches,
            [(top - 2 * size, 3 * size), (top - 5 * size, 2 * size)]
        );
    }

    #[test]
    fn regions_start_below_libraries() {
        // The lowest and the highest address under address space layout randomization.
        for mapped in [0x7efb_0000_0000, 0x7fff_f7ff_0000] {
            let at = layout::first_region(mapped);
            assert!(at > 0x7e80_0000_0000 && at < mapped, "{at:#x}");
        }
        assert_eq!(layout::first_region(0), layout::LOWEST_REGION);
    }
}
