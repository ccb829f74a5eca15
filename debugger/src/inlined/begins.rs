//! The begins of executions of several copies, in one pass over a history.
//!
//! The rules are those of [`CopyCode::entrance`](crate::lines::CopyCode::entrance). That function
//! searches for other executions of the same code before and after an instruction, which takes as
//! long as a part of the call. Here, each call keeps what these searches would find.

use crate::code::{CodePoint, LineId};
use crate::error::Result;
use crate::functions::InlinedFunction;
use crate::lines::{Entrance, LineStarts};
use backtrail_decoder::{BlockId, CallId, PcSet, Stage};
use backtrail_pt::Avma;
use std::collections::HashMap;
use std::rc::Rc;

/// The number of blocks after which the progress is reported.
const OFTEN: u64 = 1 << 14;
/// The number of calls after which those that ended are dropped.
const CALLS: usize = 1 << 10;

/// The begin of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    /// The index of the copy.
    pub(super) copy: usize,
    /// The call that executes it.
    pub(super) call: CallId,
    /// Its first instruction.
    pub(super) first: u64,
    /// Whether an execution begins here, and not only perhaps.
    pub(super) entrance: Entrance,
}

/// An instruction of a block that is of a copy.
#[derive(Clone, Copy, Debug)]
struct Hit {
    /// The number of the instruction in the block.
    at: u32,
    /// The index of the copy.
    copy: u32,
    /// The number of the address among those of the copy that were executed.
    place: u32,
}

/// The executed addresses of a copy.
struct ExecutedCopy {
    /// The number of executed addresses.
    places: usize,
    /// The address at which the copy begins, if it was executed.
    begin: Option<u32>,
    /// All executed addresses, ascending.
    pcs: Vec<Avma>,
}

/// The lines of a copy in a period.
struct CopyLines {
    /// The line of its begin.
    first: Option<LineId>,
    /// The line of each executed address.
    of_place: Vec<Option<LineId>>,
    /// Whether it has executed other lines.
    has_others: bool,
}

/// An entrance that is decided by what is executed later.
struct Pending {
    place: u32,
    index: u64,
    /// Whether the call had executed the copy before.
    is_later: bool,
}

/// The executions of a copy in a call.
struct CopyState {
    copy: u32,
    /// The last execution of each address.
    last: Vec<Option<u64>>,
    /// Whether the call has executed the copy.
    is_seen: bool,
    /// Whether it has executed another line than that of the begin, after the last begin.
    is_other_line: bool,
    pending: Vec<Pending>,
    lines: Rc<CopyLines>,
}

/// The executions of copies in a call.
struct CallState {
    end: u64,
    epoch: u32,
    copies: Vec<CopyState>,
}

/// Calls a function for the begin of each execution of the copies, in no order.
///
/// # Errors
///
/// If it depends on history that is not decoded yet; when canceled.
pub(super) fn each(
    lines: &LineStarts<'_>,
    copies: &[InlinedFunction],
    mut emit: impl FnMut(Begin),
) -> Result<()> {
    lines.before_search(0, 0)?;
    let (executed, hits_at) = executed_copies(lines, copies);
    if hits_at.is_empty() {
        return Ok(());
    }
    let mut scan = BeginScan {
        lines,
        copies,
        executed,
        hits_at,
        copy_lines: HashMap::new(),
        calls: HashMap::new(),
    };
    let mut of_block: HashMap<BlockId, Rc<[Hit]>> = HashMap::new();
    for (number, (block, first)) in (0_u64..).zip(lines.history.executed_blocks()) {
        if number % OFTEN == 0 {
            lines.watch.report(Stage::Search, first, lines.history.len())?;
        }
        let hits = match of_block.get(&block) {
            Some(hits) => hits,
            None => {
                let hits = scan.hits_of(block);
                of_block.entry(block).or_insert(hits)
            }
        };
        if !hits.is_empty() {
            let hits = Rc::clone(hits);
            scan.run(&hits, first, &mut emit)?;
        }
    }
    scan.end(&mut emit)
}

/// The hits of an address, without their instruction.
type HitsAt = HashMap<Avma, Vec<(u32, u32)>>;

