//! Functions in the ELF symbol tables (System V ABI, chapter "Symbol Table").

use crate::code::CodeRanges;
use crate::demangle::Name;
use crate::names;
use crate::range_map::RangeMap;
use crate::source::Elf;
use crate::symbol::Symbol;
use crate::{CodeSymbol, Function, FunctionKind, plt};
use backtrail_pt::Svma;
use object::read::elf::Sym;
use object::{LittleEndian, elf};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::OnceLock;

/// All named code of a file.
pub(crate) struct SymbolTable<'d> {
    /// Symbols sorted by start. Of those with the same start, the one to show comes first.
    symbols: Vec<Symbol<'d>>,
    /// The demangled names, parallel to `symbols`, computed on demand.
    names: Vec<OnceLock<Name>>,
    map: RangeMap,
    /// Maps the index of a symbol `f.cold` to that of `f`.
    hot_parts: FxHashMap<u32, u32>,
    /// Whether there is a `.symtab`. Then every function with DWARF has a symbol.
    pub complete: bool,
}

impl<'d> SymbolTable<'d> {
    /// Reads the tables of the module and of its debug file, and the PLT stubs of the module.
    pub fn new(module: &Elf<'d>, debug: Option<&Elf<'d>>, code: &CodeRanges) -> Self {
        let mut symbols = Vec::new();
        let complete = [Some(module), debug]
            .into_iter()
            .flatten()
            .any(|elf| !elf.elf_symbol_table().is_empty());
        for elf in [Some(module), debug].into_iter().flatten() {
            for table in [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()] {
                collect(table, code, elf.data().len(), &mut symbols);
            }
        }
        symbols.sort_by(|a, b| {
            a.range
                .start
                .cmp(&b.range.start)
                .then_with(|| rank(a).cmp(&rank(b)))
        });
        symbols.dedup_by(|b, a| a.range.start == b.range.start && a.linkage == b.linkage);
        let stubs = plt::stubs(module, &symbols);
        symbols.extend(stubs.into_iter().map(|stub| Symbol {
            range: stub.range,
            linkage: stub.target,
            kind: FunctionKind::Plt,
            global: false,
            number: u32::MAX,
            unsized_: false,
        }));
        symbols.sort_by(|a, b| {
            a.range
                .start
                .cmp(&b.range.start)
                .then_with(|| rank(a).cmp(&rank(b)))
        });
        extend_unsized(&mut symbols, code);
        symbols.retain(|symbol| !symbol.range.is_empty());
        // Only the first of several aliases is found by address.
        let mut shown: Vec<(Range<u64>, u32)> = Vec::new();
        for (number, symbol) in symbols.iter().enumerate() {
            if shown
                .last()
                .is_none_or(|(range, _)| range.start != symbol.range.start)
            {
                shown.push((symbol.range.clone(), number as u32));
            }
        }
        let names = symbols.iter().map(|_| OnceLock::new()).collect();
        let hot_parts = hot_parts(&symbols);
        Self {
            symbols,
            names,
            map: RangeMap::new(shown),
            hot_parts,
            complete,
        }
    }

    /// Returns the symbol whose code contains `at`.
    pub fn at(&self, at: u64) -> Option<u32> {
        self.map.get(at)
    }

    /// Returns the symbols in `wanted`, in address order, each with the addresses that it names.
    pub fn pieces_in(&self, wanted: Range<u64>) -> impl Iterator<Item = (Range<u64>, u32)> {
        self.map.pieces_in(wanted)
    }

    /// Returns the symbol to show for the address `start`, at which it must start.
    pub fn starting_at(&self, start: u64) -> Option<u32> {
        let first = self.symbols.partition_point(|symbol| symbol.range.start < start);
        self.symbols
            .get(first)
            .filter(|symbol| symbol.range.start == start)
            .map(|_| first as u32)
    }

