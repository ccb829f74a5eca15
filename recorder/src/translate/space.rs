//! The address space of a recorded program, with what the recorder has added to it.
//!
//! Forked processes share one until the code of one of them changes: shared memory stays shared over a
//! fork, and so does the code cache.

use super::block::{Fetch, Style};
use super::cache::Cache;
use super::code_pages::{CodePages, Way, Ways};
use super::layout;
use super::memory::SharedMemory;
use super::region::{Region, Tables};
use super::tracee::{Gadget, Tracee};
use crate::PAGE;
use crate::clone_flags::CloneCall;
use crate::error::{Error, Result};
use crate::ptrace::RawTid;
use backtrail_bundle::versions::Fragment;
use backtrail_process::maps::{self, Map};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// System calls that the recorder makes itself, for they change what it must know.
const SPECIAL: [libc::c_long; 16] = [
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
];

/// Tries at places for a region, when something is there already. Each finds a place that was free just before.
const TRIES: u64 = 64;

/// An address space.
#[derive(Debug)]
pub(crate) struct Space {
    pub(super) cache: Cache,
    pub(super) gadget: Gadget,
    style: Style,
    /// Where the program has the tables.
    tables: u64,
    next_region: u64,
    /// Regions whose threads have ended, by the memory that they are in: a copy has not those that came later, and whoever
    /// shares it has them all.
    spare: Vec<(u64, Arc<Region>)>,
    /// Where regions were made, in any memory, start and size of each stretch: one for all of them, as a rule, however many
    /// processes there were.
    regions: Vec<(u64, u64)>,
    code: CodePages,
    /// Pages that the program may write and execute, and that were made read-only because they were
    /// translated.
    protected: BTreeSet<u64>,
    /// Pages that were, and that the program may write again. Several threads may fault at once: those
    /// that come later find the page here.
    exposed: BTreeSet<u64>,
    /// What both are ways to change.
    ways: Ways,
}

impl Space {
    /// Prepares the address space of a process; gives the region of its thread.
    ///
    /// Of each cluster of the cache `room` bytes are used, at most.
    /// With `rseq` the kernel answers who registers restartable sequences.
    pub(super) fn prepare(
        tracee: &mut Tracee<'_>,
        style: Style,
        room: u64,
        rseq: bool,
    ) -> Result<(Self, Arc<Region>)> {
        let refused = [libc::SYS_rseq].into_iter().filter(|_| !rseq);
        let special: Vec<_> = SPECIAL.into_iter().chain(refused).collect();
        let (file, descriptor) = tracee.memory_file()?;
        let memory = SharedMemory::map(&file, layout::TABLES_SIZE).map_err(Error::system("map memory"))?;
        let gadget = tracee.gadget;
        let next_region = layout::first_region(tracee.mapped_by_kernel(layout::REGION_SIZE)?);
        let mut space = Self {
            cache: Cache::new(memory, style, room, &special),
            gadget,
            style,
            tables: 0,
            next_region,
            spare: Vec::new(),
            regions: Vec::new(),
            code: CodePages::default(),
            protected: BTreeSet::new(),
            exposed: BTreeSet::new(),
            ways: Ways::new(),
        };
        let region = space.make_region(tracee, Tables::File(descriptor))?;
        tracee.close(descriptor)?;
        space.tables = region.base + layout::TABLES;
        Ok((space, region))
    }

    /// A region for the tracee, which is in `memory`.
    pub(super) fn region(&mut self, tracee: &mut Tracee<'_>, memory: u64) -> Result<Arc<Region>> {
        if let Some(index) = self.spare.iter().position(|(place, _)| *place == memory) {
            let (_, region) = self.spare.swap_remove(index);
            return Ok(region);
        }
        self.make_region(tracee, Tables::At(self.tables))
    }

    fn make_region(&mut self, tracee: &mut Tracee<'_>, tables: Tables) -> Result<Arc<Region>> {
        for _ in 0..TRIES {
            let base = self.next_region;
            self.next_region = base.saturating_sub(layout::REGION_SIZE);
            if base < layout::LOWEST_REGION {
                break;
            }
            match Region::make(tracee, base, tables) {
                Err(Error::Ptrace { source, .. }) if source.raw_os_error() == Some(libc::EEXIST) => {
                    let maps = maps::maps(tracee.tid);
                    self.next_region = free_below(&maps, base).ok_or_else(|| no_place(tracee.tid))?;
                }
                Err(error) => return Err(error),
                Ok(region) => {
                    note(&mut self.regions, base);
                    return Ok(Arc::new(region));
                }
            }
        }
        Err(no_place(tracee.tid))
    }

