//! The begins of executions of several copies, in one pass over a history.
//!
//! The rules are those of [`CopyCode::entrance`]. That function searches for other executions of
//! the same code before and after an instruction, which takes as long as a part of the call. Here,
//! each call keeps what these searches would find.

use super::{CopyCode, Entrance, LineStarts};
use crate::code::{CodePoint, LineId};
use crate::error::Result;
use backtrail_decoder::{BlockId, CallId, PcSet, Stage};
use backtrail_pt::Avma;
use std::collections::HashMap;
use std::rc::Rc;

/// The number of blocks after which the progress is reported.
const OFTEN: u64 = 1 << 14;
/// The number of calls from which those that ended are dropped.
const CALLS: usize = 1 << 10;

/// The begin of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    /// The index of the copy.
    pub(crate) copy: usize,
    /// The call that executes it.
    pub(crate) call: CallId,
    /// Its first instruction.
    pub(crate) first: u64,
    /// Whether an execution begins here, and not only perhaps.
    pub(crate) entrance: Entrance,
    /// The last instruction of the copy in the call before it.
    pub(crate) before: Option<u64>,
}

/// The last instruction of a copy in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastInstruction {
    /// The index of the copy.
    pub(crate) copy: usize,
    /// The call.
    pub(crate) call: CallId,
    /// The instruction.
    pub(crate) index: u64,
}

/// The events of a pass.
pub(crate) trait BeginEvents {
    /// An execution begins. Begins come in no order.
    fn begin(&mut self, begin: Begin);

    /// A call executes a copy no more.
    fn last(&mut self, last: LastInstruction);
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
    /// The last instruction of the copy in the call before it.
    before: Option<u64>,
}

/// The executions of a copy in a call.
struct CopyState {
    copy: u32,
    /// The place of its begin, if it was executed.
    begin: Option<u32>,
    /// The last execution of each address.
    last: Vec<Option<u64>>,
    /// The last instruction of the copy.
    latest: Option<u64>,
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

/// Goes over a history, and reports the begin of each execution of the copies.
///
/// # Errors
///
/// If it depends on history that is not decoded yet; when canceled.
pub(crate) fn scan_begins(
    lines: &LineStarts<'_>,
    copies: &[&CopyCode],
    events: &mut impl BeginEvents,
) -> Result<()> {
    if copies.is_empty() {
        return Ok(());
    }
    lines.before_search(0, 0)?;
    let (executed, hits_at) = executed_copies(lines, copies);
    if hits_at.is_empty() {
        return Ok(());
    }
    let mut scan = BeginScan {
        code: Code {
            lines,
            copies,
            executed,
            hits_at,
            of_copy: HashMap::new(),
        },
        calls: HashMap::new(),
        drop_at: CALLS,
    };
    let mut of_block: HashMap<BlockId, Rc<[Hit]>> = HashMap::new();
    for (number, (block, first)) in (0_u64..).zip(lines.history.executed_blocks()) {
        if number % OFTEN == 0 {
            lines.watch.report(Stage::Search, first, lines.history.len())?;
        }
        let known = of_block.entry(block);
        let hits = known.or_insert_with(|| scan.code.hits_of(block));
        if !hits.is_empty() {
            scan.run(hits, first, events)?;
        }
    }
    scan.drop_ended(u64::MAX, events)
}

/// The hits of an address, without their instruction.
type HitsAt = HashMap<Avma, Vec<(u32, u32)>>;

fn executed_copies(lines: &LineStarts<'_>, copies: &[&CopyCode]) -> (Vec<ExecutedCopy>, HitsAt) {
    let everything = PcSet::from_ranges([Avma(0)..Avma(u64::MAX)]);
    let all = lines.history.executed_in(&everything);
    let mut hits_at = HitsAt::new();
    let of_copy = |(number, copy): (u32, &&CopyCode)| {
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
            begin: begin.and_then(|place| u32::try_from(place).ok()),
            pcs,
        }
    };
    let executed = (0..).zip(copies).map(of_copy).collect();
    (executed, hits_at)
}

/// The code of the copies.
struct Code<'a> {
    lines: &'a LineStarts<'a>,
    copies: &'a [&'a CopyCode],
    executed: Vec<ExecutedCopy>,
    hits_at: HitsAt,
    /// The lines, by copy and period.
    of_copy: HashMap<(u32, u32), Rc<CopyLines>>,
}

impl Code<'_> {
    fn hits_of(&self, block: BlockId) -> Rc<[Hit]> {
        let mut hits = Vec::new();
        for (at, instruction) in (0..).zip(self.lines.history.block(block)) {
            for &(copy, place) in self.hits_at.get(&instruction.pc).into_iter().flatten() {
                hits.push(Hit { at, copy, place });
            }
        }
        hits.into()
    }

    fn contains(&self, copy: u32, pc: Avma) -> bool {
        let hits = self.hits_at.get(&pc);
        hits.is_some_and(|hits| hits.iter().any(|(other, _)| *other == copy))
    }

    /// Returns the state of a copy of which nothing is executed yet.
    fn state(&mut self, copy: u32, epoch: u32) -> CopyState {
        let (lines, code, executed) = (
            self.lines,
            self.copies.get(copy as usize).copied(),
            self.executed.get(copy as usize),
        );
        let known = self.of_copy.entry((copy, epoch));
        let of_copy = known.or_insert_with(|| Rc::new(CopyLines::new(lines, code, executed, epoch)));
        CopyState {
            copy,
            begin: executed.and_then(|executed| executed.begin),
            last: vec![None; executed.map_or(0, |executed| executed.pcs.len())],
            latest: None,
            is_other_line: false,
            pending: Vec::new(),
            lines: Rc::clone(of_copy),
        }
    }
}

