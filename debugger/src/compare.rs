//! Two calls side by side: what only one of them did, and what took longer in it.
//!
//! The calls that each made are [aligned](align) by function, those that both made are compared in
//! the same way, and so on. The difference is the sum of two parts: the calls that only one made,
//! each as a whole, and the own code of both.

pub mod align;

use crate::error::{Error, Result};
use crate::latency::{CallTimer, Span, Unit};
use crate::session::{Session, Thread};
use align::{AlignStep, align};
use backtrail_decoder::{CallId, Forest, Watch};
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CalledBy {
    /// Both.
    Both,
    /// Only the first.
    First,
    /// Only the second.
    Second,
}

/// A call of one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallSide {
    /// `c12`, a name in its thread.
    pub call: Option<String>,
    /// Its first instruction, for `goto`.
    pub position: String,
    /// The number of instructions that it and its callees executed.
    pub instructions: u64,
    /// Its duration, if known.
    pub length: Option<Span>,
}

/// A call that both made and that differs, or calls in a row that only one made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The depth below the compared calls.
    pub depth: usize,
    /// Which made it.
    pub who: CalledBy,
    /// The function.
    pub function: String,
    /// The number of consecutive calls.
    pub calls: u64,
    /// The first one's call, the first of several.
    pub first: Option<CallSide>,
    /// The second one's.
    pub second: Option<CallSide>,
    /// The number of additional instructions in the second, over all of the calls.
    pub instructions: i64,
    /// The lower and upper bound of the additional time in the second.
    pub time: Option<[i64; 2]>,
    /// Whether its callees differ so much that they were paired without regard to order.
    pub out_of_order: bool,
    /// Whether the comparison of its callees was cut off.
    pub cut: bool,
}

/// A part of the difference, over all calls of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The function.
    pub function: String,
    /// Calls that both made count with their own code, others as a whole.
    pub who: CalledBy,
    /// The number of calls, or pairs of calls.
    pub calls: u64,
    /// The lower and upper bound of the surplus of the second.
    pub change: [i64; 2],
    /// The position of the first of the calls; in the second if both made it.
    pub position: String,
}

/// Two calls side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The unit of times.
    pub unit: Unit,
    /// Whether times are not compared because the trace does not have them.
    pub no_time: bool,
    /// The functions of the two.
    pub functions: [String; 2],
    /// The first.
    pub first: CallSide,
    /// The second.
    pub second: CallSide,
    /// The parts of the difference in time that are certain, the largest first.
    pub by_time: Vec<Cause>,
    /// The parts of the difference in instructions, the largest first.
    pub by_instructions: Vec<Cause>,
    /// The calls where they differ, in order of time, parents before children.
    pub differences: Vec<Difference>,
    /// There are more differences than are listed.
    pub more: bool,
    /// Whether some calls were not compared because there are too many.
    pub cut: bool,
}

/// An execution of an inlined function, as a part of the call that executed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedPart {
    /// The function.
    pub function: Arc<str>,
    /// The instructions, by their index in the history.
    pub range: Range<u64>,
}

/// A call of a thread, or a part of one.
#[derive(Clone)]
pub struct ComparedCall<'a> {
    /// The thread.
    pub thread: &'a Thread,
    /// Its calls.
    pub forest: &'a Forest,
    /// The call.
    pub call: CallId,
    /// The part of the call that is compared; `None`: the whole.
    pub part: Option<InlinedPart>,
}

/// The limits of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonLimits {
    /// The limit of compared calls, over both.
    pub calls: usize,
    /// Differences between the callees of two calls, for their order to count.
    pub differences: usize,
    /// Levels of calls.
    pub depth: usize,
    /// Rows of the list of differences.
    pub rows: usize,
    /// Causes in each list.
    pub causes: usize,
}

impl Default for ComparisonLimits {
    fn default() -> Self {
        Self {
            calls: 2_000_000,
            differences: 512,
            depth: 128,
            rows: 200,
            causes: 10,
        }
    }
}

