//! Addresses that calls come from and go to, each looked up once.

use super::Functions;
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// An address, looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its number among the places.
    pub id: u32,
    /// The number of the function that it is in; [`Place::UNKNOWN`].
    pub function: u32,
}

impl Place {
    /// The number of no function.
    pub const UNKNOWN: u32 = u32::MAX;

    /// The function is known.
    pub fn is_known(self) -> bool {
        self.function != Self::UNKNOWN
    }
}

/// The places met so far, and the functions that they are in.
pub(super) struct Places<'a> {
    functions: &'a dyn Functions,
    met: FxHashMap<Avma, u32>,
    /// By number.
    known: Vec<Known>,
    ranges: Vec<Range<Avma>>,
    by_start: FxHashMap<Avma, u32>,
    /// Whether calls return to a place, by number, 64 in each.
    returned_to: Vec<u64>,
    /// The places that are new among those.
    new_returns: Vec<u32>,
}

/// What is known of a place.
#[derive(Clone, Copy)]
struct Known {
    at: Avma,
    function: u32,
}

impl<'a> Places<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            functions,
            met: FxHashMap::default(),
            known: Vec::new(),
            ranges: Vec::new(),
            by_start: FxHashMap::default(),
            returned_to: Vec::new(),
            new_returns: Vec::new(),
        }
    }

    pub fn of(&mut self, at: Avma) -> Place {
        let next = self.known.len() as u32;
        let id = *self.met.entry(at).or_insert(next);
        if let Some(known) = self.known.get(id as usize) {
            let function = known.function;
            return Place { id, function };
        }
        // An answer that does not hold the address is no answer.
        let range = self.functions.range_of(at).filter(|range| range.contains(&at));
        let function = range.map_or(Place::UNKNOWN, |range| self.function(at, range));
        self.known.push(Known { at, function });
        Place { id, function }
    }

    /// The number of the function that has an address in this range. A part that lies apart has that of the
    /// range with the entry.
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

    /// The address of the place of a number.
    pub fn address(&self, id: u32) -> Avma {
        self.known.get(id as usize).map_or(Avma(0), |known| known.at)
    }

    /// A function has an address.
    #[inline]
    pub fn contains(&self, function: u32, place: Place) -> bool {
        let range = self.ranges.get(function as usize);
        range.is_some_and(|range| range.contains(&self.address(place.id)))
    }

    /// A place is where its function starts.
    #[inline]
    pub fn is_start(&self, place: Place) -> bool {
        let range = self.ranges.get(place.function as usize);
        range.is_some_and(|range| range.start == self.address(place.id))
    }

    /// Calls return to the place of this number.
    pub fn is_returned_to(&mut self, id: u32) {
        let at = id as usize / 64;
        if self.returned_to.len() <= at {
            self.returned_to.resize(at + 1, 0);
        }
        if let Some(places) = self.returned_to.get_mut(at) {
            let known = *places;
            *places |= 1 << (id % 64);
            if *places != known {
                self.new_returns.push(id);
            }
        }
    }

    /// A place that calls return to, and was not given before.
    #[inline]
    pub fn new_return(&mut self) -> Option<u32> {
        self.new_returns.pop()
    }

    /// Some call returns to the place of this number.
    #[inline]
    pub fn may_be_returned_to(&self, id: u32) -> bool {
        let places = self.returned_to.get(id as usize / 64);
        places.is_some_and(|places| places >> (id % 64) & 1 != 0)
    }

    /// Code between a call and the function meant.
    pub fn is_glue(&self, pc: Avma) -> bool {
        self.functions.is_plt(pc) || self.functions.is_resolver(pc)
    }

    /// The addresses of all places, by number.
    pub fn into_addresses(self) -> Vec<Avma> {
        self.known.into_iter().map(|known| known.at).collect()
    }
}
