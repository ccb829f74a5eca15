//! Combines the symbol tables, DWARF and Go's own table of one file.

use crate::code::CodeRanges;
use crate::constants::Constants;
use crate::dwarf::{DebugInfo, FunctionAt, PrologueEnd, ResolvedName, Statement};
use crate::entry_id::EntryId;
use crate::go_table::GoTable;
use crate::names;
use crate::objects::ObjectTable;
use crate::sources::Sources;
use crate::symbols::SymbolTable;
use crate::types::Type;
use crate::unwind::{UnwindRow, UnwindTables};
use crate::{
    CodeSymbol, Error, Frame, Function, FunctionKind, InlinedCopy, LineMatch, LineRow, SampleFrame,
    SourceLocation, SymbolDetail,
};
use backtrail_pt::{BuildId, Svma};
use object::elf::{PT_LOAD, PT_TLS};
use object::read::elf::ProgramHeader;
use object::{LittleEndian, Object};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

mod go;
mod go_parts;
mod parts;

/// The deepest inlining that is reported. No compiler reaches it.
const MAX_INLINED: usize = 256;

/// The part of [`Tables::debug_gap`] about files with Go's table.
const GO_TABLE_ONLY: &str = "functions and lines are from Go's own table, and variables are missing";

/// All tables of one file.
pub(crate) struct Tables<'d> {
    pub build_id: Option<BuildId>,
    sources: &'d Sources,
    code: CodeRanges,
    symbols: SymbolTable<'d>,
    debug: OnceLock<Option<DebugInfo<'d>>>,
    go: OnceLock<Option<GoTable<'d>>>,
    unwind: OnceLock<UnwindTables<'d>>,
    objects: OnceLock<ObjectTable<'d>>,
    constants: OnceLock<Constants<'d>>,
    types: Mutex<FxHashMap<EntryId, Option<Arc<Type>>>>,
}

impl<'d> Tables<'d> {
    pub fn new(sources: &'d Sources) -> Result<Self, Error> {
        let elf = sources.module.elf()?;
        let debug = sources.debug.as_ref().or(sources.mini_debug.as_ref());
        let debug = debug.map(|source| source.elf()).transpose()?;
        let code = CodeRanges::of(&elf);
        Ok(Self {
            build_id: elf.build_id().ok().flatten().and_then(BuildId::new),
            sources,
            symbols: SymbolTable::new(&elf, debug.as_ref(), &code),
            code,
            debug: OnceLock::new(),
            go: OnceLock::new(),
            unwind: OnceLock::new(),
            objects: OnceLock::new(),
            constants: OnceLock::new(),
            types: Mutex::default(),
        })
    }

