//! The meaning of a code address for stepping: its source line and its inlined functions.
//!
//! The answers depend on the address and on the modules that were mapped. They are computed at the
//! first request, and cached.

use crate::module_history::{ModuleEpoch, ModuleHistory};
use crate::own_code::CodeOrigin;
use crate::skip::SkipRule;
use backtrail_decoder::{Image, Version};
use backtrail_pt::Avma;
use backtrail_symbolizer::{Frame, Function, FunctionKind};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// The inlined copies around an address, outermost first; [`ChainId::default`] is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainId(u32);

/// A source line, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LineId(u32);

/// An instruction that belongs to a statement: where line stepping can stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Statement {
    /// The inlined copies that it is in.
    pub chain: ChainId,
    /// Its line.
    pub line: LineId,
}

/// A code address in a period in which the same modules were mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodePoint {
    /// The address.
    pub pc: Avma,
    /// The number of the period.
    pub epoch: u32,
}

/// The properties of a code address on which stepping by lines depends.
pub trait Lines {
    /// The statement that the instruction at a point belongs to. `None`: the line table does not
    /// name a line here, or not as a statement (`is_stmt`), or this is a function's prologue.
    fn statement(&self, at: CodePoint) -> Option<Statement>;

    /// The inlined copies around a point.
    fn chain(&self, at: CodePoint) -> ChainId;

    /// The code of the function that a point is in, all its parts; empty: no symbol covers it.
    fn function(&self, at: CodePoint) -> Vec<Range<Avma>>;

    /// The mapping of a module that a point is in, if any.
    fn module(&self, at: CodePoint) -> Option<Range<Avma>>;

    /// The number of periods.
    fn epochs(&self) -> u32 {
        1
    }

    /// The number of the period with a version of the code.
    fn epoch_at(&self, _version: Version) -> u32 {
        0
    }

    /// The copies around the innermost copy of `chain`; `None` when it is none.
    fn around(&self, chain: ChainId) -> Option<ChainId>;

    /// Returns whether the innermost function at a point is library code.
    fn is_library(&self, _at: CodePoint) -> bool {
        false
    }

    /// Returns whether one of the frames at a point is library code: the innermost copy of `chain`,
    /// or the function itself.
    fn is_library_frame(&self, at: CodePoint, _chain: ChainId) -> bool {
        self.is_library(at)
    }

    /// Returns whether a rule names a function at a point, or one that it is inlined into.
    fn is_skipped(&self, _at: CodePoint, _rules: &[SkipRule]) -> bool {
        false
    }

    /// Returns whether `inner` is `outer`, or a chain of functions inlined into it.
    fn is_within(&self, inner: ChainId, outer: ChainId) -> bool {
        let mut at = inner;
        // A chain's number is above that of the chain around it.
        while at > outer {
            match self.around(at) {
                Some(around) => at = around,
                None => return false,
            }
        }
        at == outer
    }
}

/// [`Lines`] of a process, out of its symbols.
pub struct CodeMap {
    modules: Arc<ModuleHistory>,
    image: Arc<Image>,
    cache: RefCell<CodeCache>,
}

/// The properties of a point.
#[derive(Clone, Copy, Default)]
struct CodeSite {
    statement: Option<Statement>,
    chain: ChainId,
    is_library: bool,
}

#[derive(Default)]
struct CodeCache {
    sites: FxHashMap<CodePoint, CodeSite>,
    /// The rules of the last query, and whether one of them names the code at a point.
    skipped: (Vec<SkipRule>, FxHashMap<CodePoint, bool>),
    /// Chain *n* is (chain around it, entry of its innermost copy); chain 0 is none.
    chains: Vec<(ChainId, Avma)>,
    chain_ids: FxHashMap<(ChainId, Avma), ChainId>,
    lines: FxHashMap<(Arc<str>, u32), LineId>,
    /// By function entry: where its prologue ends.
    prologues: FxHashMap<CodePoint, Avma>,
}

impl CodeMap {
    /// Returns the map of the process with these modules, and this code, which determines the ends
    /// of prologues.
    #[must_use]
    pub fn new(modules: Arc<ModuleHistory>, image: Arc<Image>) -> Self {
        Self {
            modules,
            image,
            cache: RefCell::default(),
        }
    }

    fn epoch(&self, at: CodePoint) -> Option<&ModuleEpoch> {
        self.modules.epochs().get(at.epoch as usize)
    }

    /// Returns the address of a breakpoint on `function` in a period, where a step into it stops
    /// too.
    ///
    /// This is the end of the prologue if the prologue is straight-line code, which every call
    /// executes. Otherwise it is the entry.
    #[must_use]
    pub fn after_prologue(&self, epoch: &ModuleEpoch, function: &Function<Avma>) -> Avma {
        let point = CodePoint {
            pc: function.entry,
            epoch: epoch.number,
        };
        if let Some(&known) = self.cache.borrow().prologues.get(&point) {
            return known;
        }
        let end = epoch.symbols.after_prologue(function);
        let end = match is_straight(function.entry..end, &self.image, epoch.from) {
            true => end,
            false => function.entry,
        };
        self.cache.borrow_mut().prologues.insert(point, end);
        end
    }

    fn site(&self, at: CodePoint) -> CodeSite {
        if let Some(&known) = self.cache.borrow().sites.get(&at) {
            return known;
        }
        let site = match self.epoch(at) {
            Some(epoch) => self.look_up(at.pc, epoch),
            None => CodeSite::default(),
        };
        self.cache.borrow_mut().sites.insert(at, site);
        site
    }

