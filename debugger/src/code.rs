//! The meaning of a code address for stepping: its source line and its inlined functions.
//!
//! The answers depend on the address alone. They are computed at the first request, and cached.

use backtrail_decoder::Image;
use backtrail_pt::Avma;
use backtrail_symbolizer::{Function, FunctionKind, Symbolizer};
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

/// The properties of a code address on which stepping by lines depends.
pub trait Lines {
    /// The statement that the instruction at `pc` belongs to. `None`: the line table does not name
    /// a line here, or not as a statement (`is_stmt`), or this is a function's prologue.
    fn statement(&self, pc: Avma) -> Option<Statement>;

    /// The inlined copies around `pc`.
    fn chain(&self, pc: Avma) -> ChainId;

    /// The code of the function that `pc` is in, all its parts; empty: no symbol covers it.
    fn function(&self, pc: Avma) -> Vec<Range<Avma>>;

    /// The mapping of a module that `pc` is in, if any.
    fn module(&self, pc: Avma) -> Option<Range<Avma>>;

    /// The copies around the innermost copy of `chain`; `None` when it is none.
    fn around(&self, chain: ChainId) -> Option<ChainId>;

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
    symbols: Arc<Symbolizer>,
    image: Arc<Image>,
    cache: RefCell<CodeCache>,
}

#[derive(Default)]
struct CodeCache {
    /// By address: the statement, and the chain.
    sites: FxHashMap<u64, (Option<Statement>, ChainId)>,
    /// Chain *n* is (chain around it, entry of its innermost copy); chain 0 is none.
    chains: Vec<(ChainId, Avma)>,
    chain_ids: FxHashMap<(ChainId, Avma), ChainId>,
    lines: FxHashMap<(Arc<str>, u32), LineId>,
    /// By function entry: where its prologue ends.
    prologues: FxHashMap<u64, Avma>,
}

impl CodeMap {
    /// Returns the map of the process with these symbols, and this code, which determines the ends
    /// of prologues.
    #[must_use]
    pub fn new(symbols: Arc<Symbolizer>, image: Arc<Image>) -> Self {
        Self {
            symbols,
            image,
            cache: RefCell::default(),
        }
    }

    /// Returns the address of a breakpoint on `function`, where a step into it stops too.
    ///
    /// This is the end of the prologue if the prologue is straight-line code, which every call
    /// executes. Otherwise it is the entry.
    #[must_use]
    pub fn after_prologue(&self, function: &Function<Avma>) -> Avma {
        if let Some(&known) = self.cache.borrow().prologues.get(&function.entry.0) {
            return known;
        }
        let end = self.symbols.after_prologue(function);
        let end = if is_straight(function.entry..end, &self.image) {
            end
        } else {
            function.entry
        };
        self.cache.borrow_mut().prologues.insert(function.entry.0, end);
        end
    }

    fn site(&self, pc: Avma) -> (Option<Statement>, ChainId) {
        if let Some(&known) = self.cache.borrow().sites.get(&pc.0) {
            return known;
        }
        let site = self.look_up(pc);
        self.cache.borrow_mut().sites.insert(pc.0, site);
        site
    }

    fn look_up(&self, pc: Avma) -> (Option<Statement>, ChainId) {
        let frames = self.symbols.frames_at(pc);
        let row = self
            .symbols
            .line_at(pc)
            .filter(|row| row.is_stmt && row.line != 0 && !row.file.is_empty());
        let row = row.filter(|_| !self.is_passed_over(pc));
        let mut cache = self.cache.borrow_mut();
        let mut chain = ChainId::default();
        for frame in frames.iter().rev().filter(|frame| frame.inlined) {
            chain = cache.chain_in(chain, frame.entry);
        }
        let statement = row.map(|row| Statement {
            chain,
            line: cache.line(row.file, row.line),
        });
        (statement, chain)
    }

    /// In a function's prologue, or in a linkage stub.
    fn is_passed_over(&self, pc: Avma) -> bool {
        let Some(function) = self.symbols.function_at(pc) else {
            return false;
        };
        let starts_here = function.range.contains(&function.entry);
        let in_prologue = || (function.entry..self.after_prologue(&function)).contains(&pc);
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
    fn statement(&self, pc: Avma) -> Option<Statement> {
        self.site(pc).0
    }

    fn chain(&self, pc: Avma) -> ChainId {
        self.site(pc).1
    }

    fn function(&self, pc: Avma) -> Vec<Range<Avma>> {
        let function = self.symbols.function_at(pc);
        function.map_or_else(Vec::new, |function| self.symbols.parts_of(&function))
    }

    fn module(&self, pc: Avma) -> Option<Range<Avma>> {
        self.symbols.module_at(pc).map(|module| module.range.clone())
    }

    fn around(&self, chain: ChainId) -> Option<ChainId> {
        let cache = self.cache.borrow();
        cache
            .chains
            .get((chain.0 as usize).checked_sub(1)?)
            .map(|&(around, _)| around)
    }
}

/// Returns whether code always runs from the start of `range` to its end.
fn is_straight(range: Range<Avma>, image: &Image) -> bool {
    const LONGEST_PROLOGUE: u64 = 512;
    let len = range.end - range.start;
    if range.end <= range.start || len > LONGEST_PROLOGUE {
        return range.end == range.start;
    }
    let mut code = vec![0; len as usize];
    if image.read(range.start, &mut code) < code.len() {
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