    pub fn get(&self, number: u32) -> Option<&Symbol<'d>> {
        self.symbols.get(number as usize)
    }

    /// Returns both names of a symbol. A stub's name ends with `@plt`.
    pub fn name(&self, number: u32) -> Option<&Name> {
        let symbol = self.get(number)?;
        Some(self.names.get(number as usize)?.get_or_init(|| {
            let name = Name::of(symbol.linkage);
            if symbol.kind != FunctionKind::Plt {
                return name;
            }
            Name {
                readable: format!("{}@plt", name.readable).into(),
                linkage: format!("{}@plt", name.linkage).into(),
            }
        }))
    }

    /// Returns all symbols that are not stubs, in the order of their addresses. Those of the same
    /// address are in the order of the tables.
    pub fn code_symbols(&self) -> impl Iterator<Item = CodeSymbol> {
        let is_stub = |symbol: &&Symbol| symbol.kind == FunctionKind::Plt;
        let mut symbols: Vec<_> = self.symbols.iter().filter(|symbol| !is_stub(symbol)).collect();
        symbols.sort_by_key(|symbol| (symbol.range.start, symbol.number));
        symbols.into_iter().map(|symbol| CodeSymbol {
            linkage_name: String::from_utf8_lossy(symbol.linkage).into(),
            address: Svma(symbol.range.start),
            is_local: !symbol.global,
        })
    }

    /// Converts a symbol to a function without a source line.
    pub fn function(&self, number: u32) -> Option<Function> {
        let symbol = self.get(number)?;
        let whole = *self.hot_parts.get(&number).unwrap_or(&number);
        let (name, entry) = (self.name(whole)?, self.get(whole)?.range.start);
        Some(Function {
            name: name.readable.clone(),
            linkage_name: name.linkage.clone(),
            entry: Svma(entry),
            range: Svma(symbol.range.start)..Svma(symbol.range.end),
            declared: None,
            kind: symbol.kind,
        })
    }

    /// Returns the starts of the functions called `name`, in address order.
    pub fn named(&self, name: &str) -> Vec<u64> {
        let query = names::Query::new(name);
        let needle = memchr::memmem::Finder::new(query.needle());
        let mut starts: Vec<_> = (0..)
            .zip(&self.symbols)
            // Compare linkage names first, because demangling is expensive.
            .filter(|(_, symbol)| needle.find(symbol.linkage).is_some())
            .filter(|(number, _)| self.name(*number).is_some_and(|found| query.matches(found)))
            .map(|(_, symbol)| symbol.range.start)
            .collect();
        starts.dedup();
        starts
    }

    /// Returns the parts of the function that starts at `start`: its own, then those split off.
    pub fn parts(&self, start: u64) -> Vec<Range<u64>> {
        let Some(whole) = self.starting_at(start) else {
            return Vec::new();
        };
        let mut cold: Vec<u32> = self
            .hot_parts
            .iter()
            .filter(|(_, hot)| **hot == whole)
            .map(|(cold, _)| *cold)
            .collect();
        cold.sort_unstable();
        let numbers = std::iter::once(whole).chain(cold);
        numbers
            .filter_map(|number| Some(self.get(number)?.range.clone()))
            .collect()
    }

    /// Returns the starts of all functions, in address order.
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        let mut last = None;
        let starts = self.symbols.iter().map(|symbol| symbol.range.start);
        starts.filter(move |start| last.replace(*start) != Some(*start))
    }
}