fn executed_copies(lines: &LineStarts<'_>, copies: &[InlinedFunction]) -> (Vec<ExecutedCopy>, HitsAt) {
    let everything = PcSet::from_ranges([Avma(0)..Avma(u64::MAX)]);
    let all = lines.history.executed_in(&everything);
    let mut hits_at = HitsAt::new();
    let of_copy = |(number, function): (u32, &InlinedFunction)| {
        let copy = &function.copy;
        let mut pcs = Vec::new();
        for range in copy.code.ranges() {
            let from = all.partition_point(|pc| *pc < range.start);
            let in_range = all.iter().skip(from).take_while(|pc| **pc < range.end);
            pcs.extend(in_range.copied());
        }
        pcs.sort_unstable();
        pcs.dedup();
        for (place, pc) in (0..).zip(&pcs) {
            hits_at.entry(*pc).or_default().push((number, place));
        }
        let begin = pcs.binary_search(&copy.begin).ok();
        ExecutedCopy {
            places: pcs.len(),
            begin: begin.and_then(|place| u32::try_from(place).ok()),
            pcs,
        }
    };
    let executed = (0..).zip(copies).map(of_copy).collect();
    (executed, hits_at)
}

struct BeginScan<'a> {
    lines: &'a LineStarts<'a>,
    copies: &'a [InlinedFunction],
    executed: Vec<ExecutedCopy>,
    hits_at: HitsAt,
    /// By copy and period.
    copy_lines: HashMap<(u32, u32), Rc<CopyLines>>,
    calls: HashMap<CallId, CallState>,
}

impl BeginScan<'_> {
    fn hits_of(&self, block: BlockId) -> Rc<[Hit]> {
        let mut hits = Vec::new();
        for (at, instruction) in (0..).zip(self.lines.history.block(block)) {
            for &(copy, place) in self.hits_at.get(&instruction.pc).into_iter().flatten() {
                hits.push(Hit { at, copy, place });
            }
        }
        hits.into()
    }

    /// Handles the execution of a block. All its instructions are of one call.
    fn run(&mut self, hits: &[Hit], first: u64, emit: &mut impl FnMut(Begin)) -> Result<()> {
        let Some(call) = self.lines.forest.call_at(first) else {
            return Ok(());
        };
        if self.calls.len() >= CALLS && !self.calls.contains_key(&call) {
            self.drop_ended(first, emit)?;
        }
        let before = || {
            let before = self.lines.own_before(call, first);
            before.and_then(|before| self.lines.history.pc(before))
        };
        let is_at_start = hits.first().is_some_and(|hit| hit.at == 0);
        let before = if is_at_start { before() } else { None };
        let mut rest = hits;
        let mut previous: &[Hit] = &[];
        while let Some(at) = rest.first().map(|hit| hit.at) {
            let count = rest.partition_point(|hit| hit.at == at);
            let (here, later) = rest.split_at(count);
            for hit in here {
                let follows = match at {
                    0 => before.is_some_and(|pc| self.is_in(pc, hit.copy)),
                    _ => previous
                        .iter()
                        .any(|other| other.at + 1 == at && other.copy == hit.copy),
                };
                self.step(hit, call, first + u64::from(at), follows, emit)?;
            }
            (previous, rest) = (here, later);
        }
        Ok(())
    }

    fn is_in(&self, pc: Avma, copy: u32) -> bool {
        let hits = self.hits_at.get(&pc);
        hits.is_some_and(|hits| hits.iter().any(|(other, _)| *other == copy))
    }

    /// Handles an instruction of a copy. `follows`: the instruction before it in the call is of the
    /// copy too.
    fn step(
        &mut self,
        hit: &Hit,
        call: CallId,
        index: u64,
        follows: bool,
        emit: &mut impl FnMut(Begin),
    ) -> Result<()> {
        let Some(executed) = self.executed.get(hit.copy as usize) else {
            return Ok(());
        };
        let (begin, places) = (executed.begin, executed.places);
        let is_begin = begin == Some(hit.place);
        let state = self.state(call, hit.copy, places);
        let mut decided = Vec::new();
        if is_begin {
            // The instructions before the first one were moved there.
            state.pending.clear();
        } else {
            let again = state
                .pending
                .iter()
                .position(|pending| pending.place == hit.place);
            decided.extend(again.map(|at| state.pending.swap_remove(at)));
        }
        let last = |place: u32| state.last.get(place as usize).copied().flatten();
        let (last_begin, last_here) = (begin.and_then(last), last(hit.place));
        let entrance = match (follows, is_begin) {
            (true, false) => None,
            (false, true) => Some(Entrance::Certain),
            (true, true) => Some(Entrance::Possible),
            (false, false) => {
                let is_first_after =
                    last_begin.is_some_and(|begin| last_here.is_none_or(|here| here < begin));
                if is_first_after {
                    state.repeats_first_line(hit.place).then_some(Entrance::Possible)
                } else {
                    state.pending.push(Pending {
                        place: hit.place,
                        index,
                        is_later: state.is_seen,
                    });
                    None
                }
            }
        };
        state.executed(hit.place, index, is_begin);
        if let Some(entrance) = entrance {
            emit(Begin {
                copy: hit.copy as usize,
                call,
                first: index,
                entrance,
            });
        }
        for pending in decided {
            self.decide(&pending, hit.copy, call, emit)?;
        }
        Ok(())
    }

    /// Handles an entrance to which no begin of the copy belongs.
    fn decide(&self, pending: &Pending, copy: u32, call: CallId, emit: &mut impl FnMut(Begin)) -> Result<()> {
        if !pending.is_later {
            self.lines.needs_beginning(call)?;
        }
        emit(Begin {
            copy: copy as usize,
            call,
            first: pending.index,
            entrance: match pending.is_later {
                true => Entrance::Possible,
                false => Entrance::Certain,
            },
        });
        Ok(())
    }

    fn state(&mut self, call: CallId, copy: u32, places: usize) -> &mut CopyState {
        let lines = self.lines;
        let state = self.calls.entry(call).or_insert_with(|| CallState {
            end: lines.forest.call(call).end,
            epoch: lines.point_in(call, Avma(0)).epoch,
            copies: Vec::new(),
        });
        let found = state.copies.iter().position(|state| state.copy == copy);
        let at = found.unwrap_or_else(|| {
            let known = self.copy_lines.entry((copy, state.epoch));
            let of_copy = known.or_insert_with(|| {
                let (function, executed) = (self.copies.get(copy as usize), self.executed.get(copy as usize));
                Rc::new(CopyLines::new(lines, function, executed, state.epoch))
            });
            state.copies.push(CopyState {
                copy,
                last: vec![None; places],
                is_seen: false,
                is_other_line: false,
                pending: Vec::new(),
                lines: Rc::clone(of_copy),
            });
            state.copies.len() - 1
        });
        &mut state.copies[at]
    }

    /// Drops the calls that ended before instruction `index`.
    fn drop_ended(&mut self, index: u64, emit: &mut impl FnMut(Begin)) -> Result<()> {
        let ended: Vec<(CallId, CallState)> = self.calls.extract_if(|_, state| state.end <= index).collect();
        for (call, state) in ended {
            self.end_call(call, &state, emit)?;
        }
        Ok(())
    }

    fn end_call(&self, call: CallId, state: &CallState, emit: &mut impl FnMut(Begin)) -> Result<()> {
        for of_copy in &state.copies {
            for pending in &of_copy.pending {
                self.decide(pending, of_copy.copy, call, emit)?;
            }
        }
        Ok(())
    }

    fn end(mut self, emit: &mut impl FnMut(Begin)) -> Result<()> {
        self.drop_ended(u64::MAX, emit)
    }
}