    /// A region that no thread uses any more.
    pub(super) fn give_back(&mut self, memory: u64, region: Arc<Region>) {
        self.spare.push((memory, region));
    }

    /// Nobody is in `memory` any more, and its name may come again.
    pub(crate) fn forget(&mut self, memory: u64) {
        self.spare.retain(|(place, _)| *place != memory);
    }

    /// Whether the code at `ip` can be translated without another cluster.
    pub(super) fn has_room(&self, ip: u64) -> bool {
        self.cache.has_room(ip)
    }

    /// Forgets all that was translated; no thread may be in the cache.
    pub(crate) fn empty(&mut self) {
        let changing = self.changing();
        self.cache.empty(|page| changing.contains(&page));
    }

    /// Adds a cluster near `ip`.
    pub(super) fn extend(&mut self, tracee: &mut Tracee<'_>, ip: u64) -> Result<()> {
        let maps = maps::maps(tracee.tid);
        let at = gap(&maps, ip).ok_or_else(|| no_place(tracee.tid))?;
        let memory = map_cluster(tracee, at, true)?;
        self.cache.add_cluster(at, memory);
        Ok(())
    }

    /// The translation of `ip`; `None`: no cluster is in reach.
    ///
    /// What it is made of cannot change unseen: memory that the program may write as well is made
    /// read-only first, so that its next write faults ([`Self::is_protected`]).
    pub(super) fn look_up(&mut self, tracee: &mut Tracee<'_>, pid: RawTid, ip: u64) -> Result<Option<u64>> {
        self.translate(tracee, pid, |cache, fetch| cache.look_up(ip, fetch))
    }

    /// Translates the block at `ip` anew, wide: it is executed often.
    pub(super) fn widen(&mut self, tracee: &mut Tracee<'_>, pid: RawTid, ip: u64) -> Result<()> {
        self.translate(tracee, pid, |cache, fetch| cache.widen(ip, fetch))
    }

    /// Does what translates until all that was read is safe from writes.
    fn translate<T>(
        &mut self,
        tracee: &mut Tracee<'_>,
        pid: RawTid,
        mut work: impl FnMut(&mut Cache, &mut Fetch<'_>) -> T,
    ) -> Result<T> {
        loop {
            let mut ways = Ways::new();
            let code = &mut self.code;
            let mut read = |from: u64, out: &mut [u8]| code.read(pid, from, out, &mut ways);
            let done = work(&mut self.cache, &mut read);
            let open = self.close(tracee, ways)?;
            if open.is_empty() {
                return Ok(done);
            }
            for code in open {
                // It may have changed just before.
                self.cache.forget(code..code + PAGE);
                self.code.forget(&(code..code + PAGE));
            }
        }
    }

    /// Makes pages read-only by which code may change; gives the pages of code for which one was not.
    fn close(&mut self, tracee: &mut Tracee<'_>, ways: Ways) -> Result<Vec<u64>> {
        let mut open = Vec::new();
        for (page, way) in ways {
            if self.protected.contains(&page) {
                continue;
            }
            let execute = if way.executable { libc::PROT_EXEC } else { 0 };
            tracee.protect(page, PAGE, libc::PROT_READ | execute)?;
            self.protected.insert(page);
            self.exposed.remove(&page);
            self.ways.insert(page, way);
            open.push(way.code);
        }
        Ok(open)
    }

    /// Whether something that is mapped now may be code that was translated.
    pub(super) fn may_be_mapped_twice(&self) -> bool {
        self.code.may_be_mapped_twice()
    }

    /// Closes the ways that new mappings have opened.
    pub(super) fn close_new(&mut self, tracee: &mut Tracee<'_>, pid: RawTid) -> Result<()> {
        let ways = self.code.ways_of_shared(pid);
        self.close(tracee, ways).map(drop)
    }

    /// Whether a write to `address` faults only because it was translated.
    pub(super) fn is_protected(&self, address: u64) -> bool {
        self.protected.contains(&(address & !(PAGE - 1)))
    }

    /// Whether a write to `address` that has faulted would not any more.
    pub(super) fn is_exposed(&self, address: u64) -> bool {
        self.exposed.contains(&(address & !(PAGE - 1)))
    }

    /// The pages of code that the program may write.
    fn changing(&self) -> BTreeSet<u64> {
        self.ways.values().map(|way| way.code).collect()
    }

    /// Lets the program write to a page: what was made from it is forgotten.
    pub(super) fn expose(&mut self, tracee: &mut Tracee<'_>, address: u64) -> Result<()> {
        let page = address & !(PAGE - 1);
        self.protected.remove(&page);
        self.exposed.insert(page);
        let itself = Way {
            code: page,
            executable: true,
        };
        let Way { code, executable } = self.ways.get(&page).copied().unwrap_or(itself);
        self.cache.change(code..code + PAGE);
        self.code.forget(&(code..code + PAGE));
        let execute = if executable { libc::PROT_EXEC } else { 0 };
        tracee.protect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE | execute)
    }

