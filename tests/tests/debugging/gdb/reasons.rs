//! The reasons for which GDB stops elsewhere or shows another stack: the rules of `docs/gdb.md`.
//! Each is checked against GDB's own data about the instructions. A difference without a rule is an
//! error.

use crate::gdb::FARTHER;
use crate::gdb::judge::{self, Here};
use crate::gdb::ours;
use std::collections::BTreeSet;

/// A rule; its text is its name in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    RecordBegins,
    RecordEnds,
    IntoARow,
    SameLine,
    BackInALine,
    RowByRow,
    CurrentLine,
    FunctionsFirstLine,
    CopysFirstInstruction,
    CopysEdge,
    TailCall,
    NewestFrame,
    NearestEntry,
    NoStatement,
    Repetition,
    LinesBreakpoint,
    NoLines,
    UntilsRange,
    LongJump,
    Lambda,
}

impl Reason {
    pub const ALL: [Self; 20] = [
        Self::RecordBegins,
        Self::RecordEnds,
        Self::IntoARow,
        Self::SameLine,
        Self::BackInALine,
        Self::RowByRow,
        Self::CurrentLine,
        Self::FunctionsFirstLine,
        Self::CopysFirstInstruction,
        Self::CopysEdge,
        Self::TailCall,
        Self::NewestFrame,
        Self::NearestEntry,
        Self::NoStatement,
        Self::Repetition,
        Self::LinesBreakpoint,
        Self::NoLines,
        Self::UntilsRange,
        Self::LongJump,
        Self::Lambda,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::RecordBegins => "the record begins",
            Self::RecordEnds => "the record ends",
            Self::IntoARow => "into a row",
            Self::SameLine => "same line",
            Self::BackInALine => "back in a line",
            Self::RowByRow => "row by row",
            Self::CurrentLine => "current line",
            Self::FunctionsFirstLine => "a function's first line",
            Self::CopysFirstInstruction => "a copy's first instruction",
            Self::CopysEdge => "a copy's edge",
            Self::TailCall => "tail call",
            Self::NewestFrame => "the newest frame",
            Self::NearestEntry => "the nearest entry",
            Self::NoStatement => "no statement",
            Self::Repetition => "repetition",
            Self::LinesBreakpoint => "a line's breakpoint",
            Self::NoLines => "no lines",
            Self::UntilsRange => "the range of until",
            Self::LongJump => "long jump",
            Self::Lambda => "names of lambdas",
        }
    }
}

/// A move that ended elsewhere in GDB. Positions are indexes counted from the breakpoint in main.
pub struct Case<'a> {
    /// The instructions from the breakpoint in main to the end.
    pub path: &'a [Here],
    pub start: i64,
    /// The commands; the last one is the move.
    pub commands: &'a [String],
    /// Our stop, and the stops when the same move is repeated.
    pub ours: &'a [i64],
    /// Our stop without the commands that prepare the move.
    pub unprepared: i64,
    pub gdb: i64,
    /// Whether the debugger refused the move.
    pub refused: bool,
    /// Our stack at the start.
    pub stack: &'a [ours::Frame],
}

/// A set of reasons.
pub type Reasons = BTreeSet<Reason>;