impl CopyLines {
    fn new(
        lines: &LineStarts<'_>,
        function: Option<&InlinedFunction>,
        executed: Option<&ExecutedCopy>,
        epoch: u32,
    ) -> Self {
        let line = |pc: Avma| {
            let statement = lines.lines.statement(CodePoint { pc, epoch });
            statement.map(|statement| statement.line)
        };
        let pcs = executed
            .map(|executed| executed.pcs.as_slice())
            .unwrap_or_default();
        let first = function.and_then(|function| line(function.copy.begin));
        let of_place: Vec<Option<LineId>> = pcs.iter().map(|pc| line(*pc)).collect();
        let has_others = of_place.iter().any(|line| line.is_some() && *line != first);
        Self {
            first,
            of_place,
            has_others,
        }
    }

    fn of_place(&self, place: u32) -> Option<LineId> {
        self.of_place.get(place as usize).copied().flatten()
    }
}

impl CopyState {
    /// Returns whether the code at an address is of the copy's first line again, and other lines of
    /// it were executed since the begin. If the copy has only one line, every entrance repeats it.
    fn repeats_first_line(&self, place: u32) -> bool {
        let first = self.lines.first;
        first.is_some()
            && self.lines.of_place(place) == first
            && (self.is_other_line || !self.lines.has_others)
    }

    fn executed(&mut self, place: u32, index: u64, is_begin: bool) {
        if let Some(last) = self.last.get_mut(place as usize) {
            *last = Some(index);
        }
        self.is_seen = true;
        if is_begin {
            self.is_other_line = false;
        } else {
            let line = self.lines.of_place(place);
            self.is_other_line |= line.is_some() && line != self.lines.first;
        }
    }
}