/// Maps cold parts to their functions. GCC names the cold part of `f` `f.cold`; it belongs to `f`
/// if that symbol is unique.
fn hot_parts(symbols: &[Symbol]) -> FxHashMap<u32, u32> {
    let cold = (0..).zip(symbols).filter_map(|(number, symbol)| {
        let hot: &[u8] = symbol
            .linkage
            .get(..memchr::memmem::find(symbol.linkage, b".cold")?)?;
        Some((hot, number))
    });
    let mut wanted: FxHashMap<&[u8], Vec<u32>> = FxHashMap::default();
    for (hot, number) in cold {
        wanted.entry(hot).or_default().push(number);
    }
    let mut found: FxHashMap<&[u8], Vec<u32>> = FxHashMap::default();
    for (number, symbol) in (0..)
        .zip(symbols)
        .filter(|(_, symbol)| wanted.contains_key(symbol.linkage))
    {
        found.entry(symbol.linkage).or_default().push(number);
    }
    let unique = found.into_iter().filter(|(_, numbers)| numbers.len() == 1);
    unique
        .flat_map(|(name, hot)| {
            wanted
                .get(name)
                .into_iter()
                .flatten()
                .copied()
                .zip(hot.into_iter().cycle())
        })
        .collect()
}

/// Returns a sort key for aliases, the one to show first. Preferred are typed, sized and global
/// symbols, fewer leading underscores, longer code and shorter names, in this order. The name makes
/// the order stable.
fn rank<'a>(symbol: &Symbol<'a>) -> impl Ord + use<'a> {
    let underscores = symbol.linkage.iter().take_while(|byte| **byte == b'_').count();
    // The leading underscore of a mangled name is ignored.
    let hidden = if names::is_mangled(symbol.linkage) {
        0
    } else {
        underscores
    };
    (
        symbol.kind == FunctionKind::Label,
        symbol.unsized_,
        !symbol.global,
        hidden,
        Reverse(symbol.range.end.saturating_sub(symbol.range.start)),
        symbol.linkage.len(),
        symbol.linkage,
    )
}

/// Collects the defined symbols in code.
fn collect<'d>(
    table: &object::read::elf::SymbolTable<'d, elf::FileHeader64<LittleEndian>>,
    code: &CodeRanges,
    file_size: usize,
    symbols: &mut Vec<Symbol<'d>>,
) {
    // Names may overlap in the string table, but few names of a genuine one do.
    let mut name_bytes = file_size.saturating_mul(4);
    for symbol in table.iter() {
        let kind = match symbol.st_type() {
            elf::STT_FUNC => FunctionKind::Function,
            elf::STT_GNU_IFUNC => FunctionKind::IfuncResolver,
            elf::STT_NOTYPE => FunctionKind::Label,
            _ => continue,
        };
        let start = symbol.st_value(LittleEndian);
        let Some(section) = code.around(start).filter(|_| !symbol.is_undefined(LittleEndian)) else {
            continue;
        };
        let Ok(linkage) = table.symbol_name(LittleEndian, symbol) else {
            continue;
        };
        let Some(left) = name_bytes.checked_sub(linkage.len()) else {
            return;
        };
        name_bytes = left;
        // Libraries append a version to the names in `.symtab`, which is removed here.
        let linkage = linkage.split(|byte| *byte == b'@').next().unwrap_or(linkage);
        // Assemblers keep `.L` labels only by mistake. They would split functions into pieces.
        if linkage.is_empty() || linkage.starts_with(b".L") {
            continue;
        }
        let size = symbol.st_size(LittleEndian);
        symbols.push(Symbol {
            range: start..start.saturating_add(size).min(section.end),
            linkage,
            kind,
            global: !symbol.is_local(),
            number: u32::try_from(symbols.len()).unwrap_or(u32::MAX),
            unsized_: size == 0,
        });
    }
}

/// Extends symbols without a size to the next symbol or the end of the section.
fn extend_unsized(symbols: &mut [Symbol], code: &CodeRanges) {
    let mut next_start = u64::MAX;
    let mut after_next = u64::MAX;
    for symbol in symbols.iter_mut().rev() {
        if symbol.range.start != next_start {
            after_next = std::mem::replace(&mut next_start, symbol.range.start);
        }
        if symbol.unsized_ {
            let section_end = code
                .around(symbol.range.start)
                .map_or(symbol.range.start, |range| range.end);
            symbol.range.end = after_next.min(section_end);
        }
    }
}
