//! Symbolizes actual addresses in the modules of one process.

use crate::model::ToAvma;
use crate::{DataSymbol, Frame, Function, InlinedCopy, LineMatch, LineRow, SymbolFile, UnwindRow};
use backtrail_pt::Avma;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// A mapping of a module in a process.
#[derive(Clone)]
pub struct Module {
    /// The addresses that it covers.
    pub range: Range<Avma>,
    /// Actual minus stated addresses, mod 2^64.
    pub bias: u64,
    /// The module's name, usually its path in the process.
    pub name: Arc<str>,
    /// The symbols, if the file is available.
    pub file: Option<Arc<SymbolFile>>,
}

/// The modules of one process at one time.
///
/// A symbolizer is built once, and then shared: every query takes `&self`, and may come from any
/// thread. All tables are in the [`SymbolFile`]s, which processes can share.
#[derive(Clone, Default)]
pub struct Symbolizer {
    /// Disjoint mappings, sorted by start.
    modules: Vec<Module>,
}

impl Symbolizer {
    /// Creates a symbolizer without modules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps one module. To map many, use [`Self::add_modules`].
    pub fn add_module(
        &mut self,
        range: Range<Avma>,
        bias: u64,
        name: impl Into<Arc<str>>,
        file: Option<Arc<SymbolFile>>,
    ) {
        self.add_modules([Module {
            range,
            bias,
            name: name.into(),
            file,
        }]);
    }

    /// Maps modules in order. Each one unmaps the parts of earlier ones that it overlaps, as `mmap`
    /// does. Empty ranges are ignored.
    ///
    /// All modules together take O(n log n): a process may have tens of thousands of mappings.
    pub fn add_modules(&mut self, modules: impl IntoIterator<Item = Module>) {
        let known = self.modules.drain(..);
        let mut by_start: BTreeMap<Avma, Module> = known.map(|module| (module.range.start, module)).collect();
        for module in modules.into_iter().filter(|module| !module.range.is_empty()) {
            unmap(&mut by_start, &module.range);
            by_start.insert(module.range.start, module);
        }
        self.modules = by_start.into_values().collect();
    }

    /// Returns all modules, sorted by address.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Returns the module mapped at `at`.
    #[must_use]
    pub fn module_at(&self, at: Avma) -> Option<&Module> {
        self.modules.get(self.module_index_at(at)?)
    }

    /// Returns the data symbol at an address. Data without contents in the file (`.bss`) may be
    /// beyond the mapping of the module.
    #[must_use]
    pub fn data_at(&self, at: Avma) -> Option<DataSymbol<Avma>> {
        let next = self.modules.partition_point(|module| module.range.start <= at);
        let module = self.modules.get(next.checked_sub(1)?)?;
        let found = module.file.as_ref()?.data_at(at.to_svma(module.bias))?;
        Some(DataSymbol {
            name: found.name,
            start: found.start.to_avma(module.bias),
            size: found.size,
        })
    }

    fn module_index_at(&self, at: Avma) -> Option<usize> {
        let next = self.modules.partition_point(|module| module.range.start <= at);
        let index = next.checked_sub(1)?;
        let module = self.modules.get(index)?;
        module.range.contains(&at).then_some(index)
    }

    /// Returns the function at an address; see [`SymbolFile::function_at`].
    #[must_use]
    pub fn function_at(&self, at: Avma) -> Option<Function<Avma>> {
        let (file, bias) = self.file_at(at)?;
        Some(file.function_at(at.to_svma(bias))?.to_avma(bias))
    }

    /// Returns the frames at an address; see [`SymbolFile::frames_at`].
    #[must_use]
    pub fn frames_at(&self, at: Avma) -> Vec<Frame<Avma>> {
        let Some((file, bias)) = self.file_at(at) else {
            return Vec::new();
        };
        to_avma(file.frames_at(at.to_svma(bias)), bias)
    }