    /// Whether code in `range` was translated, or read to be.
    pub(crate) fn touches(&self, range: std::ops::Range<u64>) -> bool {
        self.protected.range(range.clone()).next().is_some()
            || self.code.has_read(&range)
            || self.cache.touches(range)
    }

    /// Some mapping has changed.
    pub(crate) fn remapped(&mut self) {
        self.code.remapped();
    }

    /// Mappings of code have changed in `range`.
    pub(crate) fn changed(&mut self, range: std::ops::Range<u64>) {
        self.code.forget(&range);
        self.protected.retain(|page| !range.contains(page));
        self.exposed.retain(|page| !range.contains(page));
        self.ways.retain(|page, _| !range.contains(page));
        self.cache.change(range);
    }

    /// Code that was executed where code has changed since.
    pub(crate) fn fragments(&self) -> Vec<Fragment> {
        let changing = self.changing();
        self.cache.fragments(|page| changing.contains(&page))
    }

    /// Removes everything that the recorder has added, and lets the program write where it might.
    pub(super) fn clear(&mut self, tracee: &mut Tracee<'_>) -> Result<()> {
        let pages: Vec<u64> = self.protected.iter().copied().collect();
        for page in pages {
            self.expose(tracee, page)?;
        }
        for (start, size) in self.areas() {
            tracee.unmap(start, size)?;
        }
        Ok(())
    }

    /// Everything that the recorder has added, start and size of each.
    pub(crate) fn areas(&self) -> Vec<(u64, u64)> {
        self.regions.iter().copied().chain(self.cache.areas()).collect()
    }

    /// A copy for the tracee's `memory` alone, whose code is about to differ; `regions` are those of the threads in it.
    pub(super) fn split(&self, tracee: &mut Tracee<'_>, memory: u64, regions: &[u64]) -> Result<Self> {
        let (file, descriptor) = tracee.memory_file()?;
        let tables = SharedMemory::map(&file, layout::TABLES_SIZE).map_err(Error::system("map memory"))?;
        let spare = self.spare.iter().filter(|(place, _)| *place == memory);
        let spare: Vec<_> = spare.cloned().collect();
        for base in regions.iter().chain(spare.iter().map(|(_, region)| &region.base)) {
            tracee.map(
                base + layout::TABLES,
                layout::TABLES_SIZE,
                libc::PROT_READ,
                (descriptor, 0),
            )?;
        }
        tracee.close(descriptor)?;
        let mut clusters = Vec::new();
        for (at, _) in self.cache.areas() {
            clusters.push(map_cluster(tracee, at, false)?);
        }
        Ok(Self {
            cache: self.cache.copy(tables, clusters),
            gadget: self.gadget,
            style: self.style,
            tables: regions.first().map_or(self.tables, |base| base + layout::TABLES),
            next_region: self.next_region,
            spare,
            regions: self.regions.clone(),
            code: CodePages::default(),
            protected: self.protected.clone(),
            exposed: self.exposed.clone(),
            ways: self.ways.clone(),
        })
    }
}

/// Returns the highest place for a region that is not above `at`; `maps` are in order.
fn free_below(maps: &[Map], at: u64) -> Option<u64> {
    let mut place = at;
    for map in maps.iter().rev() {
        let overlaps = map.start < place.saturating_add(layout::REGION_SIZE) && place < map.end;
        if overlaps {
            place = map.start.checked_sub(layout::REGION_SIZE)?;
        }
    }
    (place >= layout::LOWEST_REGION).then_some(place)
}

/// Adds a region to stretches of them, start and size of each.
fn note(stretches: &mut Vec<(u64, u64)>, base: u64) {
    match stretches.last_mut() {
        Some((start, size)) if base + layout::REGION_SIZE == *start => {
            *start = base;
            *size += layout::REGION_SIZE;
        }
        _ => stretches.push((base, layout::REGION_SIZE)),
    }
}

/// Maps new memory for a cluster, where nothing is or over what is there.
fn map_cluster(tracee: &mut Tracee<'_>, at: u64, reserve: bool) -> Result<SharedMemory> {
    if reserve {
        tracee.reserve(at, layout::CLUSTER_SIZE)?;
    }
    let (file, descriptor) = tracee.memory_file()?;
    let memory = SharedMemory::map(&file, layout::CLUSTER_SIZE).map_err(Error::system("map memory"))?;
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    tracee.map(at, layout::CLUSTER_SIZE, executable, (descriptor, 0))?;
    tracee.close(descriptor)?;
    tracee.hide(at, layout::CLUSTER_SIZE)?;
    Ok(memory)
}

