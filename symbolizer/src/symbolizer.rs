//! The modules of one process, asked by actual address.

use crate::model::ToAvma;
use crate::{Frame, Function, InlinedCopy, LineMatch, LineRow, SymbolFile, UnwindRow};
use backtrail_pt::Avma;
use std::ops::Range;
use std::sync::Arc;

/// One mapping of a module in a process.
#[derive(Clone)]
pub struct Module {
    /// The addresses it covers.
    pub range: Range<Avma>,
    /// Actual − stated address, mod 2^64.
    pub bias: u64,
    /// What to call it, usually its path in the process.
    pub name: Arc<str>,
    /// Its symbols, where the file is at hand.
    pub file: Option<Arc<SymbolFile>>,
}

/// The modules of one process at one time.
///
/// Built once, then shared: every question takes `&self` and may come from any thread. All prepared
/// tables live in the [`SymbolFile`]s, which processes can share.
#[derive(Clone, Default)]
pub struct Symbolizer {
    /// Disjoint, ordered by start.
    modules: Vec<Module>,
}

impl Symbolizer {
    /// Without modules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps a module at `range`. What it overlaps of earlier ones is unmapped, as `mmap` does.
    /// An empty range is ignored.
    pub fn add_module(
        &mut self,
        range: Range<Avma>,
        bias: u64,
        name: impl Into<Arc<str>>,
        file: Option<Arc<SymbolFile>>,
    ) {
        if range.is_empty() {
            return;
        }
        let mut modules = Vec::with_capacity(self.modules.len() + 2);
        for old in self.modules.drain(..) {
            let before = old.range.start..old.range.end.min(range.start);
            let after = old.range.start.max(range.end)..old.range.end;
            for kept in [before, after].into_iter().filter(|kept| !kept.is_empty()) {
                modules.push(Module {
                    range: kept,
                    ..old.clone()
                });
            }
        }
        modules.push(Module {
            range,
            bias,
            name: name.into(),
            file,
        });
        modules.sort_by_key(|module| module.range.start);
        self.modules = modules;
    }

    /// All modules, ordered by address.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The module mapped at `at`.
    #[must_use]
    pub fn module_at(&self, at: Avma) -> Option<&Module> {
        let next = self.modules.partition_point(|module| module.range.start <= at);
        self.modules
            .get(next.checked_sub(1)?)
            .filter(|module| module.range.contains(&at))
    }

    /// See [`SymbolFile::function_at`].
    #[must_use]
    pub fn function_at(&self, at: Avma) -> Option<Function<Avma>> {
        let (file, bias) = self.file_at(at)?;
        Some(file.function_at(at.to_svma(bias))?.to_avma(bias))
    }

    /// See [`SymbolFile::frames_at`].
    #[must_use]
    pub fn frames_at(&self, at: Avma) -> Vec<Frame<Avma>> {
        let Some((file, bias)) = self.file_at(at) else {
            return Vec::new();
        };
        to_avma(file.frames_at(at.to_svma(bias)), bias)
    }

    /// See [`SymbolFile::line_at`].
    #[must_use]
    pub fn line_at(&self, at: Avma) -> Option<LineRow<Avma>> {
        let (file, bias) = self.file_at(at)?;
        Some(file.line_at(at.to_svma(bias))?.to_avma(bias))
    }

    /// See [`SymbolFile::lines_in`]; `range` lies in one module.
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

    /// See [`SymbolFile::after_prologue`].
    #[must_use]
    pub fn after_prologue(&self, function: &Function<Avma>) -> Avma {
        let Some((file, bias)) = self.file_at(function.entry) else {
            return function.entry;
        };
        file.after_prologue_at(function.entry.to_svma(bias)).to_avma(bias)
    }

    /// See [`SymbolFile::parts_of`].
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

    /// See [`SymbolFile::functions_named`]; of every module, in address order of the modules.
    #[must_use]
    pub fn functions_named(&self, name: &str) -> Vec<Function<Avma>> {
        self.in_every_file(|file| file.functions_named(name), |function| function.entry)
    }

    /// See [`SymbolFile::inlined_copies_named`]; of every module.
    #[must_use]
    pub fn inlined_copies_named(&self, name: &str) -> Vec<InlinedCopy<Avma>> {
        self.in_every_file(|file| file.inlined_copies_named(name), |copy| copy.entry)
    }

    /// See [`SymbolFile::functions_matching`]; of every module.
    #[must_use]
    pub fn functions_matching(&self, pattern: &regex::Regex) -> Vec<Function<Avma>> {
        self.in_every_file(|file| file.functions_matching(pattern), |function| function.entry)
    }

    /// See [`SymbolFile::addresses_of_line`]; of every module. When some module has code on the very
    /// line, the nearest lines of the others are left out.
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

    /// See [`SymbolFile::unwind_row`].
    #[must_use]
    pub fn unwind_row(&self, at: Avma) -> Option<Arc<UnwindRow>> {
        let (file, bias) = self.file_at(at)?;
        file.unwind_row(at.to_svma(bias))
    }

    fn file_at(&self, at: Avma) -> Option<(&SymbolFile, u64)> {
        let module = self.module_at(at)?;
        Some((module.file.as_deref()?, module.bias))
    }

    /// Asks the file of each module, and keeps the answers whose address is mapped there.
    fn in_every_file<T: ToAvma>(
        &self,
        ask: impl Fn(&SymbolFile) -> Vec<T>,
        address: impl Fn(&T::Output) -> Avma,
    ) -> Vec<T::Output> {
        let mut answers = Vec::new();
        for (number, module) in self.modules.iter().enumerate() {
            let Some(file) = &module.file else { continue };
            // A file mapped in several parts is asked once.
            let is_same = |other: &Module| {
                other.bias == module.bias && other.file.as_ref().is_some_and(|it| Arc::ptr_eq(it, file))
            };
            let (before, from_here) = self.modules.split_at(number);
            if before.iter().any(is_same) {
                continue;
            }
            let parts: Vec<_> = from_here.iter().filter(|part| is_same(part)).collect();
            let is_mapped = |at: Avma| parts.iter().any(|part| part.range.contains(&at));
            let here = to_avma(ask(file), module.bias).into_iter();
            answers.extend(here.filter(|answer| is_mapped(address(answer))));
        }
        answers
    }
}

fn to_avma<T: ToAvma>(answers: Vec<T>, bias: u64) -> Vec<T::Output> {
    answers.into_iter().map(|answer| answer.to_avma(bias)).collect()
}
