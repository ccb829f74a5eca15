//! Addresses that calls come from and go to, each looked up once.

use super::Functions;
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub at: Avma,
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
    met: FxHashMap<Avma, Place>,
    ranges: Vec<Range<Avma>>,
    by_start: FxHashMap<Avma, u32>,
    glue: FxHashMap<Avma, bool>,
}

impl<'a> Places<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            functions,
            met: FxHashMap::default(),
            ranges: Vec::new(),
            by_start: FxHashMap::default(),
            glue: FxHashMap::default(),
        }
    }

    pub fn of(&mut self, at: Avma) -> Place {
        if let Some(&place) = self.met.get(&at) {
            return place;
        }
        // An answer that does not hold the address is no answer.
        let range = self.functions.range_of(at).filter(|range| range.contains(&at));
        let function = range.map_or(Place::UNKNOWN, |range| self.function(range));
        let id = self.met.len() as u32;
        let place = Place { at, id, function };
        self.met.insert(at, place);
        place
    }

    fn function(&mut self, range: Range<Avma>) -> u32 {
        let next = self.ranges.len() as u32;
        let ranges = &mut self.ranges;
        *self.by_start.entry(range.start).or_insert_with(|| {
            ranges.push(range);
            next
        })
    }

    /// A function has an address.
    #[inline]
    pub fn contains(&self, function: u32, at: Avma) -> bool {
        let range = self.ranges.get(function as usize);
        range.is_some_and(|range| range.contains(&at))
    }

    /// A place is where its function starts.
    pub fn is_start(&self, place: Place) -> bool {
        let range = self.ranges.get(place.function as usize);
        range.is_some_and(|range| range.start == place.at)
    }

    /// Code between a call and the function meant.
    pub fn is_glue(&mut self, pc: Avma) -> bool {
        let functions = self.functions;
        let known = self.glue.entry(pc);
        *known.or_insert_with(|| functions.is_plt(pc) || functions.is_resolver(pc))
    }
}
