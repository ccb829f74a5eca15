//! The code cache of an address space: blocks, what leads from one to another, and where indirect
//! branches find them.

use super::assembler::{Assembler, Scratch};
use super::block::{self, Block, Fetch, Next, Place, Saved, Source, State, Style, Trap};
use super::event::NO_OUTCOMES;
use super::layout;
use super::memory::SharedMemory;
use crate::{PAGE, RecordOptions};
use backtrail_bundle::versions::Fragment;
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// How far a block may lie from its code, so that relative operands reach their ends too.
const REACH: u64 = 0x7000_0000;
/// Room that a block takes at most.
const MAX_BLOCK: u64 = 1 << 14;
/// Room in a cluster.
const ROOM: RangeInclusive<u64> = RecordOptions::CACHE;
const _: () = assert!(4 * MAX_BLOCK <= *ROOM.start() && *ROOM.end() <= layout::CLUSTER_SIZE);
/// Most pieces of code kept that are there no more.
const MAX_PAST: usize = 1 << 20;
/// Blocks translated at once: those that are likely to be next.
const AHEAD: usize = 4;

/// A part of the cache.
#[derive(Debug)]
struct Cluster {
    address: u64,
    memory: SharedMemory,
    used: u64,
}

impl Cluster {
    fn reaches(&self, ip: u64) -> bool {
        self.address.abs_diff(ip) < REACH && (self.address + layout::CLUSTER_SIZE).abs_diff(ip) < REACH
    }

    fn contains(&self, address: u64) -> bool {
        (self.address..self.address + layout::CLUSTER_SIZE).contains(&address)
    }
}

/// What stands at an address of the cache.
#[derive(Clone, Debug)]
enum Piece {
    Block {
        ip: u64,
        /// The number of changes of code before it was translated.
        version: u32,
        /// [`Style::since`].
        since: u32,
        /// [`Style::wide`].
        wide: bool,
        /// The block that stood for `ip` until this wide one did.
        before: Option<u64>,
        source: Source,
        len: u32,
    },
    /// Comes from an indirect branch to `ip`; all registers are as the program has them from `clean` on.
    Landing { ip: u64, clean: u32, len: u32 },
    /// Where indirect branches go that find no landing.
    Probe,
}

/// Entries for an indirect branch: by the first table, and by the second.
#[derive(Clone, Copy, Debug)]
struct Landing {
    first: u64,
    second: u64,
}

/// Why a thread in the cache has trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// `target` comes next; the jump whose distance is at `site` may lead there.
    Exit {
        site: u64,
        target: u64,
    },
    /// The target of an indirect branch, in RAX, is not in the tables.
    Miss,
    Special {
        ip: u64,
        next: u64,
    },
    Native {
        ip: u64,
        outcomes: u8,
    },
    /// The thread's log must tell of changes of code before it goes on at `ip`.
    Untold {
        ip: u64,
    },
}

/// The code cache.
#[derive(Debug)]
pub(super) struct Cache {
    style: Style,
    /// Bytes of each cluster that are used.
    room: u64,
    tables: SharedMemory,
    clusters: Vec<Cluster>,
    blocks: FxHashMap<u64, u64>,
    pieces: BTreeMap<u64, Piece>,
    landings: FxHashMap<u64, Landing>,
    /// Jumps to a block of the program, translated or not: where the distance is, and where it led at first.
    incoming: FxHashMap<u64, Vec<(u64, u64)>>,
    traps: FxHashMap<u64, Cause>,
    /// Changes of code that was translated.
    version: u32,
    /// Blocks that were forgotten: what they were made from, and since which change.
    past: Vec<Fragment>,
    /// Pages in which code has changed.
    changed: BTreeSet<u64>,
    /// Blocks by the pages of the program that they were made from.
    pages: BTreeMap<u64, Vec<u64>>,
    /// Where the first and the second table lead when they know no landing.
    probe: u64,
    miss: u64,
}

impl Cache {
    /// An empty cache; `tables` are [`layout::TABLES_SIZE`] bytes, zero. Of each cluster `room` bytes are
    /// used, at most.
    pub(super) fn new(tables: SharedMemory, style: Style, room: u64, special: &[libc::c_long]) -> Self {
        for number in special {
            tables.write(layout::SPECIAL - layout::TABLES + (*number as u64 & 0xffff), &[1]);
        }
        Self {
            style,
            room: room.clamp(*ROOM.start(), *ROOM.end()),
            tables,
            clusters: Vec::new(),
            blocks: FxHashMap::default(),
            pieces: BTreeMap::new(),
            landings: FxHashMap::default(),
            incoming: FxHashMap::default(),
            traps: FxHashMap::default(),
            version: 0,
            past: Vec::new(),
            changed: BTreeSet::new(),
            pages: BTreeMap::new(),
            probe: 0,
            miss: 0,
        }
    }

