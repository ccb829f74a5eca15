//! Interned code addresses that calls come from and go to.

use super::Functions;
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// An interned code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeSite {
    /// Its number among the sites.
    pub id: u32,
    /// The number of its function; [`CodeSite::UNKNOWN`].
    pub function: u32,
}

impl CodeSite {
    /// The number of an unknown function.
    pub const UNKNOWN: u32 = u32::MAX;

    /// Returns whether the function is known.
    pub fn is_known(self) -> bool {
        self.function != Self::UNKNOWN
    }
}

/// The interned sites and their functions.
pub(super) struct CodeSites<'a> {
    functions: &'a dyn Functions,
    ids: FxHashMap<Avma, u32>,
    /// The sites by number.
    infos: Vec<SiteInfo>,
    ranges: Vec<Range<Avma>>,
    by_start: FxHashMap<Avma, u32>,
    /// A bit for each site: some call returns to it.
    returned_to: Vec<u64>,
    /// The sites whose bit was set since the last query.
    new_returns: Vec<u32>,
}

/// The address and function of a site.
#[derive(Clone, Copy)]
struct SiteInfo {
    at: Avma,
    function: u32,
}

impl<'a> CodeSites<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            functions,
            ids: FxHashMap::default(),
            infos: Vec::new(),
            ranges: Vec::new(),
            by_start: FxHashMap::default(),
            returned_to: Vec::new(),
            new_returns: Vec::new(),
        }
    }

    pub fn of(&mut self, at: Avma) -> CodeSite {
        let next = self.infos.len() as u32;
        let id = *self.ids.entry(at).or_insert(next);
        if let Some(infos) = self.infos.get(id as usize) {
            let function = infos.function;
            return CodeSite { id, function };
        }
        // Ignore a range without the address.
        let range = self.functions.range_of(at).filter(|range| range.contains(&at));
        let function = range.map_or(CodeSite::UNKNOWN, |range| self.function(at, range));
        self.infos.push(SiteInfo { at, function });
        CodeSite { id, function }
    }

    /// Returns the number of the function with an address in this range. A separate part has the
    /// number of the range with the entry.
    fn function(&mut self, at: Avma, range: Range<Avma>) -> u32 {
        let apart = self.functions.entry_of(at).filter(|entry| !range.contains(entry));
        let range = apart
            .and_then(|entry| {
                let whole = self.functions.range_of(entry)?;
                whole.contains(&entry).then_some(whole)
            })
            .unwrap_or(range);
        let next = self.ranges.len() as u32;
        let ranges = &mut self.ranges;
        *self.by_start.entry(range.start).or_insert_with(|| {
            ranges.push(range);
            next
        })
    }

    /// Returns the address of a site.
    pub fn address(&self, id: u32) -> Avma {
        self.infos.get(id as usize).map_or(Avma(0), |infos| infos.at)
    }

    /// Returns whether a function's range has the site.
    #[inline]
    pub fn contains(&self, function: u32, place: CodeSite) -> bool {
        let range = self.ranges.get(function as usize);
        range.is_some_and(|range| range.contains(&self.address(place.id)))
    }

    /// Returns whether the site is the start of its function.
    #[inline]
    pub fn is_start(&self, place: CodeSite) -> bool {
        let range = self.ranges.get(place.function as usize);
        range.is_some_and(|range| range.start == self.address(place.id))
    }

    /// Records that calls return to a site.
    pub fn is_returned_to(&mut self, id: u32) {
        let at = id as usize / 64;
        if self.returned_to.len() <= at {
            self.returned_to.resize(at + 1, 0);
        }
        if let Some(sites) = self.returned_to.get_mut(at) {
            let infos = *sites;
            *sites |= 1 << (id % 64);
            if *sites != infos {
                self.new_returns.push(id);
            }
        }
    }

    /// Returns a site that calls return to and that was not returned before.
    #[inline]
    pub fn new_return(&mut self) -> Option<u32> {
        self.new_returns.pop()
    }

    /// Returns whether some call returns to a site.
    #[inline]
    pub fn may_be_returned_to(&self, id: u32) -> bool {
        let sites = self.returned_to.get(id as usize / 64);
        sites.is_some_and(|sites| sites >> (id % 64) & 1 != 0)
    }

    /// Returns whether an instruction lies between a call and the intended function.
    pub fn is_glue(&self, pc: Avma) -> bool {
        self.functions.is_plt(pc) || self.functions.is_resolver(pc)
    }

    /// Returns the addresses of all sites, by number.
    pub fn into_addresses(self) -> Vec<Avma> {
        self.infos.into_iter().map(|infos| infos.at).collect()
    }
}