    /// Returns the line at an address; see [`SymbolFile::line_at`].
    #[must_use]
    pub fn line_at(&self, at: Avma) -> Option<LineRow<Avma>> {
        let (file, bias) = self.file_at(at)?;
        Some(file.line_at(at.to_svma(bias))?.to_avma(bias))
    }

    /// Returns the lines in `range`, which is in one module; see [`SymbolFile::lines_in`].
    #[must_use]
    pub fn lines_in(&self, range: Range<Avma>) -> Vec<LineRow<Avma>> {
        let Some((file, bias)) = self.file_at(range.start) else {
            return Vec::new();
        };
        to_avma(
            file.lines_in(range.start.to_svma(bias)..range.end.to_svma(bias)),
            bias,
        )
    }

    /// Returns the end of a prologue; see [`SymbolFile::after_prologue`].
    #[must_use]
    pub fn after_prologue(&self, function: &Function<Avma>) -> Avma {
        let Some((file, bias)) = self.file_at(function.entry) else {
            return function.entry;
        };
        file.after_prologue_at(function.entry.to_svma(bias)).to_avma(bias)
    }

    /// Returns the parts of a function; see [`SymbolFile::parts_of`].
    #[must_use]
    pub fn parts_of(&self, function: &Function<Avma>) -> Vec<Range<Avma>> {
        let Some((file, bias)) = self.file_at(function.entry) else {
            return vec![function.range.clone()];
        };
        let parts = file.parts_at(function.entry.to_svma(bias)).into_iter();
        parts
            .map(|part| part.start.to_avma(bias)..part.end.to_avma(bias))
            .collect()
    }

    /// Returns the functions of all modules with this name, in address order of the modules; see
    /// [`SymbolFile::functions_named`].
    #[must_use]
    pub fn functions_named(&self, name: &str) -> Vec<Function<Avma>> {
        self.in_every_file(|file| file.functions_named(name), |function| function.entry)
    }

    /// Returns the inlined copies in all modules; see [`SymbolFile::inlined_copies_named`].
    #[must_use]
    pub fn inlined_copies_named(&self, name: &str) -> Vec<InlinedCopy<Avma>> {
        self.in_every_file(|file| file.inlined_copies_named(name), |copy| copy.entry)
    }

    /// Returns the matching inlined copies in all modules; see
    /// [`SymbolFile::inlined_copies_matching`].
    #[must_use]
    pub fn inlined_copies_matching(&self, pattern: &regex::Regex) -> Vec<InlinedCopy<Avma>> {
        self.in_every_file(|file| file.inlined_copies_matching(pattern), |copy| copy.entry)
    }

    /// Returns the matching functions in all modules; see [`SymbolFile::functions_matching`].
    #[must_use]
    pub fn functions_matching(&self, pattern: &regex::Regex) -> Vec<Function<Avma>> {
        self.in_every_file(|file| file.functions_matching(pattern), |function| function.entry)
    }

    /// Returns the addresses of a line in all modules; see [`SymbolFile::addresses_of_line`]. If
    /// some module has code on exactly this line, the nearest lines in other modules are dropped.
    #[must_use]
    pub fn addresses_of_line(&self, file: &str, line: u32) -> Vec<LineMatch<Avma>> {
        let mut found = self.in_every_file(
            |symbols| symbols.addresses_of_line(file, line),
            |found| found.address,
        );
        if let Some(nearest) = found.iter().map(|found| found.line).min() {
            found.retain(|found| found.line == nearest);
        }
        found
    }

    /// Returns the unwind rules at an address; see [`SymbolFile::unwind_row`].
    #[must_use]
    pub fn unwind_row(&self, at: Avma) -> Option<Arc<UnwindRow>> {
        let (file, bias) = self.file_at(at)?;
        file.unwind_row(at.to_svma(bias))
    }

