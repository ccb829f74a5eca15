//! The symbols of one ELF file.

use crate::source::FileBytes;
use crate::sources::Sources;
use crate::tables::Tables;
use crate::{
    CodeSymbol, DebugSearch, Error, Frame, Function, InlinedCopy, LineMatch, LineRow, SampleFrame,
    SymbolDetail, UnwindRow,
};
use backtrail_pt::{BuildId, FileOffset, Svma};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

self_cell::self_cell!(
    /// The tables, and the bytes that they borrow.
    pub(crate) struct OwnedTables {
        owner: Sources,
        #[not_covariant]
        dependent: Tables,
    }
);

/// The symbols of one ELF file: symbol tables, PLT stubs, and DWARF in it or in a separate file.
/// Functions and lines of Go programs without DWARF come from the table of Go's runtime.
///
/// Opening it reads headers and symbol tables. DWARF is read on demand, one compilation unit at a
/// time. After that, each lookup is a few binary searches.
pub struct SymbolFile {
    pub(crate) cell: OwnedTables,
}

impl SymbolFile {
    /// Opens the ELF file in `bytes`, and the debug files that it names, where `search` allows.
    ///
    /// # Errors
    /// Fails if the file is not a linked x86-64 ELF file, or if its headers are damaged. A debug
    /// file that is missing, damaged or of another build is not an error: [`Self::debug_gap`]
    /// reports it.
    pub fn from_bytes(bytes: FileBytes, search: &DebugSearch) -> Result<Self, Error> {
        let sources = Sources::gather(bytes, search)?;
        Ok(Self {
            cell: OwnedTables::try_new(sources, |sources| Tables::new(sources))?,
        })
    }

    /// Opens the file at `path`. Debug files are also searched beside it.
    ///
    /// # Errors
    /// Fails as [`Self::from_bytes`] does, and if the file cannot be read.
    pub fn open(path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        let search = search.clone().beside_file(path);
        Self::from_bytes(crate::source::map_file(path, search.max_file_size)?, &search)
    }