/// Compares two calls.
///
/// # Errors
/// When canceled.
pub fn compare(
    session: &Session,
    first: ComparedCall<'_>,
    second: ComparedCall<'_>,
    bounds: ComparisonLimits,
    watch: &Watch<'_>,
) -> Result<Comparison> {
    let unit = Unit::of_time(session.times());
    let mut walk = ComparisonWalk {
        first: ComparedCalls::new(session, &first, unit),
        second: ComparedCalls::new(session, &second, unit),
        by_name: FxHashMap::default(),
        bounds,
        looked_at: 0,
        rows: Vec::new(),
        more: false,
        cut: false,
        sums: BTreeMap::new(),
        notable: 0,
        watch,
    };
    let (one, other) = (walk.first.side(first.call), walk.second.side(second.call));
    let longest = [one.length, other.length].into_iter().flatten();
    walk.notable = longest.map(|length| length.most).max().unwrap_or(0) / NOTABLE;
    walk.pair(first.call, second.call, 0)?;
    let no_time = one.length.is_none() || other.length.is_none();
    let mut by_instructions = walk.causes(|sum| Some([sum.instructions; 2]));
    let mut by_time = walk.causes(|sum| sum.time.filter(|_| !no_time));
    by_instructions.truncate(bounds.causes);
    by_time.truncate(bounds.causes);
    Ok(Comparison {
        unit,
        no_time,
        functions: [walk.first.name(first.call), walk.second.name(second.call)],
        first: one,
        second: other,
        by_time,
        by_instructions,
        differences: walk.rows,
        more: walk.more,
        cut: walk.cut,
    })
}

/// The second surely has more than the first, or surely less.
#[must_use]
pub fn is_certain([least, most]: [i64; 2]) -> bool {
    least > 0 || most < 0
}

/// The inverse of the share of the longer call's time by which a call must differ to be listed for
/// its time.
const NOTABLE: u64 = 20;

/// The calls of one of the two.
struct ComparedCalls<'a> {
    session: &'a Session,
    thread: &'a Thread,
    forest: &'a Forest,
    call_timer: CallTimer<'a>,
    /// The compared call, if only a part of it is compared.
    part: Option<(CallId, InlinedPart)>,
    /// The numbers of functions, by address and period of the process's modules.
    kinds: FxHashMap<(Avma, usize), u32>,
}

/// The contribution of a function's calls to the difference.
struct FunctionSum {
    calls: u64,
    instructions: i64,
    /// `None`: of one of the calls it is unknown.
    time: Option<[i64; 2]>,
    position: String,
}

/// The way through both trees.
struct ComparisonWalk<'a> {
    first: ComparedCalls<'a>,
    second: ComparedCalls<'a>,
    /// Functions by number, the same in both trees.
    by_name: FxHashMap<String, u32>,
    bounds: ComparisonLimits,
    looked_at: usize,
    rows: Vec<Difference>,
    more: bool,
    cut: bool,
    sums: BTreeMap<(String, CalledBy), FunctionSum>,
    /// A difference in time that is shorter than this is listed only beside another.
    notable: u64,
    watch: &'a Watch<'a>,
}

impl<'a> ComparedCalls<'a> {
    fn new(session: &'a Session, subject: &ComparedCall<'a>, unit: Unit) -> Self {
        let (thread, forest) = (subject.thread, subject.forest);
        Self {
            session,
            thread,
            forest,
            call_timer: CallTimer::new(thread, forest, unit, session.times()),
            part: subject.part.clone().map(|part| (subject.call, part)),
            kinds: FxHashMap::default(),
        }
    }

    /// Returns the part of a call that is compared; `None`: the whole.
    fn part_of(&self, id: CallId) -> Option<&InlinedPart> {
        let (call, part) = self.part.as_ref()?;
        (*call == id).then_some(part)
    }

    /// Returns the compared instructions of a call.
    fn range(&self, id: CallId) -> Range<u64> {
        let call = self.forest.call(id);
        self.part_of(id)
            .map_or(call.first..call.end, |part| part.range.clone())
    }

    fn children(&self, id: CallId) -> impl Iterator<Item = CallId> {
        let range = self.range(id);
        let children = self.forest.children(id);
        children.filter(move |&child| range.contains(&self.forest.call(child).first))
    }

    fn name(&self, call: CallId) -> String {
        if let Some(part) = self.part_of(call) {
            return part.function.to_string();
        }
        let call = self.forest.call(call);
        let (at, symbols) = (call.function, self.session.symbols_at(self.thread, call.first));
        let function = symbols.and_then(|symbols| symbols.function_at(at));
        function.map_or_else(|| at.to_string(), |function| function.name.to_string())
    }

    /// The functions of calls, by number.
    fn kinds(&mut self, calls: &[CallId], by_name: &mut FxHashMap<String, u32>) -> Vec<u32> {
        let process = self.session.process(self.thread);
        let changing = process.filter(|process| !process.has_one_epoch());
        let kind = |&id: &CallId| {
            let call = self.forest.call(id);
            let version = || self.thread.history.version(call.first);
            let epoch = changing.map_or(0, |process| process.epoch_at(version()));
            let key = (call.function, epoch);
            if let Some(&known) = self.kinds.get(&key) {
                return known;
            }
            let next = by_name.len() as u32;
            let kind = *by_name.entry(self.name(id)).or_insert(next);
            self.kinds.insert(key, kind);
            kind
        };
        calls.iter().map(kind).collect()
    }

