//! What the code at an address means for stepping: its source line and its inlined copies.
//!
//! Answers depend on the address alone, are asked for when an address is first met, and kept.

use backtrail_pt::Avma;
use backtrail_symbolizer::{Function, FunctionKind, Symbolizer};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use std::cell::RefCell;
use std::collections::HashMap;
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

/// What stepping by lines must know of an address.
pub trait Lines {
    /// The statement that the instruction at `pc` belongs to. `None`: the line table does not name a
    /// line here, or not as a statement (`is_stmt`), or this is a function's prologue.
    fn statement(&self, pc: Avma) -> Option<Statement>;

    /// The inlined copies around `pc`.
    fn chain(&self, pc: Avma) -> ChainId;

    /// The copies around the innermost copy of `chain`; `None` when it is none.
    fn around(&self, chain: ChainId) -> Option<ChainId>;

    /// Whether `inner` is `outer`, or copies inlined into it.
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
    cache: RefCell<Cache>,
}

#[derive(Default)]
struct Cache {
    /// By address: the statement, and the chain.
    sites: HashMap<u64, (Option<Statement>, ChainId)>,
    /// Chain *n* is (chain around it, entry of its innermost copy); chain 0 is none.
    chains: Vec<(ChainId, Avma)>,
    chain_ids: HashMap<(ChainId, Avma), ChainId>,
    lines: HashMap<(Arc<str>, u32), LineId>,
    /// By function entry: where its prologue ends.
    prologues: HashMap<u64, Avma>,
}

impl CodeMap {
    /// Of the process with these symbols.
    #[must_use]
    pub fn new(symbols: Arc<Symbolizer>) -> Self {
        Self {
            symbols,
            cache: RefCell::default(),
        }
    }

    /// Where a breakpoint on `function` belongs, and where a step into it stops: behind its prologue
    /// when every call passes there, that is when the prologue is straight-line code; else its entry.
    pub fn after_prologue(&self, function: &Function<Avma>, read: &dyn Fn(Avma, &mut [u8]) -> usize) -> Avma {
        if let Some(&known) = self.cache.borrow().prologues.get(&function.entry.0) {
            return known;
        }
        let end = self.symbols.after_prologue(function);
        let end = if is_straight(function.entry..end, read) {
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
        let mut cache = self.cache.borrow_mut();
        let mut chain = ChainId::default();
        for frame in frames.iter().rev().filter(|frame| frame.inlined) {
            chain = cache.chain_in(chain, frame.entry);
        }
        let row = self
            .symbols
            .line_at(pc)
            .filter(|row| row.is_stmt && row.line != 0 && !row.file.is_empty());
        let statement = row.map(|row| Statement {
            chain,
            line: cache.line(row.file, row.line),
        });
        (statement, chain)
    }
}

impl Cache {
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

/// A [`CodeMap`] with the code bytes, which decide where prologues end.
pub struct CodeLines<'a> {
    /// Symbols.
    pub map: &'a CodeMap,
    /// Copies code bytes at an address, and says how many.
    pub read: &'a dyn Fn(Avma, &mut [u8]) -> usize,
}

impl Lines for CodeLines<'_> {
    fn statement(&self, pc: Avma) -> Option<Statement> {
        let statement = self.map.site(pc).0?;
        let function = self.map.symbols.function_at(pc)?;
        let in_prologue = function.range.contains(&function.entry)
            && (function.entry..self.map.after_prologue(&function, self.read)).contains(&pc);
        (!in_prologue && function.kind != FunctionKind::Plt).then_some(statement)
    }

    fn chain(&self, pc: Avma) -> ChainId {
        self.map.site(pc).1
    }

    fn around(&self, chain: ChainId) -> Option<ChainId> {
        let cache = self.map.cache.borrow();
        cache
            .chains
            .get((chain.0 as usize).checked_sub(1)?)
            .map(|&(around, _)| around)
    }
}

/// Whether code runs from the start of `range` to its end whatever happens.
fn is_straight(range: Range<Avma>, read: &dyn Fn(Avma, &mut [u8]) -> usize) -> bool {
    const LONGEST_PROLOGUE: u64 = 512;
    let len = range.end - range.start;
    if range.end <= range.start || len > LONGEST_PROLOGUE {
        return range.end == range.start;
    }
    let mut code = vec![0; len as usize];
    if read(range.start, &mut code) < code.len() {
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