    /// Whether a cluster with room is in reach of the code at `ip`.
    pub(super) fn has_room(&self, ip: u64) -> bool {
        self.cluster(ip).is_some()
    }

    /// Whether what is in reach of the code at `ip` is full: emptied, it would do.
    pub(super) fn is_full(&self, ip: u64) -> bool {
        !self.has_room(ip) && self.clusters.iter().any(|cluster| cluster.reaches(ip))
    }

    /// Forgets every block, but not what code was that has changed or `may_change`, by the page. No thread
    /// may stand in one.
    pub(super) fn empty(&mut self, may_change: impl Fn(u64) -> bool) {
        self.past = self.fragments(&may_change);
        let changing = self.pages.keys().copied().filter(|page| may_change(page * PAGE));
        self.changed.extend(changing);
        self.blocks.clear();
        self.pieces.clear();
        self.landings.clear();
        self.incoming.clear();
        self.traps.clear();
        self.pages.clear();
        for cluster in &mut self.clusters {
            cluster.used = 0;
        }
        self.write_probes();
    }

    fn cluster(&self, ip: u64) -> Option<usize> {
        let room = |cluster: &Cluster| cluster.used + MAX_BLOCK <= self.room;
        self.clusters
            .iter()
            .position(|cluster| cluster.reaches(ip) && room(cluster))
    }

    /// Adds a cluster: [`layout::CLUSTER_SIZE`] bytes that the program has at `address`.
    pub(super) fn add_cluster(&mut self, address: u64, memory: SharedMemory) {
        self.clusters.push(Cluster {
            address,
            memory,
            used: 0,
        });
        if self.miss == 0 {
            self.write_probes();
        }
    }

    /// The same in other memory: tables, and a cluster for each, still empty.
    pub(super) fn copy(&self, tables: SharedMemory, clusters: Vec<SharedMemory>) -> Self {
        tables.write(0, &self.tables.bytes(layout::TABLES_SIZE));
        let clusters = self
            .clusters
            .iter()
            .zip(clusters)
            .map(|(old, memory)| {
                memory.write(0, &old.memory.bytes(old.used));
                Cluster {
                    address: old.address,
                    memory,
                    used: old.used,
                }
            })
            .collect();
        Self {
            style: self.style,
            room: self.room,
            tables,
            clusters,
            blocks: self.blocks.clone(),
            pieces: self.pieces.clone(),
            landings: self.landings.clone(),
            incoming: self.incoming.clone(),
            traps: self.traps.clone(),
            version: self.version,
            past: self.past.clone(),
            changed: self.changed.clone(),
            pages: self.pages.clone(),
            probe: self.probe,
            miss: self.miss,
        }
    }

    /// Start and size of every cluster.
    pub(super) fn areas(&self) -> impl Iterator<Item = (u64, u64)> {
        self.clusters
            .iter()
            .map(|cluster| (cluster.address, layout::CLUSTER_SIZE))
    }

    fn write_probes(&mut self) {
        let mut code = Assembler::default();
        code.jump_by_table(layout::SECOND);
        while !code.len().is_multiple_of(16) {
            code.trap();
        }
        let miss = code.len() as u64;
        code.trap();
        let Some(at) = self.put(0, &code.code) else { return };
        self.pieces.insert(at, Piece::Probe);
        (self.probe, self.miss) = (at, at + miss);
        self.traps.insert(self.miss, Cause::Miss);
        for index in 0..layout::TARGETS {
            self.tables
                .store(layout::FIRST - layout::TABLES + index * 8, self.probe);
            self.tables
                .store(layout::SECOND - layout::TABLES + index * 8, self.miss);
        }
    }

    /// Puts code into a cluster; says where.
    fn put(&mut self, cluster: usize, code: &[u8]) -> Option<u64> {
        let cluster = self.clusters.get_mut(cluster)?;
        let offset = cluster.used;
        cluster.memory.write(offset, code);
        cluster.used = (offset + code.len() as u64).next_multiple_of(16);
        Some(cluster.address + offset)
    }

