//! Abbreviation tables (DWARF 5, section 7.5.3), each read when it is asked for.

use super::Slice;
use gimli::{
    Abbreviations, DebugAbbrev, DebugAbbrevOffset, EndianSlice, LittleEndian, Reader, UnitHeader, constants,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// The tables of some units, each only up to where the next one starts: a hostile file could let many units start within one long
/// table.
pub(crate) struct AbbreviationTables<'d>(BTreeMap<usize, Arc<AbbreviationTable<'d>>>);

/// One of them, which is not read whole to open a unit: that takes the abbreviation of its root alone.
pub(crate) struct AbbreviationTable<'d> {
    bytes: &'d [u8],
    /// The one that was asked for first, and its code.
    one: OnceLock<(u64, Option<Arc<Abbreviations>>)>,
    all: OnceLock<Option<Arc<Abbreviations>>>,
}

impl<'d> AbbreviationTables<'d> {
    pub fn new(section: &'d [u8], headers: &[UnitHeader<Slice>]) -> Self {
        let starts = headers.iter().map(|header| header.debug_abbrev_offset().0);
        let starts: BTreeSet<usize> = starts.collect();
        let ends = starts.iter().skip(1).copied().chain([section.len()]);
        let tables = starts.iter().zip(ends).filter_map(|(&start, end)| {
            let table = AbbreviationTable {
                bytes: section.get(start..end)?,
                one: OnceLock::new(),
                all: OnceLock::new(),
            };
            Some((start, Arc::new(table)))
        });
        Self(tables.collect())
    }

    /// The table of a unit.
    pub fn of(&self, header: &UnitHeader<Slice>) -> Option<&Arc<AbbreviationTable<'d>>> {
        self.0.get(&header.debug_abbrev_offset().0)
    }
}

impl AbbreviationTable<'_> {
    /// Those with one of this code, and as a rule no others; `None`: there is none, or the table is damaged.
    pub fn with(&self, code: u64) -> Option<&Arc<Abbreviations>> {
        let (known, one) = self.one.get_or_init(|| (code, self.find(code)));
        // Each is searched for from the beginning on: no table is searched often.
        if *known == code { one.as_ref() } else { self.all() }
    }

    /// A table of the one of this code alone.
    fn find(&self, code: u64) -> Option<Arc<Abbreviations>> {
        let mut rest = self.bytes;
        loop {
            let (found, len) = first(rest)?;
            let (this, behind) = rest.split_at_checked(len)?;
            if found == code {
                // Ends the table.
                return read(&[this, &[0]].concat());
            }
            rest = behind;
        }
    }

    /// All; `None` for a damaged table.
    pub fn all(&self) -> Option<&Arc<Abbreviations>> {
        self.all.get_or_init(|| read(self.bytes)).as_ref()
    }
}

fn read(table: &[u8]) -> Option<Arc<Abbreviations>> {
    let table = DebugAbbrev::new(table, LittleEndian);
    table.abbreviations(DebugAbbrevOffset(0)).ok().map(Arc::new)
}

/// The code of the first abbreviation of a table, and how many bytes it has; `None`: there is none, or it is damaged.
fn first(table: &[u8]) -> Option<(u64, usize)> {
    let mut rest = EndianSlice::new(table, LittleEndian);
    let code = rest.read_uleb128().ok().filter(|&code| code != 0)?;
    let _tag = rest.read_uleb128().ok()?;
    let _has_children = rest.read_u8().ok()?;
    loop {
        let (name, form) = (rest.read_uleb128().ok()?, rest.read_uleb128().ok()?);
        if form == u64::from(constants::DW_FORM_implicit_const.0) {
            rest.read_sleb128().ok()?;
        }
        if (name, form) == (0, 0) {
            return Some((code, table.len() - rest.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A compilation unit with a name, a language that is with the abbreviation, and children; then another.
    const TABLE: [u8; 17] = [
        1, 0x11, 1, 0x03, 0x08, 0x13, 0x21, 0x8c, 0x00, 0, 0, 2, 0x2e, 0, 0, 0, 0,
    ];

    #[test]
    fn one_is_found_as_it_is_among_all() {
        for asked in [1, 2] {
            let table = AbbreviationTable {
                bytes: &TABLE,
                one: OnceLock::new(),
                all: OnceLock::new(),
            };
            let (one, all) = (table.with(asked).unwrap(), table.all().unwrap());
            assert!(one.get(asked).is_some());
            assert_eq!(one.get(asked), all.get(asked));
            assert!(one.get(3 - asked).is_none());
            // What is asked then comes with all.
            assert_eq!(table.with(3 - asked).unwrap().get(3 - asked), all.get(3 - asked));
        }
    }

    #[test]
    fn what_is_cut_off_or_not_there_is_none() {
        let none = |bytes: &[u8], code| {
            let table = AbbreviationTable {
                bytes,
                one: OnceLock::new(),
                all: OnceLock::new(),
            };
            table.with(code).is_none()
        };
        for len in 0..11 {
            assert!(none(&TABLE[..len], 1), "{len}");
        }
        assert!(!none(&TABLE[..11], 1));
        assert!(none(&TABLE, 3));
        assert!(none(&TABLE, 0));
    }
}