impl Case<'_> {
    /// Returns why GDB ended elsewhere, or an error without an explanation.
    pub fn explain(&self) -> Result<Reasons, String> {
        let verb = self.commands.last().unwrap().as_str();
        let ours = self.ours[0];
        let end = self.path.len() as i64 - 1;
        if ours < 0 && (self.gdb == 0 || self.refused) && verb.starts_with("reverse-") {
            return Ok([Reason::RecordBegins].into());
        }
        if ours > end && self.gdb == end {
            return Ok([Reason::RecordEnds].into());
        }
        let waits = matches!(
            verb.split(' ').next(),
            Some("step" | "next" | "nexti" | "finish" | "until" | "advance")
        );
        if waits && ours < self.gdb && self.jumps_far() {
            return Ok([Reason::LongJump].into());
        }
        if matches!(verb, "reverse-next" | "reverse-nexti")
            && self.gdb < ours
            && self.jumps(self.gdb, self.start)
        {
            return Ok([Reason::LongJump].into());
        }
        if verb == "until" && self.here(self.start).line == 0 {
            return Ok([Reason::NoLines].into());
        }
        let instructions = matches!(
            verb.trim_start_matches("reverse-").split(' ').next(),
            Some("stepi" | "nexti")
        );
        let between = self.start.min(self.gdb)..=self.start.max(self.gdb);
        if instructions && between.into_iter().any(|at| self.here(at).repeats) {
            return Ok([Reason::Repetition].into());
        }
        match verb {
            "step" | "next" | "until" => self.on_by_lines(),
            "continue" | "reverse-continue" => self.to_breakpoint().map(one),
            "reverse-step" | "reverse-next" => self.back_by_lines(),
            "nexti" => self.stopped_in_tail_call().ok_or_else(|| "?".to_owned()).map(one),
            "reverse-nexti" if self.gdb == self.start - 1 && self.is_jumped_to(self.start) => {
                Ok(one(Reason::TailCall))
            }
            "reverse-nexti" if ours == self.gdb + 1 && self.here(ours).entry => {
                Ok(one(Reason::FunctionsFirstLine))
            }
            _ if verb.contains(' ') && waits && self.stack.iter().any(|frame| frame.tail_caller) => {
                Ok(one(Reason::TailCall))
            }
            _ if self.leaves_copy(ours) => Ok(one(Reason::CopysEdge)),
            "finish" => self.finish().map(one),
            "reverse-finish" => self.reverse_finish().map(one),
            _ => Err("no rule is about this verb".to_owned()),
        }
    }

    /// We stop at the start of the line, GDB at the first instruction of its code.
    fn to_breakpoint(&self) -> Result<Reason, String> {
        let mut setup = self
            .commands
            .iter()
            .rev()
            .filter_map(|line| line.split_once("break "));
        let location = setup.next().and_then(|(_, location)| location.rsplit_once(':'));
        let line: u32 = match location.map(|(_, line)| line.parse()) {
            Some(Ok(line)) => line,
            _ => return Err("another breakpoint".to_owned()),
        };
        let end = self.path.len() as i64 - 1;
        let of_line = |at: &i64| self.here(*at).line == line;
        // A temporary breakpoint is deleted after its first hit.
        let once = self.commands.iter().any(|command| command.starts_with("tbreak"));
        let places = self.ours.iter().take(if once { 1 } else { FARTHER });
        let mut passed = places
            .map(|at| *at.clamp(&0, &end))
            .take_while(|&at| at != self.gdb);
        let gdb = self.gdb == 0 || self.gdb == end || of_line(&self.gdb);
        match passed.all(|at| of_line(&at)) && gdb {
            true => Ok(Reason::LinesBreakpoint),
            false => Err("another breakpoint".to_owned()),
        }
    }

    fn here(&self, at: i64) -> &Here {
        &self.path[usize::try_from(at).unwrap()]
    }

    fn begins_row(&self, at: i64) -> bool {
        self.here(at).pc == self.here(at).row
    }

    /// `advance` and `until LOCATION` end where the inlined copy that they start in ends.
    fn leaves_copy(&self, ours: i64) -> bool {
        let verb = self.commands.last().map(|verb| verb.split(' ').next());
        let start = self.here(self.start);
        matches!(verb, Some(Some("advance" | "until")))
            && !start.copies.is_empty()
            && self.here(ours).depth == start.depth
            && self.here(ours).copies != start.copies
    }

    /// `longjmp` left the frame, and GDB continued to a breakpoint, a location or the end.
    fn jumps_far(&self) -> bool {
        let end = self.path.len() as i64 - 1;
        let jumped = self.jumps(self.start, self.gdb);
        let located = self.commands.iter().any(|line| line.contains(' '));
        jumped && (located || self.gdb == end || self.here(self.gdb).depth < self.here(self.start).depth)
    }

    fn jumps(&self, from: i64, to: i64) -> bool {
        (from..to).any(|at| self.here(at).function.as_deref() == Some("__longjmp"))
    }

    fn begins_row_of(&self, at: i64, other: i64) -> bool {
        other >= 0 && self.here(at).pc == self.here(other).row
    }

    fn on_by_lines(&self) -> Result<Reasons, String> {
        let mut reasons = Reasons::new();
        for &at in self.ours.iter().take_while(|&&at| at < self.gdb) {
            let (here, start) = (self.here(at), self.here(self.start));
            let behind_copy = at > 0 && self.here(at - 1).copies.len() > here.copies.len();
            let until = self.commands.last().is_some_and(|verb| verb == "until");
            if !self.begins_row(at) {
                reasons.insert(Reason::IntoARow);
            } else if until && here.depth < start.depth && here.function == start.function {
                reasons.insert(Reason::UntilsRange);
            } else if start.copy && here.depth == start.depth && (!here.copies.is_empty() || behind_copy) {
                reasons.insert(Reason::CopysFirstInstruction);
            } else if (here.line, here.depth) == (start.line, start.depth) {
                reasons.insert(Reason::SameLine);
            } else {
                return Err(format!("GDB passes {at}"));
            }
        }
        if !self.ours.contains(&self.gdb) {
            let reason = [
                self.stopped_before_copy(),
                self.stopped_behind_call(),
                self.stopped_in_tail_call(),
                self.stopped_behind_copy(),
                self.stopped_at_statement(),
                self.stopped_in_loop(),
            ];
            let reason = reason.into_iter().flatten().next();
            reasons.insert(reason.ok_or("GDB stops where we do not")?);
        }
        Ok(reasons)
    }

    /// Before the first instruction of an inlined copy: GDB shows the caller there.
    fn stopped_before_copy(&self) -> Option<Reason> {
        self.here(self.gdb).copy.then_some(Reason::CopysFirstInstruction)
    }

    /// In a caller's line that contains the call, or in a later row of that line.
    fn stopped_behind_call(&self) -> Option<Reason> {
        let depth = self.here(self.gdb).depth;
        let callee = (self.start..self.gdb)
            .rev()
            .find(|&at| self.here(at).depth != depth)?;
        let line = self.here(self.gdb).line;
        let before = (0..callee).rev().find(|&at| self.here(at).depth <= depth)?;
        let began = (0..=before).rev().take_while(|&at| self.here(at).depth >= depth);
        let mut own = began.filter(|&at| self.here(at).depth == depth);
        let returned = self.here(callee).depth > depth;
        (returned && own.any(|at| self.here(at).line == line)).then_some(Reason::BackInALine)
    }

    /// In a function that was entered by a jump: the caller is the same, so GDB treats it as a
    /// call.
    fn stopped_in_tail_call(&self) -> Option<Reason> {
        let jumped = (self.start + 1..=self.gdb).any(|at| self.is_jumped_to(at));
        let same = self.here(self.gdb).depth <= self.here(self.start).depth + 1;
        (jumped && same).then_some(Reason::TailCall)
    }

    /// Returns whether a function begins here without a call instruction before.
    fn is_jumped_to(&self, at: i64) -> bool {
        let is_entry = |here: &&Here| here.entry && here.depth == self.here(at - 1).depth;
        at > 0 && self.path.get(at as usize).is_some_and(|here| is_entry(&here))
    }

    /// After the last instruction of an inlined copy, or in a copy after its first instruction.
    fn stopped_behind_copy(&self) -> Option<Reason> {
        let (here, before) = (self.here(self.gdb), self.here(self.gdb - 1));
        let left = here.depth == before.depth && here.copies != before.copies;
        let entered = (self.start + 1..self.gdb).any(|at| self.here(at).copy) && !here.copies.is_empty();
        (left || entered).then_some(Reason::CopysEdge)
    }

    /// `until` uses its starting row as the line. After that row, GDB lets it go back.
    fn stopped_in_loop(&self) -> Option<Reason> {
        let start = self.here(self.start);
        let until = self.commands.last().is_some_and(|verb| verb == "until");
        let mut on = (self.start..self.gdb).map(|at| self.here(at));
        let other_row = on.any(|here| here.line == start.line && here.row != start.row);
        let back = self.here(self.gdb).pc <= start.pc && self.begins_row(self.gdb);
        // In another call of the function, because `until` does not check calls.
        let left = (self.start..self.gdb).any(|at| self.here(at).depth != start.depth);
        let other_call = left && self.here(self.gdb).function == start.function;
        (until && (other_row && back || other_call)).then_some(Reason::UntilsRange)
    }

    /// At a statement of a line that was left for a row without a statement.
    fn stopped_at_statement(&self) -> Option<Reason> {
        let here = self.here(self.gdb);
        let before = (self.start..self.gdb).rev().map(|at| self.here(at));
        let mut left = before.take_while(|before| before.depth == here.depth && !before.statement);
        let stops = self.begins_row(self.gdb) && here.statement;
        (stops && left.any(|left| left.line != here.line)).then_some(Reason::NoStatement)
    }

    fn back_by_lines(&self) -> Result<Reasons, String> {
        let mut reasons = Reasons::new();
        for &at in self.ours.iter().take_while(|&&at| at > self.gdb) {
            let here = self.here(at);
            reasons.insert(if !self.begins_row(at) {
                Reason::IntoARow
            } else if here.entry {
                Reason::FunctionsFirstLine
            } else if here.copy {
                Reason::CopysFirstInstruction
            } else if self.is_current_line(at) {
                Reason::CurrentLine
            } else {
                return Err(format!("GDB passes {at}"));
            });
        }
        if !self.ours.contains(&self.gdb) {
            let here = self.here(self.gdb);
            let behind = self.path.get(self.gdb as usize + 1).unwrap_or(here);
            let left_copy = here.depth == behind.depth && here.copies != behind.copies;
            reasons.insert(if self.gdb == self.start && here.copy {
                Reason::CopysFirstInstruction
            } else if self.begins_row(self.gdb) {
                Reason::RowByRow
            } else if left_copy {
                Reason::CopysEdge
            } else {
                return Err("GDB stops where we do not".to_owned());
            });
        }
        Ok(reasons)
    }

    /// Returns whether GDB, going backward, stops at the first instruction of a row. It does so
    /// after other instructions of the row, or when the line is not the current one. The current
    /// line changes only in the middle of rows and between copies.
    fn is_current_line(&self, at: i64) -> bool {
        let depth = self.here(at).depth;
        let own = (at + 1..=self.start)
            .rev()
            .filter(|&own| self.here(own).depth == depth);
        let (mut line, mut before) = (None, None);
        for own in own.map(|own| self.here(own)) {
            let entered = before.is_none_or(|before: &Here| before.copies != own.copies);
            if entered || own.pc != own.row {
                line = Some(own.line);
            }
            before = Some(own);
        }
        let of_row = before.is_some_and(|before| before.row == self.here(at).row);
        line == Some(self.here(at).line) && !of_row
    }

    fn finish(&self) -> Result<Reason, String> {
        if self.selected(|frame| frame.tail_caller) || self.is_jumped_to(self.ours[0]) {
            return Ok(Reason::TailCall);
        }
        let end = self.path.len() as i64 - 1;
        let same = self.gdb == end || self.here(self.gdb).depth <= self.here(self.start).depth;
        match self.selected(|frame| frame.inlined) && same {
            true => Ok(Reason::CopysEdge),
            false => Err("another return".to_owned()),
        }
    }

    /// Returns whether one of the frames up to the selected one satisfies `is_such`.
    fn selected(&self, is_such: impl Fn(&ours::Frame) -> bool) -> bool {
        self.stack.iter().take(self.commands.len()).any(is_such)
    }

    fn reverse_finish(&self) -> Result<Reason, String> {
        let prepared = self.commands.len() > 1;
        let is_call = |at: i64| {
            at == self.unprepared || at < self.unprepared && self.begins_row_of(at, self.unprepared)
        };
        if prepared && is_call(self.gdb) {
            return Ok(Reason::NewestFrame);
        }
        let function = &self.here(self.start).function;
        let is_entry = |at: i64| self.here(at).entry && self.here(at).function == *function;
        let nearest = (0..=self.start).rev().find(|&at| is_entry(at));
        if nearest == Some(self.gdb + 1) && self.ours[0] < self.gdb {
            return Ok(Reason::NearestEntry);
        }
        let (here, start) = (self.here(self.gdb), self.here(self.start));
        if self.stack[0].inlined && here.depth == start.depth && (here.copy || here.entry) {
            return Ok(Reason::CopysFirstInstruction);
        }
        let same = here.depth == start.depth && self.begins_row(self.gdb);
        if self.stack[0].inlined && (same || nearest == Some(self.gdb + 1)) {
            return Ok(Reason::CopysEdge);
        }
        // GDB makes one step there, to the beginning of a row.
        if (start.copy || start.entry) && self.gdb < self.start && self.begins_row(self.gdb) {
            return Ok(Reason::CopysFirstInstruction);
        }
        Err("another call".to_owned())
    }
}

