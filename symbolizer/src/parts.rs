//! Queries that read all code of a file, to make an index of it.

use crate::code_part::{CodeGroup, CodeParts, Segment};
use crate::file::SymbolFile;

impl SymbolFile {
    /// Divides the code into groups, which threads can read independently.
    #[must_use]
    pub fn code_groups(&self) -> Vec<CodeGroup> {
        self.cell.with_dependent(|_, tables| tables.code_groups())
    }

    /// Returns the parts of a group. At each address, they say what [`Self::frames_at`] says.
    #[must_use]
    pub fn code_parts(&self, group: &CodeGroup) -> CodeParts {
        self.cell.with_dependent(|_, tables| tables.code_parts(group))
    }

    /// Returns whether some debug information was not read, because the file refers to its data
    /// more often than genuine files do. The rest then depends on the order of the queries.
    #[must_use]
    pub fn exceeds_limits(&self) -> bool {
        self.cell.with_dependent(|_, tables| tables.exceeds_limits())
    }

    /// Returns the segments that are loaded, in the order of the file.
    #[must_use]
    pub fn loaded_segments(&self) -> Vec<Segment> {
        self.cell.with_dependent(|_, tables| tables.loaded_segments())
    }
}