    fn side(&self, id: CallId) -> CallSide {
        let range = self.range(id);
        let name = match self.part_of(id) {
            Some(_) => None,
            None => self.thread.name_of(self.forest, id),
        };
        CallSide {
            call: name.map(|name| name.to_string()),
            position: self.thread.position(range.start).to_string(),
            instructions: self.instructions(id),
            length: match self.part_of(id) {
                Some(_) => self.call_timer.span_within(id, range).ok(),
                None => self.call_timer.span(id).ok(),
            },
        }
    }

    fn instructions(&self, id: CallId) -> u64 {
        let range = self.range(id);
        range.end.saturating_sub(range.start)
    }

    /// Returns the instructions that a call executed without its callees, and their duration.
    fn self_cost(&self, id: CallId) -> (u64, Option<Span>) {
        let callees = self.children(id).map(|child| self.instructions(child));
        let own = self.instructions(id).saturating_sub(callees.sum());
        let time = match self.part_of(id) {
            Some(part) => self.call_timer.self_time_within(id, part.range.clone()),
            None => self.call_timer.self_time(id),
        };
        (own, time.ok())
    }
}

/// `other - one`.
fn difference(one: u64, other: u64) -> i64 {
    let [difference, _] = Span::exactly(one).to(Span::exactly(other));
    difference
}