    pub(crate) fn debug(&self) -> Option<&DebugInfo<'d>> {
        let open = || {
            let holder = self.sources.dwarf_holder();
            let mut info = DebugInfo::new(holder, &holder.elf().ok()?, self.code.clone())?;
            info.add_split(&self.sources.split);
            info.complete(holder.section(&holder.elf().ok()?, ".debug_line"));
            if let Some(supplementary) = &self.sources.supplementary {
                info.set_supplementary(supplementary, &supplementary.elf().ok()?);
            }
            Some(info)
        };
        self.debug.get_or_init(open).as_ref()
    }

    /// Returns the address of a byte of the file, by the segments that are loaded.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let elf = self.sources.module.elf().ok()?;
        let mut headers = elf.elf_program_headers().iter();
        headers.find_map(|header| {
            let (start, size) = header.file_range(LittleEndian);
            let is_here = header.p_type(LittleEndian) == PT_LOAD && offset.checked_sub(start)? < size;
            is_here.then(|| header.p_vaddr(LittleEndian).wrapping_add(offset - start))
        })
    }

    /// Returns where the byte at an address is in the file, by the segments that are loaded.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        let elf = self.sources.module.elf().ok()?;
        let mut headers = elf.elf_program_headers().iter();
        headers.find_map(|header| {
            let (start, size) = header.file_range(LittleEndian);
            let inside = address.checked_sub(header.p_vaddr(LittleEndian))?;
            let is_here = header.p_type(LittleEndian) == PT_LOAD && inside < size;
            is_here.then(|| start.wrapping_add(inside))
        })
    }

    pub fn debug_gap(&self) -> Option<String> {
        let missing = self.sources.missing.as_deref();
        let Some(debug) = self.debug() else {
            let gap = missing.unwrap_or("the file has no DWARF");
            return Some(match self.go_table() {
                Some(_) => format!("{gap}; {GO_TABLE_ONLY}"),
                None => gap.to_owned(),
            });
        };
        if let Some(missing) = missing {
            return Some(missing.to_owned());
        }
        let split = debug.split_units();
        (split > 0).then(|| format!("the .dwo files of {split} units were not found"))
    }

    pub fn detail(&self) -> SymbolDetail {
        if let Some(debug) = self.debug() {
            match debug.split_units() {
                0 => SymbolDetail::DebugInformation,
                _ => SymbolDetail::SplitDebugInformation,
            }
        } else if self.symbols.code_symbols().next().is_some()
            || self.go_table().is_some_and(|table| !table.is_empty())
        {
            SymbolDetail::SymbolTable
        } else {
            SymbolDetail::None
        }
    }

    pub fn code_symbols(&self) -> Vec<CodeSymbol> {
        let mut symbols: Vec<_> = self.symbols.code_symbols().collect();
        let Some(table) = self.go_table().filter(|_| !self.symbols.complete) else {
            return symbols;
        };
        let all = table.numbers().filter_map(|number| table.entry_and_name(number));
        let unnamed = all.filter(|(start, _)| self.symbols.starting_at(*start).is_none());
        symbols.extend(unnamed.map(|(start, name)| CodeSymbol {
            linkage_name: name.linkage,
            address: Svma(start),
            is_local: false,
        }));
        symbols.sort_by_key(|symbol| symbol.address);
        symbols
    }

    pub fn function_at(&self, at: u64) -> Option<Function> {
        if let Some(here) = self.debug().and_then(|debug| debug.function_at(at)) {
            return Some(self.described(&here));
        }
        if let Some((table, function)) = self.go_function_at(at) {
            return Some(self.go_function(table, &function));
        }
        self.symbols.function(self.symbols.at(at)?)
    }

    /// Builds a function from DWARF or Go's table, with the name of its symbol. C has no linkage
    /// names in DWARF, and static functions of C++ have theirs only in the symbol table.
    fn described(&self, here: &FunctionAt) -> Function {
        let symbol = self.symbols.starting_at(here.start);
        let kind = symbol
            .and_then(|number| self.symbols.get(number))
            .map(|symbol| symbol.kind);
        let mut name = &here.name.name;
        let mut linkage_name = name.linkage.clone();
        if let Some(named) = symbol
            .and_then(|number| self.symbols.name(number))
            .filter(|_| !here.name.has_linkage)
        {
            if names::is_mangled(named.linkage.as_bytes()) || name.readable.is_empty() {
                name = named;
            }
            // `f.constprop.0` is a variant of `f`. Any other name is an alias.
            let variant = named
                .linkage
                .strip_prefix(&*name.linkage)
                .is_some_and(|rest| rest.starts_with('.'));
            linkage_name = if variant {
                named.linkage.clone()
            } else {
                name.linkage.clone()
            };
        }
        Function {
            name: name.readable.clone(),
            linkage_name,
            entry: Svma(here.start),
            range: Svma(here.part.start)..Svma(here.part.end),
            declared: here.name.declared.clone(),
            kind: kind
                .filter(|kind| *kind == FunctionKind::IfuncResolver)
                .unwrap_or(FunctionKind::Function),
        }
    }

    pub fn frames_at(&self, at: u64) -> Vec<Frame> {
        let Some(function) = self.function_at(at) else {
            return Vec::new();
        };
        let mut location = self
            .line_at(at)
            .filter(|row| !row.file.is_empty())
            .map(|row| SourceLocation {
                file: row.file,
                line: row.line,
                column: row.column,
            });
        let mut frames = Vec::new();
        for copy in self
            .debug()
            .map(|debug| debug.inlined_at(at, MAX_INLINED))
            .unwrap_or_default()
        {
            frames.push(Frame {
                function: copy.name.name.readable.clone(),
                linkage_name: copy.name.name.linkage.clone(),
                location: location.take(),
                declared: copy.name.declared.clone(),
                range: Svma(copy.part.start)..Svma(copy.part.end),
                entry: Svma(copy.start),
                inlined: true,
            });
            location = Some(copy.call).filter(|call| !call.file.is_empty());
        }
        for (mut frame, call) in self.go_inlined_at(at) {
            frame.location = std::mem::replace(&mut location, call);
            frames.push(frame);
        }
        frames.push(Frame {
            function: function.name,
            linkage_name: function.linkage_name,
            location,
            declared: function.declared,
            range: function.range,
            entry: function.entry,
            inlined: false,
        });
        frames
    }

    /// Returns the frames of an address, innermost first, by DWARF alone.
    pub fn sample_frames_at(&self, at: u64) -> Vec<SampleFrame> {
        let Some(debug) = self.debug() else {
            return Vec::new();
        };
        let (Some(function), Some(row)) = (debug.function_at(at), debug.sample_row_at(at)) else {
            return Vec::new();
        };
        let mut place = (row.line, row.discriminator);
        let mut frames = Vec::new();
        let mut push = |name: &ResolvedName, (line, discriminator): (u32, u32)| {
            frames.push(SampleFrame {
                linkage_name: name.name.linkage.clone(),
                line,
                declared_line: name.declared.as_ref().map_or(0, |(_, line)| *line),
                discriminator,
            });
        };
        for copy in debug.inlined_at(at, MAX_INLINED) {
            push(copy.name, place);
            place = (copy.call.line, copy.call_discriminator);
        }
        push(function.name, place);
        frames
    }

    pub fn line_at(&self, at: u64) -> Option<LineRow> {
        let row = self.debug().and_then(|debug| debug.line_at(at));
        row.or_else(|| self.go_line_at(at))
    }

    pub fn lines_in(&self, range: Range<u64>) -> Vec<LineRow> {
        let mut rows = self.go_lines_in(&range);
        let debug = self.debug();
        rows.extend(debug.map(|debug| debug.lines_in(range)).unwrap_or_default());
        rows.sort_by_key(|row| (row.range.start, row.range.end));
        rows
    }

    /// Searches the symbol tables, which list all functions of an unstripped file. Otherwise
    /// searches Go's table, and the DWARF, all of which must be read for that.
    pub fn functions_named(&self, name: &str) -> Vec<Function> {
        let mut starts = self.symbols.named(name);
        if starts.is_empty() && !self.symbols.complete {
            starts = self
                .debug()
                .map(|debug| debug.starts_named(name))
                .unwrap_or_default();
        }
        if let Some(table) = self.go_table().filter(|_| !self.symbols.complete) {
            starts.extend(table.starts_named(name));
            starts.sort_unstable();
            starts.dedup();
        }
        self.functions_starting_at(starts.into_iter())
    }

    pub fn functions_matching(&self, pattern: &regex::Regex) -> Vec<Function> {
        let mut starts: Vec<u64> = self.symbols.starts().collect();
        if !self.symbols.complete {
            starts.extend(self.go_starts());
            starts.sort_unstable();
            starts.dedup();
        }
        let mut functions = self.functions_starting_at(starts.into_iter());
        functions.retain(|function| pattern.is_match(&function.name));
        functions
    }

    /// Returns the functions with these entries. A part split off a function is not one of them.
    fn functions_starting_at(&self, starts: impl Iterator<Item = u64>) -> Vec<Function> {
        let mut functions: Vec<_> = starts.filter_map(|start| self.function_at(start)).collect();
        functions.retain(|function| function.range.contains(&function.entry));
        functions.dedup_by_key(|function| function.entry);
        functions
    }

    pub fn inlined_copies_named(&self, name: &str) -> Vec<InlinedCopy> {
        let query = names::Query::new(name);
        let found = self.debug().map(|debug| debug.inlined_named(name));
        let go = self.go_inlined_copies(|name| query.matches(name));
        in_address_order(inlined_copies(found.unwrap_or_default()), go)
    }

    pub fn inlined_copies_matching(&self, pattern: &regex::Regex) -> Vec<InlinedCopy> {
        let found = self.debug().map(|debug| debug.inlined_matching(pattern));
        let go = self.go_inlined_copies(|name| pattern.is_match(&name.readable));
        in_address_order(inlined_copies(found.unwrap_or_default()), go)
    }

    pub fn addresses_of_line(&self, file: &str, line: u32) -> Vec<LineMatch> {
        let debug = self.debug();
        let mut statements = debug.map_or_else(Vec::new, |debug| debug.statements_of_line(file, line));
        statements.extend(self.go_statements_of_line(file, line));
        let nearest = statements.iter().map(|statement| statement.line).min();
        statements.retain(|statement| Some(statement.line) == nearest);
        statements.sort_by_key(|statement| statement.address);
        let mut seen = BTreeSet::new();
        let mut matches = Vec::new();
        // In address order, the first statement in each function or inlined copy is used.
        for statement in statements {
            let function = self.function_at(statement.address);
            let copies = debug.map(|debug| debug.inlined_at(statement.address, 1));
            let copy = copies.as_ref().and_then(|copies| copies.first());
            let copy = copy.map(|copy| copy.start);
            let copy = copy.or_else(|| self.go_innermost_at(statement.address));
            if seen.insert((function.as_ref().map(|function| function.entry), copy)) {
                let Statement { address, file, line } = statement;
                matches.push(LineMatch {
                    address: Svma(address),
                    file,
                    line,
                    function,
                });
            }
        }
        matches
    }

    /// Follows GDB's rule: the mark in the line table, if any. Otherwise, it is the entry of
    /// optimized code with arguments in place, or else the second row.
    pub fn after_prologue(&self, entry: u64) -> u64 {
        let Some(debug) = self.debug() else { return entry };
        let Some(here) = debug.function_at(entry) else {
            return entry;
        };
        match debug.after_prologue(entry, here.part.end) {
            PrologueEnd::Marked(address) => address,
            PrologueEnd::SecondRow(address) if !here.optimized => address,
            PrologueEnd::SecondRow(_) | PrologueEnd::Unknown => entry,
        }
    }

    pub fn parts_at(&self, entry: u64) -> Vec<Range<Svma>> {
        let described = self.debug().and_then(|debug| debug.function_at(entry));
        let of_go = || Some(self.go_function_at(entry)?.1).filter(|function| function.start == entry);
        let parts = match described {
            Some(here) => here.parts.to_vec(),
            None => match of_go() {
                Some(function) => vec![function.range()],
                None => self.symbols.parts(entry),
            },
        };
        parts
            .into_iter()
            .map(|part| Svma(part.start)..Svma(part.end))
            .collect()
    }

    pub fn unwind_row(&self, at: u64) -> Option<Arc<UnwindRow>> {
        let tables = self
            .unwind
            .get_or_init(|| UnwindTables::new(self.sources, &self.code));
        tables.row(at)
    }

    /// Reads a type once, and caches it.
    pub fn type_at(&self, id: EntryId) -> Option<Arc<Type>> {
        // The most types that are cached. Further ones are read each time.
        const KEPT: usize = 1 << 16;
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = types.get(&id) {
            return known.clone();
        }
        let found = self.debug().and_then(|debug| debug.type_at(id)).map(Arc::new);
        if types.len() < KEPT {
            types.insert(id, found.clone());
        }
        found
    }

    pub fn contains_code(&self, at: u64) -> bool {
        self.code.contains(at)
    }

    /// Follows the x86-64 ABI for thread-local storage, variant II. The executable's block ends at
    /// the thread pointer, and its size is rounded up to its alignment.
    pub fn thread_local_block(&self) -> Option<u64> {
        let elf = self.sources.module.elf().ok()?;
        let headers = elf.elf_program_headers().iter();
        let mut blocks = headers.filter(|header| header.p_type(LittleEndian) == PT_TLS);
        let block = blocks.next()?;
        let align = block.p_align(LittleEndian).max(1);
        if !align.is_power_of_two() || block.p_vaddr(LittleEndian) % align != 0 {
            return None;
        }
        block.p_memsz(LittleEndian).checked_next_multiple_of(align)
    }

    pub fn objects(&self) -> &ObjectTable<'d> {
        let open = || {
            let module = self.sources.module.elf().ok();
            let debug = self.sources.debug.as_ref().and_then(|source| source.elf().ok());
            let files: Vec<_> = [&module, &debug].into_iter().flatten().collect();
            ObjectTable::new(&files)
        };
        self.objects.get_or_init(open)
    }

    pub fn constants(&self) -> &Constants<'d> {
        let open = || {
            self.sources
                .module
                .elf()
                .map(|elf| Constants::of(&elf))
                .unwrap_or_default()
        };
        self.constants.get_or_init(open)
    }

    pub fn compile_directories(&self, path: &str) -> BTreeSet<String> {
        self.debug()
            .map_or_else(BTreeSet::new, |debug| debug.compile_directories(path))
    }

    pub fn source_md5(&self, path: &str) -> Option<[u8; 16]> {
        self.debug()?.source_md5(path)
    }

    pub fn source_files(&self) -> Vec<Arc<str>> {
        let mut files: BTreeSet<Arc<str>> = match self.debug() {
            Some(debug) => debug.source_files(),
            None => BTreeSet::new(),
        };
        if files.is_empty() {
            files.extend(self.go_table().map(GoTable::source_files).unwrap_or_default());
        }
        files.into_iter().collect()
    }
}

/// Joins copies that DWARF and Go's table describe.
fn in_address_order(mut copies: Vec<InlinedCopy>, others: Vec<InlinedCopy>) -> Vec<InlinedCopy> {
    copies.extend(others);
    copies.sort_by_key(|copy| copy.entry);
    copies
}

fn inlined_copies(found: Vec<crate::dwarf::InlinedCode<'_>>) -> Vec<InlinedCopy> {
    let copy = |code: crate::dwarf::InlinedCode<'_>| {
        Some(InlinedCopy {
            name: code.name.name.readable.clone(),
            entry: Svma(code.ranges.iter().map(|range| range.start).min()?),
            begin: Svma(code.start),
            ranges: code
                .ranges
                .iter()
                .map(|range| Svma(range.start)..Svma(range.end))
                .collect(),
            declared: code.name.declared.clone(),
        })
    };
    found.into_iter().filter_map(copy).collect()
}