fn one(reason: Reason) -> Reasons {
    [reason].into()
}

/// Returns why two stacks at one position differ: nothing for equal stacks, an error without a
/// rule.
pub fn of_stacks(ours: &[ours::Frame], gdb: &[judge::Frame]) -> Result<Reasons, String> {
    let mut reasons = Reasons::new();
    let tail_callers = ours.iter().filter(|frame| frame.tail_caller).count();
    let guessed = gdb.iter().filter(|frame| frame.kind == "tail_caller").count();
    if tail_callers != guessed {
        reasons.insert(Reason::TailCall);
    }
    let theirs: Vec<Shown> = gdb
        .iter()
        .filter(|frame| frame.kind != "tail_caller")
        .map(|frame| Shown::new(frame.pc, &frame.function, frame.line, frame.kind == "inlined"))
        .collect();
    let shown: Vec<Shown> = without_tail_callers(ours)
        .map(|frame| Shown::new(frame.pc, &frame.function, frame.line, frame.inlined))
        .collect();
    let copies = shown.iter().take_while(|frame| frame.inlined).count();
    let Some(skipped) = (0..=copies).find(|&skipped| shown[skipped..] == theirs) else {
        // The stack pointer is already changed, so the stack is that of another frame.
        if gdb[0].function.as_deref() == Some("__longjmp") {
            return Ok([Reason::LongJump].into());
        }
        let lines = |frames: &[Shown]| format!("{frames:?}").replace("}, ", "}\n    ");
        return Err(format!(
            "\n  ours: {}\n  GDB's: {}",
            lines(&shown),
            lines(&theirs)
        ));
    };
    if ours
        .iter()
        .any(|frame| frame.function.as_deref().is_some_and(is_of_lambda))
    {
        reasons.insert(Reason::Lambda);
    }
    if skipped > 0 {
        reasons.insert(Reason::CopysFirstInstruction);
    }
    Ok(reasons)
}