    /// Returns the `NT_GNU_BUILD_ID` note.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        self.cell.with_dependent(|_, tables| tables.build_id.clone())
    }

    /// Returns the address of a byte of the file, by its `PT_LOAD` segments. `None`: the byte is
    /// not loaded.
    #[must_use]
    pub fn address_of(&self, offset: FileOffset) -> Option<Svma> {
        self.cell
            .with_dependent(|_, tables| tables.address_of(offset.0))
            .map(Svma)
    }

    /// Returns where the byte at an address is in the file, by its `PT_LOAD` segments. `None`: the
    /// address is not loaded from the file.
    #[must_use]
    pub fn offset_of(&self, address: Svma) -> Option<FileOffset> {
        self.cell
            .with_dependent(|_, tables| tables.offset_of(address.0))
            .map(FileOffset)
    }

    /// Returns why debug information is missing, or `None` if none is known to be missing.
    #[must_use]
    pub fn debug_gap(&self) -> Option<String> {
        self.cell.with_dependent(|_, tables| tables.debug_gap())
    }

    /// Returns how much the file and its debug file say about its code.
    #[must_use]
    pub fn detail(&self) -> SymbolDetail {
        self.cell.with_dependent(|_, tables| tables.detail())
    }

    /// Returns the contents of a section that is not loaded, of the file or of its debug file. It
    /// is empty if there is none, or if it is compressed.
    #[must_use]
    pub fn section(&self, name: &str) -> &[u8] {
        let sources = self.cell.borrow_owner();
        let files = std::iter::once(&sources.module).chain(&sources.debug);
        let mut contents = files.filter_map(|file| Some(file.section(&file.elf().ok()?, name)));
        contents.find(|contents| !contents.is_empty()).unwrap_or_default()
    }

    /// Returns the symbols of code, in the order of their addresses. Stubs of the PLT are left out.
    /// If the file has no `.symtab`, functions of Go's table are included.
    #[must_use]
    pub fn code_symbols(&self) -> Vec<CodeSymbol> {
        self.cell.with_dependent(|_, tables| tables.code_symbols())
    }

    /// Returns the physical function that contains `at`, from DWARF, or else from Go's table or
    /// the symbol tables.
    #[must_use]
    pub fn function_at(&self, at: Svma) -> Option<Function> {
        self.cell.with_dependent(|_, tables| tables.function_at(at.0))
    }

    /// Returns the calls active at `at`: the innermost inlined copy first, the physical function
    /// last. The result is empty if no function is known.
    #[must_use]
    pub fn frames_at(&self, at: Svma) -> Vec<Frame> {
        self.cell.with_dependent(|_, tables| tables.frames_at(at.0))
    }

    /// Returns the calls active at `at` as sample profiles for compilers name them: the innermost
    /// inlined copy first. The result is empty if DWARF describes no function or line there.
    #[must_use]
    pub fn sample_frames_at(&self, at: Svma) -> Vec<SampleFrame> {
        self.cell
            .with_dependent(|_, tables| tables.sample_frames_at(at.0))
    }

    /// Returns the row that covers `at`, from the line table of DWARF or from Go's table.
    #[must_use]
    pub fn line_at(&self, at: Svma) -> Option<LineRow> {
        self.cell.with_dependent(|_, tables| tables.line_at(at.0))
    }

    /// Returns the rows that overlap `range`, in address order.
    #[must_use]
    pub fn lines_in(&self, range: Range<Svma>) -> Vec<LineRow> {
        self.cell
            .with_dependent(|_, tables| tables.lines_in(range.start.0..range.end.0))
    }

    /// Returns the physical functions called `name`, in address order.
    ///
    /// Matching follows GDB: `name` is the demangled or linkage name, or the last components of its
    /// path. Parameters and generic arguments may be omitted (`f` and `ns::f` match `ns::f(int)`).
    #[must_use]
    pub fn functions_named(&self, name: &str) -> Vec<Function> {
        self.cell.with_dependent(|_, tables| tables.functions_named(name))
    }

    /// Returns the physical functions whose demangled name matches `pattern`, in address order.
    #[must_use]
    pub fn functions_matching(&self, pattern: &regex::Regex) -> Vec<Function> {
        self.cell
            .with_dependent(|_, tables| tables.functions_matching(pattern))
    }

    /// Returns the inlined copies of the functions called `name`, by the rule of
    /// [`Self::functions_named`]. The first call reads the DWARF of every unit.
    #[must_use]
    pub fn inlined_copies_named(&self, name: &str) -> Vec<InlinedCopy> {
        self.cell
            .with_dependent(|_, tables| tables.inlined_copies_named(name))
    }

    /// Returns the inlined copies of the functions whose demangled name matches `pattern`.
    ///
    /// The first call reads the DWARF of every unit.
    #[must_use]
    pub fn inlined_copies_matching(&self, pattern: &regex::Regex) -> Vec<InlinedCopy> {
        self.cell
            .with_dependent(|_, tables| tables.inlined_copies_matching(pattern))
    }

    /// Returns the names of inlined functions that begin with `prefix`, at most `limit`. The first
    /// call reads the DWARF of every unit.
    #[must_use]
    pub fn inlined_names(&self, prefix: &str, limit: usize) -> BTreeSet<Arc<str>> {
        self.cell
            .with_dependent(|_, tables| tables.inlined_names(prefix, limit))
    }

    /// Returns where the code of `line` begins, once for each function and inlined copy with such
    /// code.
    ///
    /// `file` is matched against the last components of each path (`a.c` and `src/a.c` match
    /// `/x/src/a.c`). If the line has no code, the nearest line after it with code is used.
    #[must_use]
    pub fn addresses_of_line(&self, file: &str, line: u32) -> Vec<LineMatch> {
        self.cell
            .with_dependent(|_, tables| tables.addresses_of_line(file, line))
    }

    /// Returns the address for a breakpoint on `function`: after its prologue, as in GDB.
    #[must_use]
    pub fn after_prologue(&self, function: &Function) -> Svma {
        self.after_prologue_at(function.entry)
    }

    pub(crate) fn after_prologue_at(&self, entry: Svma) -> Svma {
        self.cell
            .with_dependent(|_, tables| Svma(tables.after_prologue(entry.0)))
    }

    /// Returns all contiguous parts of `function`; the one with its entry comes first.
    #[must_use]
    pub fn parts_of(&self, function: &Function) -> Vec<Range<Svma>> {
        self.parts_at(function.entry)
    }

    pub(crate) fn parts_at(&self, entry: Svma) -> Vec<Range<Svma>> {
        self.cell.with_dependent(|_, tables| tables.parts_at(entry.0))
    }

    /// Returns the rules that recover the caller's registers at `at`. They come from `.eh_frame`,
    /// or else from `.debug_frame` of the file or of its debug file. For a return address, pass the
    /// address of the byte before it, which belongs to the call.
    #[must_use]
    pub fn unwind_row(&self, at: Svma) -> Option<Arc<UnwindRow>> {
        self.cell.with_dependent(|_, tables| tables.unwind_row(at.0))
    }

    /// Returns the paths of all source files in the line tables, sorted. Reads the header of every
    /// unit's line program.
    #[must_use]
    pub fn source_files(&self) -> Vec<Arc<str>> {
        self.cell.with_dependent(|_, tables| tables.source_files())
    }

    /// Returns the directories in which the units with a source file were compiled. The path is one
    /// of [`Self::source_files`].
    #[must_use]
    pub fn compile_directories(&self, path: &str) -> BTreeSet<String> {
        self.cell
            .with_dependent(|_, tables| tables.compile_directories(path))
    }

    /// Returns the MD5 of a source file's text, if the line tables of DWARF 5 have it. The path is
    /// one of [`Self::source_files`].
    #[must_use]
    pub fn source_md5(&self, path: &str) -> Option<[u8; 16]> {
        self.cell.with_dependent(|_, tables| tables.source_md5(path))
    }
}