    fn look_up(&self, pc: Avma, epoch: &ModuleEpoch) -> CodeSite {
        let frames = epoch.symbols.frames_at(pc);
        let is_library = is_library(frames.first(), pc, epoch);
        let row = epoch
            .symbols
            .line_at(pc)
            .filter(|row| row.is_stmt && row.line != 0 && !row.file.is_empty());
        let row = row.filter(|_| !self.is_passed_over(pc, epoch));
        let mut cache = self.cache.borrow_mut();
        let mut chain = ChainId::default();
        for frame in frames.iter().rev().filter(|frame| frame.inlined) {
            chain = cache.chain_in(chain, frame.entry);
        }
        let statement = row.map(|row| Statement {
            chain,
            line: cache.line(row.file, row.line),
        });
        CodeSite {
            statement,
            chain,
            is_library,
        }
    }

    fn look_up_rules(&self, at: CodePoint, rules: &[SkipRule]) -> bool {
        let Some(epoch) = self.epoch(at) else {
            return false;
        };
        let frames = epoch.symbols.frames_at(at.pc);
        frames.iter().any(|frame| {
            let file = frame.location.as_ref().map(|location| &*location.file);
            rules.iter().any(|rule| rule.matches(&frame.function, file))
        })
    }

    /// In a function's prologue, or in a linkage stub.
    fn is_passed_over(&self, pc: Avma, epoch: &ModuleEpoch) -> bool {
        let Some(function) = epoch.symbols.function_at(pc) else {
            return false;
        };
        let starts_here = function.range.contains(&function.entry);
        let in_prologue = || (function.entry..self.after_prologue(epoch, &function)).contains(&pc);
        function.kind == FunctionKind::Plt || (starts_here && in_prologue())
    }
}

impl CodeCache {
    fn chain_in(&mut self, outer: ChainId, entry: Avma) -> ChainId {
        if let Some(&known) = self.chain_ids.get(&(outer, entry)) {
            return known;
        }
        self.chains.push((outer, entry));
        let id = ChainId(self.chains.len() as u32);
        self.chain_ids.insert((outer, entry), id);
        id
    }

    fn line(&mut self, file: Arc<str>, line: u32) -> LineId {
        let next = LineId(self.lines.len() as u32);
        *self.lines.entry((file, line)).or_insert(next)
    }
}

impl Lines for CodeMap {
    fn statement(&self, at: CodePoint) -> Option<Statement> {
        self.site(at).statement
    }

    fn chain(&self, at: CodePoint) -> ChainId {
        self.site(at).chain
    }

    fn function(&self, at: CodePoint) -> Vec<Range<Avma>> {
        let parts = || {
            let symbols = &self.epoch(at)?.symbols;
            Some(symbols.parts_of(&symbols.function_at(at.pc)?))
        };
        parts().unwrap_or_default()
    }

    fn module(&self, at: CodePoint) -> Option<Range<Avma>> {
        let module = self.epoch(at)?.symbols.module_at(at.pc)?;
        Some(module.range.clone())
    }

    fn epochs(&self) -> u32 {
        self.modules.epochs().len() as u32
    }

    fn epoch_at(&self, version: Version) -> u32 {
        self.modules.epoch_at(version) as u32
    }

    fn around(&self, chain: ChainId) -> Option<ChainId> {
        let cache = self.cache.borrow();
        cache
            .chains
            .get((chain.0 as usize).checked_sub(1)?)
            .map(|&(around, _)| around)
    }

    fn is_library(&self, at: CodePoint) -> bool {
        self.site(at).is_library
    }

    fn is_library_frame(&self, at: CodePoint, chain: ChainId) -> bool {
        let Some(epoch) = self.epoch(at) else {
            return false;
        };
        let frames = epoch.symbols.frames_at(at.pc);
        let mut inner = self.chain(at);
        let mut number = 0;
        while inner != chain {
            match self.around(inner) {
                Some(around) => inner = around,
                None => break,
            }
            number += 1;
        }
        is_library(frames.get(number).or(frames.last()), at.pc, epoch)
    }

    fn is_skipped(&self, at: CodePoint, rules: &[SkipRule]) -> bool {
        if rules.is_empty() {
            return false;
        }
        let known = {
            let skipped = &mut self.cache.borrow_mut().skipped;
            if skipped.0 != rules {
                *skipped = (rules.to_vec(), FxHashMap::default());
            }
            skipped.1.get(&at).copied()
        };
        known.unwrap_or_else(|| {
            let is_skipped = self.look_up_rules(at, rules);
            self.cache.borrow_mut().skipped.1.insert(at, is_skipped);
            is_skipped
        })
    }
}

/// Returns whether a frame at an address is library code.
fn is_library(frame: Option<&Frame<Avma>>, pc: Avma, epoch: &ModuleEpoch) -> bool {
    let module = epoch.symbols.module_at(pc).map(|module| &*module.name);
    CodeOrigin::of(frame, module).library().is_some()
}

/// Returns whether code always runs from the start of `range` to its end, in a version of the code.
fn is_straight(range: Range<Avma>, image: &Image, version: Version) -> bool {
    const LONGEST_PROLOGUE: u64 = 512;
    let len = range.end - range.start;
    if range.end <= range.start || len > LONGEST_PROLOGUE {
        return range.end == range.start;
    }
    let mut code = vec![0; len as usize];
    if image.read_version(version, range.start, &mut code) < code.len() {
        return false;
    }
    let mut decoder = Decoder::with_ip(64, &code, range.start.0, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let goes_on = matches!(
            instruction.flow_control(),
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall
        );
        if instruction.is_invalid() || !goes_on {
            return false;
        }
    }
    true
}

#[cfg(test)]
impl ChainId {
    pub(crate) fn of_number(number: u32) -> Self {
        Self(number)
    }
}

#[cfg(test)]
impl LineId {
    pub(crate) fn of_number(number: u32) -> Self {
        Self(number)
    }
}