fn no_place(tid: RawTid) -> Error {
    Error::Ptrace {
        action: "find address space in",
        tid: tid as u32,
        source: io::Error::from_raw_os_error(libc::ENOMEM),
    }
}

/// A place for a cluster near `ip`, not where the heap or the stack grow.
fn gap(maps: &[Map], ip: u64) -> Option<u64> {
    /// Left free on either side.
    const MARGIN: u64 = 1 << 20;
    /// Distances tried.
    const STEP: u64 = 0x0400_0000;
    /// Programs at fixed addresses have their heap right behind.
    const LOW: u64 = 1 << 31;
    /// The end of user memory.
    const END: u64 = 0x7fff_f000_0000;
    let free = |at: u64| {
        at > 0x1_0000
            && at + layout::CLUSTER_SIZE < END
            && !maps.iter().any(|map| {
                map.start < at + layout::CLUSTER_SIZE + MARGIN && at < map.end.saturating_add(MARGIN)
            })
    };
    let base = ip & !(STEP - 1);
    let mut steps: Vec<u64> = (0x1000_0000..0x6000_0000).step_by(STEP as usize).collect();
    if ip < LOW {
        steps.reverse();
        return steps.into_iter().find(|at| free(*at));
    }
    let mut candidates = steps
        .into_iter()
        .flat_map(|distance| [base.checked_sub(distance + 0x1000_0000), Some(base + distance)]);
    candidates.find_map(|at| at.filter(|at| free(*at)))
}

/// What a thread's memory is to others after it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinship {
    /// It has the same memory.
    Shares,
    /// It has a copy.
    Copies,
}

/// What the flags of `clone(2)` and its kin say.
pub(super) fn kinship(pid: RawTid, number: u64, first: u64) -> Kinship {
    let flags = match CloneCall::of(number) {
        Some(call) => call.flags(pid, first),
        None if number == libc::SYS_vfork as u64 => libc::CLONE_VM as u64,
        None => 0,
    };
    if flags & libc::CLONE_VM as u64 != 0 {
        Kinship::Shares
    } else {
        Kinship::Copies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, end: u64) -> Map {
        Map {
            start,
            end,
            ..Map::default()
        }
    }

    #[test]
    fn clusters_are_near_and_touch_nothing() {
        let maps = [
            map(0x5555_5555_4000, 0x5555_5556_0000),
            map(0x7fff_f7fc_0000, 0x7fff_f800_0000),
        ];
        for ip in [0x5555_5555_5000, 0x7fff_f7fd_0000] {
            let at = gap(&maps, ip).unwrap();
            assert!(at.abs_diff(ip) < 0x6000_0000, "{at:#x}");
            assert!(
                maps.iter()
                    .all(|map| map.end <= at || at + layout::CLUSTER_SIZE <= map.start)
            );
        }
        let low = gap(&[map(0x40_0000, 0x50_0000)], 0x40_1000).unwrap();
        assert!(low > 0x2000_0000 && low < 0x8000_0000);
    }

    #[test]
    fn neighboring_regions_are_one_stretch() {
        let (size, mut stretches) = (layout::REGION_SIZE, Vec::new());
        let top = 0x7fef_0000_0000;
        for number in [0, 1, 2, 4, 5] {
            note(&mut stretches, top - number * size);
        }
        assert_eq!(
            stretches,
            [(top - 2 * size, 3 * size), (top - 5 * size, 2 * size)]
        );
    }

    #[test]
    fn regions_go_below_what_is_in_their_way() {
        let size = layout::REGION_SIZE;
        let top = 0x7e80_0000_0000;
        // ThreadSanitizer keeps everybody out of what is below its part of the libraries' memory.
        let maps = [
            map(0x5000_0000_0000, 0x5000_0000_1000),
            map(0x7c00_0000_0000, top),
        ];
        assert_eq!(free_below(&maps, top), Some(top));
        assert_eq!(free_below(&maps, top - PAGE), Some(0x7c00_0000_0000 - size));
        assert_eq!(free_below(&[map(0, top)], top - size), None);
    }

    #[test]
    fn regions_are_where_the_kernel_maps_libraries() {
        // The lowest and the highest place that address space layout randomization makes of it.
        for mapped in [0x7efb_0000_0000, 0x7fff_f7ff_0000] {
            let at = layout::first_region(mapped);
            assert!(at > 0x7e80_0000_0000 && at < mapped, "{at:#x}");
        }
        assert_eq!(layout::first_region(0), layout::LOWEST_REGION);
    }
}