    /// The address of the translation of `ip`, translating where needed, ahead too.
    ///
    /// `None`: no cluster is in reach.
    pub(super) fn look_up(&mut self, ip: u64, fetch: &mut Fetch<'_>) -> Option<u64> {
        if let Some(found) = self.blocks.get(&ip) {
            return Some(*found);
        }
        let mut wanted = std::collections::VecDeque::from([ip]);
        let mut made = 0;
        while let Some(next) = wanted.pop_front() {
            if made > AHEAD {
                break;
            }
            if self.blocks.contains_key(&next) || self.cluster(next).is_none() {
                continue;
            }
            wanted.extend(self.translate(next, self.style, fetch)?);
            made += 1;
        }
        self.blocks.get(&ip).copied()
    }

    /// Whether there is a block at `ip` that is not wide.
    pub(super) fn is_narrow(&self, ip: u64) -> bool {
        let piece = self.blocks.get(&ip).and_then(|at| self.pieces.get(at));
        matches!(piece, Some(Piece::Block { wide: false, .. }))
    }

    /// Translates the block at `ip` anew, wide, and leads everything there.
    pub(super) fn widen(&mut self, ip: u64, fetch: &mut Fetch<'_>) {
        if !self.is_narrow(ip) {
            return;
        }
        let style = Style {
            wide: true,
            ..self.style
        };
        if self.translate(ip, style, fetch).is_none() {
            return;
        }
        if let (Some(Landing { first, second }), Some(at)) = (self.landings.get(&ip), self.blocks.get(&ip)) {
            for landing in [first, second] {
                if let Some(Piece::Landing { len, .. }) = self.pieces.get(landing) {
                    // Its last four bytes are the distance of its jump.
                    self.lead(landing + u64::from(*len) - 4, *at);
                }
            }
        }
    }

    /// The address of the program whose block is at `address`.
    pub(super) fn block_at(&self, address: u64) -> Option<u64> {
        match self.pieces.range(..=address).next_back()? {
            (_, Piece::Block { ip, .. }) => Some(*ip),
            _ => None,
        }
    }

    fn translate(&mut self, ip: u64, style: Style, fetch: &mut Fetch<'_>) -> Option<Vec<u64>> {
        let index = self.cluster(ip)?;
        let at = {
            let cluster = self.clusters.get(index)?;
            cluster.address + cluster.used
        };
        let mut since = 0;
        let mut block = block::translate(ip, at, style, fetch);
        if self.version != 0 && block.source.pages().any(|page| self.changed.contains(&page)) {
            since = self.version;
            block = block::translate(ip, at, Style { since, ..style }, fetch);
        }
        let Block {
            code,
            traps,
            source,
            successors,
            ..
        } = block;
        self.put(index, &code)?;
        let before = self.blocks.insert(ip, at);
        for (offset, trap) in traps {
            let trapped = at + u64::from(offset);
            let cause = match trap {
                Trap::Exit { site, target } => {
                    let site = at + u64::from(site);
                    self.incoming.entry(target).or_default().push((site, trapped));
                    if let Some(to) = self.blocks.get(&target) {
                        self.lead(site, *to);
                    }
                    Cause::Exit { site, target }
                }
                Trap::Special { ip, next } => Cause::Special { ip, next },
                Trap::Native { ip, outcomes } => Cause::Native { ip, outcomes },
                Trap::Untold { ip } => Cause::Untold { ip },
            };
            self.traps.insert(trapped, cause);
        }
        let len = code.len() as u32;
        for page in source.pages() {
            let ips = self.pages.entry(page).or_default();
            if ips.last() != Some(&ip) {
                ips.push(ip);
            }
        }
        self.pieces.insert(
            at,
            Piece::Block {
                ip,
                version: self.version,
                since,
                wide: style.wide,
                before,
                source,
                len,
            },
        );
        // Those that wait for this block.
        let sites: Vec<u64> = self
            .incoming
            .get(&ip)
            .into_iter()
            .flatten()
            .map(|(site, _)| *site)
            .collect();
        sites.into_iter().for_each(|site| self.lead(site, at));
        Some(successors)
    }

    /// Makes the jump whose distance is at `site` lead to `to`, where that is in reach.
    fn lead(&self, site: u64, to: u64) {
        let distance = to.wrapping_sub(site + 4) as i64;
        if let (Ok(distance), Some(cluster)) = (
            i32::try_from(distance),
            self.clusters.iter().find(|cluster| cluster.contains(site)),
        ) {
            cluster.memory.store_half(site - cluster.address, distance as u32);
        }
    }

