//! Interned code addresses that calls come from and go to.

use super::Functions;
use crate::Version;
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// The index of an interned code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SiteIdx(pub u32);

impl SiteIdx {
    /// The index of no site.
    pub const NONE: Self = Self(u32::MAX);

    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The index of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionIdx(pub u32);

impl FunctionIdx {
    /// The index of an unknown function.
    pub const UNKNOWN: Self = Self(u32::MAX);

    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An interned code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeSite {
    /// Its number among the sites.
    pub id: SiteIdx,
    /// The number of its function; [`FunctionIdx::UNKNOWN`].
    pub function: FunctionIdx,
}

impl CodeSite {
    /// Returns whether the function is known.
    pub fn is_known(self) -> bool {
        self.function != FunctionIdx::UNKNOWN
    }
}

/// 0, or one more than the number of a module that was mapped in place of another
/// ([`Functions::replaced`]).
type CodeNumber = usize;

/// The interned sites and their functions.
pub(super) struct CodeSites<'a> {
    functions: &'a dyn Functions,
    ids: FxHashMap<(Avma, CodeNumber), SiteIdx>,
    /// The sites by number.
    infos: Vec<SiteInfo>,
    ranges: Vec<Range<Avma>>,
    by_start: FxHashMap<(Avma, CodeNumber), FunctionIdx>,
    /// A bit for each site: some call returns to it.
    returned_to: Vec<u64>,
    /// The sites whose bit was set since the last query.
    new_returns: Vec<SiteIdx>,
}

/// The address and function of a site.
#[derive(Clone, Copy)]
struct SiteInfo {
    at: Avma,
    function: FunctionIdx,
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

    /// Returns the site of an address in a version of the code.
    pub fn of(&mut self, at: Avma, version: Version) -> CodeSite {
        let (code, functions) = self.functions_at(at, version);
        let next = SiteIdx(self.infos.len() as u32);
        let id = *self.ids.entry((at, code)).or_insert(next);
        if let Some(infos) = self.infos.get(id.index()) {
            let function = infos.function;
            return CodeSite { id, function };
        }
        // Ignore a range without the address.
        let range = functions.range_of(at).filter(|range| range.contains(&at));
        let function = range.map_or(FunctionIdx::UNKNOWN, |range| {
            let range = whole_range(functions, at, range);
            self.function(range, code)
        });
        self.infos.push(SiteInfo { at, function });
        CodeSite { id, function }
    }

    fn functions_at(&self, at: Avma, version: Version) -> (CodeNumber, &'a dyn Functions) {
        let all = self.functions;
        let replaced = all.replaced(at, version);
        replaced.map_or((0, all), |(number, functions)| {
            (number.saturating_add(1), functions)
        })
    }

    /// Returns the number of the function with a range.
    fn function(&mut self, range: Range<Avma>, code: CodeNumber) -> FunctionIdx {
        let next = FunctionIdx(self.ranges.len() as u32);
        let ranges = &mut self.ranges;
        *self.by_start.entry((range.start, code)).or_insert_with(|| {
            ranges.push(range);
            next
        })
    }

    /// Returns the address of a site.
    pub fn address(&self, id: SiteIdx) -> Avma {
        self.infos.get(id.index()).map_or(Avma(0), |infos| infos.at)
    }

    /// Returns whether a function's range has the site.
    #[inline]
    pub fn contains(&self, function: FunctionIdx, site: CodeSite) -> bool {
        let range = self.ranges.get(function.index());
        range.is_some_and(|range| range.contains(&self.address(site.id)))
    }

    /// Returns whether the site is the start of its function.
    #[inline]
    pub fn is_start(&self, site: CodeSite) -> bool {
        let range = self.ranges.get(site.function.index());
        range.is_some_and(|range| range.start == self.address(site.id))
    }

    /// Records that calls return to a site.
    pub fn mark_returned_to(&mut self, id: SiteIdx) {
        let at = id.index() / 64;
        if self.returned_to.len() <= at {
            self.returned_to.resize(at + 1, 0);
        }
        if let Some(sites) = self.returned_to.get_mut(at) {
            let infos = *sites;
            *sites |= 1 << (id.0 % 64);
            if *sites != infos {
                self.new_returns.push(id);
            }
        }
    }

    /// Returns a site that calls return to and that was not returned before.
    #[inline]
    pub fn new_return(&mut self) -> Option<SiteIdx> {
        self.new_returns.pop()
    }

    /// Returns whether some call returns to a site.
    #[inline]
    pub fn may_be_returned_to(&self, id: SiteIdx) -> bool {
        let sites = self.returned_to.get(id.index() / 64);
        sites.is_some_and(|sites| sites >> (id.0 % 64) & 1 != 0)
    }

    /// Returns whether an instruction is between a call and the intended function.
    pub fn is_glue(&self, pc: Avma, version: Version) -> bool {
        let (_, functions) = self.functions_at(pc, version);
        functions.is_plt(pc) || functions.is_resolver(pc)
    }

    /// Returns the addresses of all sites, by number.
    pub fn into_addresses(self) -> Vec<Avma> {
        self.infos.into_iter().map(|infos| infos.at).collect()
    }
}

/// Returns the range of the function with an address in `range`. A separate part has the range with
/// the entry.
fn whole_range(functions: &dyn Functions, at: Avma, range: Range<Avma>) -> Range<Avma> {
    let apart = functions.entry_of(at).filter(|entry| !range.contains(entry));
    let whole = apart.and_then(|entry| {
        let whole = functions.range_of(entry)?;
        whole.contains(&entry).then_some(whole)
    });
    whole.unwrap_or(range)
}
