//! The symbols of one ELF file.

use crate::source::{FileBytes, Sources};
use crate::tables::Tables;
use crate::{DebugSearch, Error, Frame, Function, InlinedCopy, LineMatch, LineRow, UnwindRow};
use backtrail_pt::{BuildId, Svma};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

self_cell::self_cell!(
    /// The tables, and the bytes they point into.
    pub(crate) struct Cell {
        owner: Sources,
        #[not_covariant]
        dependent: Tables,
    }
);

/// The symbols of one ELF file: symbol tables, linkage stubs, and DWARF in it or in a separate file.
///
/// Opening reads headers and symbol tables. DWARF is read when it is first needed, one compilation
/// unit at a time; after that each lookup is a few binary searches.
pub struct SymbolFile {
    pub(crate) cell: Cell,
}

impl SymbolFile {
    /// Opens the ELF file in `bytes`, and the debug files that it names where `search` allows.
    ///
    /// # Errors
    /// When the file is not a linked x86-64 ELF file or its headers are damaged. A debug file that
    /// is missing, damaged or does not belong is not an error: [`Self::debug_gap`] says so.
    pub fn from_bytes(bytes: FileBytes, search: &DebugSearch) -> Result<Self, Error> {
        let sources = Sources::gather(bytes, search)?;
        Ok(Self {
            cell: Cell::try_new(sources, |sources| Tables::new(sources))?,
        })
    }

    /// Opens the file at `path`; debug files are also looked for beside it.
    ///
    /// # Errors
    /// As [`Self::from_bytes`], and when the file cannot be read.
    pub fn open(path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        let search = search.clone().beside_file(path);
        Self::from_bytes(crate::source::map_file(path, search.max_file_size)?, &search)
    }

    /// The `NT_GNU_BUILD_ID` note.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        self.cell.with_dependent(|_, tables| tables.build_id.clone())
    }

    /// Why there are no lines, or not all of them: `None` when nothing is known to be missing.
    #[must_use]
    pub fn debug_gap(&self) -> Option<String> {
        self.cell.with_dependent(|_, tables| tables.debug_gap())
    }

    /// The physical function whose code holds `at`: from DWARF, else from the symbol tables.
    #[must_use]
    pub fn function_at(&self, at: Svma) -> Option<Function> {
        self.cell.with_dependent(|_, tables| tables.function_at(at.0))
    }

    /// The calls that `at` is in, innermost inlined copy first, the physical function last.
    /// Empty where no function is known.
    #[must_use]
    pub fn frames_at(&self, at: Svma) -> Vec<Frame> {
        self.cell.with_dependent(|_, tables| tables.frames_at(at.0))
    }

    /// The line-table row that covers `at`.
    #[must_use]
    pub fn line_at(&self, at: Svma) -> Option<LineRow> {
        self.cell.with_dependent(|_, tables| tables.line_at(at.0))
    }

    /// The rows that cover some of `range`, in address order.
    #[must_use]
    pub fn lines_in(&self, range: Range<Svma>) -> Vec<LineRow> {
        self.cell
            .with_dependent(|_, tables| tables.lines_in(range.start.0..range.end.0))
    }

    /// The physical functions called `name`: the demangled or linkage name, either without parameters
    /// and generic arguments, or the last components of its path, as GDB matches (`f` and `ns::f`
    /// match `ns::f(int)`). In address order.
    #[must_use]
    pub fn functions_named(&self, name: &str) -> Vec<Function> {
        self.cell.with_dependent(|_, tables| tables.functions_named(name))
    }

    /// The physical functions whose demangled name matches `pattern`, in address order.
    #[must_use]
    pub fn functions_matching(&self, pattern: &regex::Regex) -> Vec<Function> {
        self.cell
            .with_dependent(|_, tables| tables.functions_matching(pattern))
    }

    /// The inlined copies of the functions called `name`, by the rule of [`Self::functions_named`].
    /// Reads the DWARF of every unit once.
    #[must_use]
    pub fn inlined_copies_named(&self, name: &str) -> Vec<InlinedCopy> {
        self.cell
            .with_dependent(|_, tables| tables.inlined_copies_named(name))
    }

    /// Where the code of `line` begins, once in each function and inlined copy that has some of it.
    ///
    /// `file` is matched against the last components of each path (`a.c` and `src/a.c` match
    /// `/x/src/a.c`). A line without code stands for the nearest line after it that has some.
    #[must_use]
    pub fn addresses_of_line(&self, file: &str, line: u32) -> Vec<LineMatch> {
        self.cell
            .with_dependent(|_, tables| tables.addresses_of_line(file, line))
    }

    /// Where a breakpoint on `function` belongs: its entry, past the prologue, as GDB places it.
    #[must_use]
    pub fn after_prologue(&self, function: &Function) -> Svma {
        self.after_prologue_at(function.entry)
    }

    pub(crate) fn after_prologue_at(&self, entry: Svma) -> Svma {
        self.cell
            .with_dependent(|_, tables| Svma(tables.after_prologue(entry.0)))
    }

    /// All contiguous parts of `function`, the one at its entry first.
    #[must_use]
    pub fn parts_of(&self, function: &Function) -> Vec<Range<Svma>> {
        self.parts_at(function.entry)
    }

    pub(crate) fn parts_at(&self, entry: Svma) -> Vec<Range<Svma>> {
        self.cell.with_dependent(|_, tables| tables.parts_at(entry.0))
    }

    /// How the caller's registers are found at `at`, by `.eh_frame`, else by `.debug_frame`, of the file or of
    /// its debug file. For a caller's address, ask for the byte before it, which belongs to the call.
    #[must_use]
    pub fn unwind_row(&self, at: Svma) -> Option<Arc<UnwindRow>> {
        self.cell.with_dependent(|_, tables| tables.unwind_row(at.0))
    }

    /// The paths of all source files that the line tables name, sorted. Reads the header of every
    /// unit's line program.
    #[must_use]
    pub fn source_files(&self) -> Vec<Arc<str>> {
        self.cell.with_dependent(|_, tables| tables.source_files())
    }
}