    /// Makes the jump of an exit lead straight to its target, which is translated.
    pub(super) fn link(&mut self, site: u64, target: u64) {
        if let Some(to) = self.blocks.get(&target).copied() {
            self.lead(site, to);
        }
    }

    /// Lets indirect branches find `ip`, which is translated.
    pub(super) fn land(&mut self, ip: u64) -> Option<()> {
        let landing = match self.landings.get(&ip) {
            Some(landing) => *landing,
            None => self.write_landing(ip)?,
        };
        let index = hash(ip);
        let slot = |table: u64| table - layout::TABLES + index * 8;
        let first = self.tables.load(slot(layout::FIRST));
        if first != landing.first && first != self.probe {
            // The one that was here is found by its other entry from now on.
            let displaced = match self.pieces.get(&first) {
                Some(Piece::Landing { ip, .. }) => self.landings.get(ip).map(|landing| landing.second),
                _ => None,
            };
            if let Some(displaced) = displaced {
                self.tables.store(slot(layout::SECOND), displaced);
            }
        }
        self.tables.store(slot(layout::FIRST), landing.first);
        Some(())
    }

    fn write_landing(&mut self, ip: u64) -> Option<Landing> {
        let block = *self.blocks.get(&ip)?;
        let entry = |otherwise: Option<u64>| {
            let mut code = Assembler::default();
            code.set(Scratch::Rcx, ip.wrapping_neg());
            code.add_rax_to_rcx();
            match otherwise {
                Some(table) => {
                    let mut jump = Assembler::default();
                    jump.jump_by_table(table);
                    code.skip_if_rcx_is_zero(jump.len() as u8);
                    code.bytes(&jump.code);
                }
                None => {
                    code.skip_if_rcx_is_zero(1);
                    code.trap();
                }
            }
            let miss = code.len() - 1;
            code.load(Scratch::Rdx, layout::SAVED_RDX);
            code.load(Scratch::Rcx, layout::SAVED_RCX);
            code.load(Scratch::Rax, layout::SAVED_RAX);
            let clean = code.len() as u32;
            let site = code.jump();
            (code, site, clean, miss)
        };
        let index = self
            .cluster(ip)
            .or_else(|| self.clusters.iter().position(|cluster| cluster.contains(block)))?;
        let mut put = |otherwise: Option<u64>| {
            let (code, site, clean, miss) = entry(otherwise);
            let at = self.put(index, &code.code)?;
            let len = code.len() as u32;
            self.pieces.insert(at, Piece::Landing { ip, clean, len });
            self.lead(at + site as u64, block);
            if otherwise.is_none() {
                self.traps.insert(at + miss as u64, Cause::Miss);
            }
            Some(at)
        };
        let landing = Landing {
            first: put(Some(layout::SECOND))?,
            second: put(None)?,
        };
        self.landings.insert(ip, landing);
        Some(landing)
    }

    /// Why the `int3` at `address` is there.
    pub(super) fn cause(&self, address: u64) -> Option<Cause> {
        self.traps.get(&address).copied()
    }

    /// What a thread at `address` has done; `None`: that is no place in the cache.
    pub(super) fn place(&self, address: u64) -> Option<Place> {
        let (at, piece) = self.pieces.range(..=address).next_back()?;
        let offset = (address - at) as u32;
        let arriving = |state, ip| Place {
            offset,
            ip,
            state,
            outcomes: NO_OUTCOMES,
            told: ip,
        };
        match piece {
            Piece::Block {
                ip,
                since,
                wide,
                source,
                len,
                ..
            } => {
                if offset >= *len {
                    return None;
                }
                let mut again = |from: u64, out: &mut [u8]| source.read(from, out);
                let block = block::translate(
                    *ip,
                    *at,
                    Style {
                        places: true,
                        since: *since,
                        wide: *wide,
                        ..self.style
                    },
                    &mut again,
                );
                block.place(offset).copied()
            }
            Piece::Landing { ip, clean, len } if offset < *len => Some(if offset >= *clean {
                arriving(State::Before(Saved::NONE), *ip)
            } else {
                arriving(
                    State::Done {
                        saved: Saved::ALL,
                        event: None,
                        next: Next::InRax,
                    },
                    *ip,
                )
            }),
            Piece::Probe => Some(arriving(
                State::Done {
                    saved: Saved::ALL,
                    event: None,
                    next: Next::InRax,
                },
                0,
            )),
            Piece::Landing { .. } => None,
        }
    }