    fn file_at(&self, at: Avma) -> Option<(&SymbolFile, u64)> {
        let module = self.module_at(at)?;
        Some((module.file.as_deref()?, module.bias))
    }

    /// Queries the file of each module, and keeps the results whose address is mapped there.
    fn in_every_file<T: ToAvma>(
        &self,
        ask: impl Fn(&SymbolFile) -> Vec<T>,
        address: impl Fn(&T::Output) -> Avma,
    ) -> Vec<T::Output> {
        // A file that is mapped in several parts is queried once, for all parts.
        let mut of_file: HashMap<(*const SymbolFile, u64), usize> = HashMap::new();
        let mut asked: Vec<(&SymbolFile, u64)> = Vec::new();
        let mut group_of: Vec<Option<usize>> = Vec::with_capacity(self.modules.len());
        for module in &self.modules {
            group_of.push(module.file.as_ref().map(|file| {
                *of_file
                    .entry((Arc::as_ptr(file), module.bias))
                    .or_insert_with(|| {
                        asked.push((file, module.bias));
                        asked.len() - 1
                    })
            }));
        }
        let mut answers = Vec::new();
        for (group, (file, bias)) in asked.into_iter().enumerate() {
            let is_mapped = |at: Avma| {
                let module = self.module_index_at(at);
                module.is_some_and(|index| group_of.get(index) == Some(&Some(group)))
            };
            let here = to_avma(ask(file), bias).into_iter();
            answers.extend(here.filter(|answer| is_mapped(address(answer))));
        }
        answers
    }
}

/// Unmaps `range` from the modules that it overlaps. Their remaining parts stay.
fn unmap(by_start: &mut BTreeMap<Avma, Module>, range: &Range<Avma>) {
    while let Some((&start, _)) = by_start
        .range(..range.end)
        .next_back()
        .filter(|(_, module)| module.range.end > range.start)
    {
        let Some(old) = by_start.remove(&start) else {
            return;
        };
        let before = start..old.range.end.min(range.start);
        let after = start.max(range.end)..old.range.end;
        for kept in [before, after].into_iter().filter(|kept| !kept.is_empty()) {
            let part = Module {
                range: kept.clone(),
                ..old.clone()
            };
            by_start.insert(kept.start, part);
        }
    }
}

fn to_avma<T: ToAvma>(answers: Vec<T>, bias: u64) -> Vec<T::Output> {
    answers.into_iter().map(|answer| answer.to_avma(bias)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn module(start: u64, end: u64, bias: u64) -> Module {
        Module {
            range: Avma(start)..Avma(end),
            bias,
            name: "module".into(),
            file: None,
        }
    }

    /// Finds the mapping of each address by trying all of them, the last one first.
    #[test]
    fn mappings_agree_with_linear_search() {
        let mut seed = 7u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let mapped: Vec<Module> = (0..10)
                .map(|number| {
                    let start = next(60);
                    module(start, start + next(30), number)
                })
                .collect();
            let mut symbols = Symbolizer::new();
            symbols.add_modules(mapped.clone());
            for at in (0..100).map(Avma) {
                let expected = mapped.iter().rev().find(|module| module.range.contains(&at));
                let found = symbols.module_at(at);
                assert_eq!(
                    found.map(|module| module.bias),
                    expected.map(|module| module.bias)
                );
            }
            assert!(
                symbols
                    .modules()
                    .windows(2)
                    .all(|pair| pair[0].range.end <= pair[1].range.start)
            );
        }
    }

    /// Adding mappings one by one used to take 65 000 * 65 000 / 2 steps.
    #[test]
    fn many_mappings_are_added_quickly() {
        let began = Instant::now();
        let mut symbols = Symbolizer::new();
        symbols.add_modules(
            (0..65_000)
                .rev()
                .map(|number| module(number * 8192, number * 8192 + 4096, number)),
        );
        assert_eq!(symbols.modules().len(), 65_000);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
