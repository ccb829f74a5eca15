//! A row of a line table in 16 bytes. A malicious table has a row for each byte.

use gimli::ColumnType;

/// A row. Files, lines and columns that do not fit are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The low 48 bits of the address, above 16 bits for the column.
    packed: u64,
    /// The file, above one bit each for [`Self::is_stmt`] and [`Self::prologue_end`].
    file: u32,
    line: u32,
}

/// The bit for `is_stmt` in `file`.
const IS_STMT: u32 = 1;
/// The bit for `prologue_end` in `file`.
const PROLOGUE_END: u32 = 2;
/// The number of bits below the file.
const FILE_SHIFT: u32 = 2;
/// The number of bits below the address.
const ADDRESS_SHIFT: u32 = 16;

impl Row {
    /// Converts a row of the state machine. Its address must be canonical ([`is_canonical`]).
    pub fn new(row: &gimli::LineRow) -> Self {
        let column = match row.column() {
            ColumnType::LeftEdge => 0,
            ColumnType::Column(column) => u16::try_from(column.get()).unwrap_or(0),
        };
        let file = u32::try_from(row.file_index()).unwrap_or(u32::MAX);
        let file = file.min(u32::MAX >> FILE_SHIFT) << FILE_SHIFT;
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        Self {
            packed: row.address() << ADDRESS_SHIFT | u64::from(column),
            file: file | flag(row.is_stmt(), IS_STMT) | flag(row.prologue_end(), PROLOGUE_END),
            line: row.line().map_or(0, |line| line.get().try_into().unwrap_or(0)),
        }
    }

    /// Returns the address, sign-extended from its low 48 bits.
    pub fn address(self) -> u64 {
        (self.packed.cast_signed() >> ADDRESS_SHIFT).cast_unsigned()
    }

    /// Returns the column; 0 if unknown.
    pub fn column(self) -> u32 {
        u32::from(self.packed as u16)
    }

    /// Returns the file number.
    pub fn file(self) -> u32 {
        self.file >> FILE_SHIFT
    }

    /// Returns the line; 0 if there is none.
    pub fn line(self) -> u32 {
        self.line
    }

    /// Returns whether a statement begins here.
    pub fn is_stmt(self) -> bool {
        self.file & IS_STMT != 0
    }

    /// Returns whether a prologue ends here.
    pub fn prologue_end(self) -> bool {
        self.file & PROLOGUE_END != 0
    }

    /// Marks the end of a prologue.
    pub fn end_prologue(&mut self) {
        self.file |= PROLOGUE_END;
    }

    /// Returns whether both rows have the same file, line and `is_stmt`.
    pub fn is_same_line(self, other: Self) -> bool {
        (self.file(), self.line, self.is_stmt()) == (other.file(), other.line, other.is_stmt())
    }
}

/// Returns whether an address is canonical on x86-64: the upper 16 bits equal bit 47.
pub(super) fn is_canonical(address: u64) -> bool {
    ((address << ADDRESS_SHIFT).cast_signed() >> ADDRESS_SHIFT).cast_unsigned() == address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_small_and_keeps_canonical_addresses() {
        assert_eq!(size_of::<Row>(), 16);
        for address in [0, 0x40_1000, 0x7fff_ffff_ffff, 0xffff_ffff_8100_0000] {
            assert!(is_canonical(address));
            let mut row = Row {
                packed: address << ADDRESS_SHIFT | 77,
                file: 5 << FILE_SHIFT | IS_STMT,
                line: 9,
            };
            assert_eq!((row.address(), row.column(), row.file()), (address, 77, 5));
            assert!(row.is_stmt() && !row.prologue_end());
            row.end_prologue();
            assert!(row.is_stmt() && row.prologue_end() && row.file() == 5);
        }
        assert!(!is_canonical(1 << 47) && !is_canonical(u64::MAX >> 1));
    }
}