struct BeginScan<'a> {
    code: Code<'a>,
    calls: HashMap<CallId, CallState>,
    /// The number of calls at which those that ended are dropped. In a deep recursion few have
    /// ended, so that it grows with them.
    drop_at: usize,
}

impl BeginScan<'_> {
    /// Handles the execution of a block. All its instructions are of one call.
    fn run(&mut self, hits: &[Hit], first: u64, events: &mut impl BeginEvents) -> Result<()> {
        let lines = self.code.lines;
        let Some(call) = lines.forest.call_at(first) else {
            return Ok(());
        };
        if self.calls.len() >= self.drop_at {
            self.drop_ended(first, events)?;
            self.drop_at = CALLS.max(self.calls.len() * 2);
        }
        let code = &mut self.code;
        let state = self.calls.entry(call).or_insert_with(|| CallState {
            end: lines.forest.call(call).end,
            epoch: lines.point_in(call, Avma(0)).epoch,
            copies: Vec::new(),
        });
        let is_at_start = hits.first().is_some_and(|hit| hit.at == 0);
        let before = is_at_start.then(|| lines.own_before(call, first)).flatten();
        let before = before.and_then(|before| lines.history.pc(before));
        for (number, hit) in hits.iter().enumerate() {
            // The hits of the instruction before are a few places before this one.
            let mut earlier = hits.iter().take(number).rev();
            let follows = match hit.at {
                0 => before.is_some_and(|pc| code.contains(hit.copy, pc)),
                at => earlier
                    .by_ref()
                    .take_while(|other| other.at + 1 >= at)
                    .any(|other| other.at + 1 == at && other.copy == hit.copy),
            };
            let known = state.copies.iter().position(|known| known.copy == hit.copy);
            let known = known.unwrap_or_else(|| {
                state.copies.push(code.state(hit.copy, state.epoch));
                state.copies.len() - 1
            });
            if let Some(of_copy) = state.copies.get_mut(known) {
                of_copy.step(
                    lines,
                    call,
                    (hit.place, first + u64::from(hit.at)),
                    follows,
                    events,
                )?;
            }
        }
        Ok(())
    }

    /// Drops the calls that ended before instruction `index`.
    fn drop_ended(&mut self, index: u64, events: &mut impl BeginEvents) -> Result<()> {
        let lines = self.code.lines;
        for (call, state) in self.calls.extract_if(|_, state| state.end <= index) {
            for of_copy in &state.copies {
                for pending in &of_copy.pending {
                    of_copy.decide(lines, call, pending, events)?;
                }
                if let Some(index) = of_copy.latest {
                    let copy = of_copy.copy as usize;
                    events.last(LastInstruction { copy, call, index });
                }
            }
        }
        Ok(())
    }
}

impl CopyLines {
    fn new(
        lines: &LineStarts<'_>,
        copy: Option<&CopyCode>,
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
        let first = copy.and_then(|copy| line(copy.begin));
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
    /// Handles an instruction of the copy, with its place and its index. `follows`: the instruction
    /// before it in the call is of the copy too.
    fn step(
        &mut self,
        lines: &LineStarts<'_>,
        call: CallId,
        (place, index): (u32, u64),
        follows: bool,
        events: &mut impl BeginEvents,
    ) -> Result<()> {
        let is_begin = self.begin == Some(place);
        if is_begin {
            // The instructions before the first one were moved there.
            self.pending.clear();
        } else if let Some(at) = self.pending.iter().position(|pending| pending.place == place) {
            let again = self.pending.swap_remove(at);
            self.decide(lines, call, &again, events)?;
        }
        let entrance = match (follows, is_begin) {
            (true, false) => None,
            (false, true) => Some(Entrance::Certain),
            (true, true) => Some(Entrance::Possible),
            (false, false) if self.is_first_after_begin(place) => {
                self.repeats_first_line(place).then_some(Entrance::Possible)
            }
            (false, false) => {
                self.pending.push(Pending {
                    place,
                    index,
                    before: self.latest,
                });
                None
            }
        };
        if let Some(entrance) = entrance {
            events.begin(Begin {
                copy: self.copy as usize,
                call,
                first: index,
                entrance,
                before: self.latest,
            });
        }
        self.executed(place, index, is_begin);
        Ok(())
    }

    /// Handles an entrance to which no begin of the copy belongs.
    fn decide(
        &self,
        lines: &LineStarts<'_>,
        call: CallId,
        pending: &Pending,
        events: &mut impl BeginEvents,
    ) -> Result<()> {
        if pending.before.is_none() {
            lines.needs_beginning(call)?;
        }
        events.begin(Begin {
            copy: self.copy as usize,
            call,
            first: pending.index,
            entrance: match pending.before {
                Some(_) => Entrance::Possible,
                None => Entrance::Certain,
            },
            before: pending.before,
        });
        Ok(())
    }

    /// Returns whether an address was not executed since the last begin.
    fn is_first_after_begin(&self, place: u32) -> bool {
        let last = |place: u32| self.last.get(place as usize).copied().flatten();
        let here = last(place);
        self.begin
            .and_then(last)
            .is_some_and(|begin| here.is_none_or(|here| here < begin))
    }

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
        self.latest = Some(index);
        if is_begin {
            self.is_other_line = false;
        } else {
            let line = self.lines.of_place(place);
            self.is_other_line |= line.is_some() && line != self.lines.first;
        }
    }
}