impl ComparisonWalk<'_> {
    /// Compares calls that both made. Returns whether they differ.
    fn pair(&mut self, one: CallId, other: CallId, depth: usize) -> Result<bool> {
        self.look_at(1)?;
        let at = self.rows.len();
        let (first, second) = (self.first.side(one), self.second.side(other));
        let position = second.position.clone();
        let function = self.second.name(other);
        let instructions = difference(first.instructions, second.instructions);
        let time = first
            .length
            .zip(second.length)
            .map(|(first, second)| first.to(second));
        let shown = self.show(Difference {
            depth,
            who: CalledBy::Both,
            function: function.clone(),
            calls: 1,
            first: Some(first.clone()),
            second: Some(second.clone()),
            instructions,
            time,
            out_of_order: false,
            cut: false,
        });
        let callees = self.callees(one, other, depth, at, shown)?;
        let (own, other_own) = match callees {
            Some(_) => (self.first.self_cost(one), self.second.self_cost(other)),
            None => (
                (first.instructions, first.length),
                (second.instructions, second.length),
            ),
        };
        let own_instructions = difference(own.0, other_own.0);
        let own_time = own.1.zip(other_own.1).map(|(own, other)| own.to(other));
        self.add(function, CalledBy::Both, 1, own_instructions, own_time, position);
        let differs =
            callees == Some(true) || own_instructions != 0 || time.is_some_and(|time| self.is_notable(time));
        match (differs, shown) {
            (true, false) => self.more = true,
            (false, true) => self.rows.truncate(at),
            _ => {}
        }
        Ok(differs)
    }

    /// Compares the callees of two calls. Returns whether they differ. `None`: not compared.
    fn callees(
        &mut self,
        one: CallId,
        other: CallId,
        depth: usize,
        row: usize,
        shown: bool,
    ) -> Result<Option<bool>> {
        let ones: Vec<CallId> = self.first.children(one).collect();
        let others: Vec<CallId> = self.second.children(other).collect();
        let enough = self.looked_at.saturating_add(ones.len() + others.len()) > self.bounds.calls;
        let cut = (enough || depth >= self.bounds.depth) && !(ones.is_empty() && others.is_empty());
        if cut {
            self.cut = true;
            self.mark(row, shown, |row| row.cut = true);
            return Ok(None);
        }
        let kinds = self.first.kinds(&ones, &mut self.by_name);
        let other_kinds = self.second.kinds(&others, &mut self.by_name);
        let alignment = align(&kinds, &other_kinds, self.bounds.differences);
        self.mark(row, shown, |row| row.out_of_order = alignment.out_of_order);
        let in_a_row = |before: &AlignStep, next: &AlignStep| match (*before, *next) {
            (AlignStep::First(before), AlignStep::First(next)) => kinds.get(before) == kinds.get(next),
            (AlignStep::Second(before), AlignStep::Second(next)) => {
                other_kinds.get(before) == other_kinds.get(next)
            }
            _ => false,
        };
        let mut differs = false;
        for steps in alignment.steps.chunk_by(in_a_row) {
            let of_first = steps.iter().filter_map(|step| match *step {
                AlignStep::First(at) | AlignStep::Both(at, _) => ones.get(at).copied(),
                AlignStep::Second(_) => None,
            });
            let of_second = steps.iter().filter_map(|step| match *step {
                AlignStep::Second(at) | AlignStep::Both(_, at) => others.get(at).copied(),
                AlignStep::First(_) => None,
            });
            let (of_first, of_second): (Vec<_>, Vec<_>) = (of_first.collect(), of_second.collect());
            differs |= match (of_first.as_slice(), of_second.as_slice()) {
                (&[one], &[other]) => self.pair(one, other, depth + 1)?,
                _ => self.only(&of_first, &of_second, depth + 1)?,
            };
        }
        Ok(Some(differs))
    }

    /// Takes down calls in a row of one function that only one of the two made.
    fn only(&mut self, of_first: &[CallId], of_second: &[CallId], depth: usize) -> Result<bool> {
        let (who, tree, calls) = match of_second.is_empty() {
            true => (CalledBy::First, &self.first, of_first),
            false => (CalledBy::Second, &self.second, of_second),
        };
        let Some(&call) = calls.first() else {
            return Ok(false);
        };
        let side = tree.side(call);
        let function = tree.name(call);
        let instructions: u64 = calls.iter().map(|&call| tree.instructions(call)).sum();
        let lengths = calls.iter().map(|&call| tree.call_timer.span(call).ok());
        let length: Option<Span> = lengths
            .reduce(|all, length| Some(all?.and(length?)))
            .unwrap_or_default();
        let (instructions, time) = match who {
            CalledBy::First => (
                difference(instructions, 0),
                length.map(|length| length.to(Span::default())),
            ),
            CalledBy::Both | CalledBy::Second => (
                difference(0, instructions),
                length.map(|length| Span::default().to(length)),
            ),
        };
        let position = side.position.clone();
        self.look_at(calls.len())?;
        let (first, second) = match who {
            CalledBy::First => (Some(side), None),
            CalledBy::Both | CalledBy::Second => (None, Some(side)),
        };
        let row = Difference {
            depth,
            who,
            function: function.clone(),
            calls: calls.len() as u64,
            first,
            second,
            instructions,
            time,
            out_of_order: false,
            cut: false,
        };
        self.more |= !self.show(row);
        self.add(function, who, calls.len() as u64, instructions, time, position);
        Ok(true)
    }

    fn is_notable(&self, [least, most]: [i64; 2]) -> bool {
        is_certain([least, most]) && least.unsigned_abs().min(most.unsigned_abs()) >= self.notable
    }

    fn look_at(&mut self, calls: usize) -> Result<()> {
        self.looked_at = self.looked_at.saturating_add(calls);
        match self.watch.is_canceled() {
            true => Err(Error::Canceled),
            false => Ok(()),
        }
    }

    /// Lists a difference. Returns whether there was room.
    fn show(&mut self, row: Difference) -> bool {
        let room = self.rows.len() < self.bounds.rows;
        if room {
            self.rows.push(row);
        }
        room
    }

    fn mark(&mut self, row: usize, shown: bool, mark: impl FnOnce(&mut Difference)) {
        if let Some(row) = self.rows.get_mut(row).filter(|_| shown) {
            mark(row);
        }
    }

    fn add(
        &mut self,
        function: String,
        who: CalledBy,
        calls: u64,
        instructions: i64,
        time: Option<[i64; 2]>,
        position: String,
    ) {
        let sum = self.sums.entry((function, who)).or_insert(FunctionSum {
            calls: 0,
            instructions: 0,
            time: Some([0, 0]),
            position,
        });
        sum.calls += calls;
        sum.instructions = sum.instructions.saturating_add(instructions);
        sum.time = sum.time.zip(time).map(|(sum, time)| {
            let ([least, most], [more_least, more_most]) = (sum, time);
            [least.saturating_add(more_least), most.saturating_add(more_most)]
        });
    }

    /// Returns the causes of the difference that are certain, the largest first.
    fn causes(&self, change: impl Fn(&FunctionSum) -> Option<[i64; 2]>) -> Vec<Cause> {
        let causes = self.sums.iter().filter_map(|((function, who), sum)| {
            Some(Cause {
                function: function.clone(),
                who: *who,
                calls: sum.calls,
                change: change(sum).filter(|&change| is_certain(change))?,
                position: sum.position.clone(),
            })
        });
        let mut causes: Vec<Cause> = causes.collect();
        causes.sort_by_key(|cause| {
            let [least, most] = cause.change;
            std::cmp::Reverse(least.unsigned_abs().min(most.unsigned_abs()))
        });
        causes
    }
}