/// Returns the frames without callers that jumped, and without the copies inlined into them.
fn without_tail_callers(frames: &[ours::Frame]) -> impl Iterator<Item = &ours::Frame> {
    let in_tail_caller = |at: usize| {
        let around = frames[at..].iter().find(|frame| !frame.inlined);
        around.is_some_and(|frame| frame.tail_caller)
    };
    (0..frames.len())
        .filter(move |&at| !in_tail_caller(at))
        .map(|at| &frames[at])
}

/// The compared part of a frame.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    /// The address of a frame without a line, which may have several correct names.
    pc: Option<u64>,
    /// The function of other frames, without parameters.
    function: Option<String>,
    line: Option<u32>,
    inlined: bool,
}

impl Shown {
    fn new(pc: u64, function: &Option<String>, line: Option<u32>, inlined: bool) -> Self {
        let plain = |name: &String| match is_of_lambda(name) {
            true => "lambda".to_owned(),
            false => name.split('(').next().unwrap_or_default().to_owned(),
        };
        Self {
            pc: line.is_none().then_some(pc),
            function: function.as_ref().filter(|_| line.is_some()).map(plain),
            line,
            inlined,
        }
    }
}

fn is_of_lambda(name: &str) -> bool {
    name.contains("lambda") || name.contains("operator()")
}