    /// Blocks made from code in `range`.
    fn made_from(&self, range: &std::ops::Range<u64>) -> Vec<u64> {
        let first = range.start / PAGE;
        let last = range.end.div_ceil(PAGE);
        let mut found: Vec<u64> = self
            .pages
            .range(first..last)
            .flat_map(|(_, ips)| ips)
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        found.retain(|ip| {
            let piece = self.blocks.get(ip).and_then(|at| self.pieces.get(at));
            let Some(Piece::Block { source, .. }) = piece else {
                return false;
            };
            source
                .runs()
                .any(|(start, run)| start < range.end && range.start < start + run.len() as u64)
        });
        found
    }

    /// What the block at `ip` was made from, and after which change of code; then that of the one before.
    fn made(&self, ip: u64) -> impl Iterator<Item = (&Source, u32)> {
        let mut next = self.blocks.get(&ip).copied();
        std::iter::from_fn(move || match self.pieces.get(&next?)? {
            Piece::Block {
                source,
                version,
                before,
                ..
            } => {
                next = *before;
                Some((source, *version))
            }
            _ => None,
        })
    }

    /// Whether a block was made from code in `range`.
    pub(super) fn touches(&self, range: std::ops::Range<u64>) -> bool {
        !self.made_from(&range).is_empty()
    }

    /// Changes of code so far.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Code that was executed where code has changed or `may_change`, by the change since which it stood
    /// there.
    pub(super) fn fragments(&self, may_change: impl Fn(u64) -> bool) -> Vec<Fragment> {
        let mut all = self.past.clone();
        let changes = |page| self.changed.contains(&page) || may_change(page * PAGE);
        for (source, version) in self.blocks.keys().flat_map(|ip| self.made(*ip)) {
            if source.pages().any(changes) {
                all.extend(fragments(source, version));
            }
        }
        all.sort_by_key(|fragment| fragment.boundary);
        all
    }

    /// Remembers code that has changed, and that it has.
    fn remember(&mut self, gone: &[u64]) {
        for ip in gone {
            let pages: Vec<u64> = self.made(*ip).flat_map(|(source, _)| source.pages()).collect();
            self.changed.extend(pages);
            let room = MAX_PAST.saturating_sub(self.past.len());
            let past: Vec<Fragment> = self
                .made(*ip)
                .flat_map(|(source, version)| fragments(source, version))
                .take(room)
                .collect();
            self.past.extend(past);
        }
        if !gone.is_empty() {
            self.version = self.version.saturating_add(1);
        }
    }

    /// Code in `range` has changed: forgets every block made from it, but not what it was.
    pub(super) fn change(&mut self, range: std::ops::Range<u64>) {
        let gone = self.made_from(&range);
        self.remember(&gone);
        self.forget(range);
    }

    /// Forgets every block made from code in `range`: nothing leads there any more.
    ///
    /// A thread that stands in one goes on in it to its end.
    pub(super) fn forget(&mut self, range: std::ops::Range<u64>) {
        let gone = self.made_from(&range);
        for ip in &gone {
            self.blocks.remove(ip);
            let sites: Vec<(u64, u64)> = self.incoming.get(ip).into_iter().flatten().copied().collect();
            for (site, exit) in sites {
                self.lead(site, exit);
            }
            if let Some(landing) = self.landings.remove(ip) {
                let slot = |table: u64| table - layout::TABLES + hash(*ip) * 8;
                if self.tables.load(slot(layout::FIRST)) == landing.first {
                    self.tables.store(slot(layout::FIRST), self.probe);
                }
                if self.tables.load(slot(layout::SECOND)) == landing.second {
                    self.tables.store(slot(layout::SECOND), self.miss);
                }
            }
        }
    }
}

/// Blocks as parts of the code image.
fn fragments(source: &Source, version: u32) -> impl Iterator<Item = Fragment> {
    source.runs().map(move |(start, run)| Fragment {
        address: Avma(start),
        boundary: version,
        bytes: run.to_vec().into(),
    })
}

/// Where in the tables a target is: what [`Assembler::hash`] computes.
fn hash(target: u64) -> u64 {
    /// The Castagnoli polynomial, reversed (SDM, "CRC32").
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = 0u32;
    for byte in target.to_le_bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
        }
    }
    u64::from(crc) & (layout::TARGETS - 1)
}

#[cfg(test)]
mod tests;
