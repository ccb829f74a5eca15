//! Abbreviation tables (DWARF 5, section 7.5.3), parsed on demand.

use super::sections::Slice;
use gimli::{
    Abbreviations, DebugAbbrev, DebugAbbrevOffset, EndianSlice, LittleEndian, Reader, UnitHeader, constants,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// The tables of some units. Each ends where the next one starts, because a malicious file could
/// let many units start within one long table.
pub(crate) struct AbbreviationTables<'d>(BTreeMap<usize, Arc<AbbreviationTable<'d>>>);

/// One abbreviation table. Opening a unit parses only the abbreviation of its root entry.
pub(crate) struct AbbreviationTable<'d> {
    bytes: &'d [u8],
    /// The abbreviation that was requested first, and its code.
    one: OnceLock<(u64, Option<Arc<Abbreviations>>)>,
    all: OnceLock<Option<Arc<Abbreviations>>>,
    states_types: OnceLock<bool>,
}

impl<'d> AbbreviationTables<'d> {
    pub fn new(section: &'d [u8], headers: &[UnitHeader<Slice>]) -> Self {
        let starts = headers.iter().map(|header| header.debug_abbrev_offset().0);
        let starts: BTreeSet<usize> = starts.collect();
        let ends = starts.iter().skip(1).copied().chain([section.len()]);
        let tables = starts.iter().zip(ends).filter_map(|(&start, end)| {
            let table = AbbreviationTable::new(section.get(start..end)?);
            Some((start, Arc::new(table)))
        });
        Self(tables.collect())
    }

    /// Returns the table of a unit.
    pub fn of(&self, header: &UnitHeader<Slice>) -> Option<&Arc<AbbreviationTable<'d>>> {
        self.0.get(&header.debug_abbrev_offset().0)
    }
}

impl<'d> AbbreviationTable<'d> {
    fn new(bytes: &'d [u8]) -> Self {
        Self {
            bytes,
            one: OnceLock::new(),
            all: OnceLock::new(),
            states_types: OnceLock::new(),
        }
    }

    /// Returns abbreviations that include one with this code, and usually no others. Returns `None`
    /// if there is none, or if the table is damaged.
    pub fn with(&self, code: u64) -> Option<&Arc<Abbreviations>> {
        let (known, one) = self.one.get_or_init(|| (code, self.find(code)));
        // Each search starts at the beginning of the table, so only one search is made per table.
        if *known == code { one.as_ref() } else { self.all() }
    }

    /// Parses a table that contains only the abbreviation with this code.
    fn find(&self, code: u64) -> Option<Arc<Abbreviations>> {
        let mut rest = self.bytes;
        loop {
            let (found, len) = first(rest)?;
            let (this, behind) = rest.split_at_checked(len)?;
            if found == code {
                // A zero byte ends the table.
                return read(&[this, &[0]].concat());
            }
            rest = behind;
        }
    }

    /// Returns whether units of this table have entries of types or parameters. Those that a
    /// compiler wrote for stacks alone (`-g1`, `-gline-tables-only`) have none.
    pub fn states_types(&self) -> bool {
        let is_of_types = |tag: constants::DwTag| {
            matches!(
                tag,
                constants::DW_TAG_base_type
                    | constants::DW_TAG_pointer_type
                    | constants::DW_TAG_structure_type
                    | constants::DW_TAG_formal_parameter
            )
        };
        *self.states_types.get_or_init(|| {
            let Some(all) = self.all() else { return false };
            // Compilers number abbreviations from 1 on.
            let mut tags = (1..).map_while(|code| Some(all.get(code)?.tag()));
            tags.any(is_of_types)
        })
    }

    /// Returns all abbreviations, or `None` if the table is damaged.
    pub fn all(&self) -> Option<&Arc<Abbreviations>> {
        self.all.get_or_init(|| read(self.bytes)).as_ref()
    }
}

fn read(table: &[u8]) -> Option<Arc<Abbreviations>> {
    let table = DebugAbbrev::new(table, LittleEndian);
    table.abbreviations(DebugAbbrevOffset(0)).ok().map(Arc::new)
}

/// Returns the code of the first abbreviation and its size in bytes. Returns `None` if there is
/// none, or if it is damaged.
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

    /// A compilation unit with a name, an implicit-constant language, and children; then a second
    /// entry.
    const TABLE: [u8; 17] = [
        1, 0x11, 1, 0x03, 0x08, 0x13, 0x21, 0x8c, 0x00, 0, 0, 2, 0x2e, 0, 0, 0, 0,
    ];

    #[test]
    fn single_abbreviation_equals_that_of_the_full_table() {
        for asked in [1, 2] {
            let table = AbbreviationTable::new(&TABLE);
            let (one, all) = (table.with(asked).unwrap(), table.all().unwrap());
            assert!(one.get(asked).is_some());
            assert_eq!(one.get(asked), all.get(asked));
            assert!(one.get(3 - asked).is_none());
            // The second request parses the full table.
            assert_eq!(table.with(3 - asked).unwrap().get(3 - asked), all.get(3 - asked));
        }
    }

    #[test]
    fn units_of_lines_alone_state_no_types() {
        assert!(!AbbreviationTable::new(&TABLE).states_types());
        // The second entry is a base type.
        let mut with_type = TABLE;
        with_type[12] = 0x24;
        assert!(AbbreviationTable::new(&with_type).states_types());
        assert!(!AbbreviationTable::new(&TABLE[..3]).states_types());
    }

    #[test]
    fn truncated_or_missing_abbreviations_are_none() {
        let none = |bytes: &[u8], code| {
            let table = AbbreviationTable::new(bytes);
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
