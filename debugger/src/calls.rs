//! Queries over the call forest: the call tree, callers, calls of a function.

use crate::error::{Error, Result};
use crate::functions::{FunctionCode, FunctionEntries};
use crate::inlined::{self, Execution, InlinedCode};
use crate::latency::{CallTimer, Unit};
use crate::own_code::CodeOrigin;
use crate::session::{Session, Thread};
use crate::source;
use crate::time::{Duration, Time};
use backtrail_decoder::{CallId, Entered, Forest, Left, Stage, Watch};
use backtrail_pt::Avma;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The number of calls between two checks for cancellation.
const OFTEN: usize = 4096;

/// A call, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallView {
    /// `c12`, for `goto c12`. An execution of an inlined function has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The depth below the first shown call.
    pub depth: usize,
    /// The function; its address when it has no name.
    pub function: String,
    /// Whether it is an execution of an inlined function.
    pub inlined: bool,
    /// The library that its code belongs to; absent for the user's own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// The source line at which the function begins.
    pub file: Option<String>,
    /// The line there.
    pub line: Option<u32>,
    /// Its first instruction.
    pub position: String,
    /// The number of instructions that it and its callees executed.
    pub instructions: u64,
    /// The bounds of its beginning.
    pub time: Option<Time>,
    /// The length.
    pub duration: Option<Duration>,
    /// How it began, if not by a call.
    pub entered: Option<String>,
    /// How it ended, if not by a return.
    pub left: Option<String>,
    /// The current position is in it, and in none of the calls shown below it.
    pub current: bool,
}

impl CallView {
    /// Returns the name of the call, if it has one, and its position.
    #[must_use]
    pub fn name_and_position(&self) -> String {
        match &self.call {
            Some(name) => format!("{name} {}", self.position),
            None => self.position.clone(),
        }
    }
}

/// A call tree, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallTree {
    /// In order of time, parents before children.
    pub calls: Vec<CallView>,
    /// Whether there are more calls than requested.
    pub more: bool,
}

/// An entry of a call tree.
enum TreeEntry {
    /// A call.
    Call(CallId),
    /// An execution of an inlined function.
    Inlined(Execution),
}

/// The number of calls of a function by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// The calling function.
    pub function: Option<String>,
    /// The calling line's file.
    pub file: Option<String>,
    /// The calling line.
    pub line: Option<u32>,
    /// The number of calls.
    pub count: u64,
    /// The first of the calls: its call instruction.
    pub first: String,
    /// The last of the calls.
    pub last: String,
}

impl Caller {
    /// Returns whether another caller is the same line of the same function.
    #[must_use]
    pub fn is_same_line(&self, other: &Self) -> bool {
        (&self.function, &self.file, self.line) == (&other.function, &other.file, other.line)
    }
}

/// The number of executions, and the first instructions of the first and the last one.
type Executions = (u64, u64, u64);
/// A copy, and the address and the period of the first instruction of an execution.
type CopyPlace = (usize, Option<Avma>, usize);
/// The function, file and line of a call.
type CallerLine = (Option<String>, Option<String>, Option<u32>);

/// Answers about the calls of one thread.
pub struct Calls<'a> {
    session: &'a Session,
    thread: &'a Thread,
    forest: &'a Forest,
}

impl<'a> Calls<'a> {
    /// Returns the calls of a thread.
    ///
    /// # Errors
    ///
    /// If the thread has no history; when canceled.
    pub fn new(session: &'a Session, thread: &'a Thread, watch: &Watch<'_>) -> Result<Self> {
        if thread.history.is_empty() {
            return Err(Error::NoHistory(thread.tid));
        }
        Ok(Self {
            session,
            thread,
            forest: session.forest(thread, watch)?,
        })
    }

    /// Returns the calls of a thread, for answers about its whole history.
    ///
    /// # Errors
    ///
    /// As with [`Calls::new`], and if the beginning of the history is not decoded yet.
    pub fn of_all(session: &'a Session, thread: &'a Thread, watch: &Watch<'_>) -> Result<Self> {
        thread.needs_beginning()?;
        Self::new(session, thread, watch)
    }

    /// The forest.
    #[must_use]
    pub fn forest(&self) -> &'a Forest {
        self.forest
    }

    /// Returns the calls below `top`, and the executions of inlined functions in them. Without
    /// `top`, all roots are tops. The tree has at most `depth` levels, and at most `limit` entries.
    ///
    /// # Errors
    ///
    /// If one of them began in history that is not decoded yet; when canceled.
    pub fn tree(
        &self,
        top: Option<CallId>,
        (depth, limit): (usize, usize),
        here: u64,
        watch: &Watch<'_>,
    ) -> Result<CallTree> {
        let tops: Vec<CallId> = match top {
            Some(top) => vec![top],
            None => self.forest.roots().collect(),
        };
        let inlined = match self.session.process(self.thread) {
            Some(_) => Some(InlinedCode::new(self.session, self.thread, watch)?),
            None => None,
        };
        let around: Vec<CallId> = match self.forest.call_at(here) {
            Some(call) => self.forest.ancestors(call).collect(),
            None => Vec::new(),
        };
        let is_around = |entry: &TreeEntry| match entry {
            TreeEntry::Call(call) => around.contains(call),
            TreeEntry::Inlined(execution) => {
                around.contains(&execution.call) && (execution.first..execution.end).contains(&here)
            }
        };
        let mut calls = Vec::new();
        let mut innermost = None;
        let tops = tops.into_iter().rev();
        let mut pending: Vec<(TreeEntry, usize)> = tops.map(|call| (TreeEntry::Call(call), 0)).collect();
        let mut more = false;
        while let Some((entry, level)) = pending.pop() {
            if calls.len() >= limit {
                more = true;
                break;
            }
            if is_around(&entry) {
                innermost = Some(calls.len());
            }
            match entry {
                TreeEntry::Call(call) => {
                    calls.push(self.view(call, level)?);
                    if level + 1 < depth {
                        // One more than fits shows that there are more.
                        let (below, are_more) = self.entries_below(call, inlined.as_ref(), limit + 1)?;
                        more |= are_more;
                        let below = below.into_iter().map(|(entry, below)| (entry, level + 1 + below));
                        let shown: Vec<_> = below.filter(|(_, level)| *level < depth).collect();
                        pending.extend(shown.into_iter().rev());
                    }
                }
                TreeEntry::Inlined(execution) => {
                    calls.push(self.view_of_inlined(&execution, inlined.as_ref(), level));
                }
            }
        }
        if let Some(view) = innermost.and_then(|at| calls.get_mut(at)) {
            view.current = true;
        }
        Ok(CallTree { calls, more })
    }

    /// Returns the first calls that a call made, and the first executions of inlined functions in
    /// it. Each has the number of the executions around it. The second value is whether more than
    /// these may be there.
    fn entries_below(
        &self,
        call: CallId,
        inlined: Option<&InlinedCode<'_>>,
        limit: usize,
    ) -> Result<(Vec<(TreeEntry, usize)>, bool)> {
        let mut more = false;
        let history = &self.thread.history;
        let mut entries = Vec::new();
        for child in self.forest.children(call).take(limit) {
            let bounds = self.forest.call(child);
            let site = match bounds.entered {
                Entered::Call { site } | Entered::TailCall { site } => history.pc(site),
                _ => None,
            };
            entries.push((bounds.first, bounds.end, site, TreeEntry::Call(child)));
        }
        if let Some(inlined) = inlined {
            let (executions, are_more) = inlined.executions_in(call, limit)?;
            more = are_more;
            for execution in executions {
                let (first, end) = (execution.first, execution.end);
                entries.push((first, end, history.pc(first), TreeEntry::Inlined(execution)));
            }
        }
        entries.sort_by_key(|(first, end, ..)| (*first, std::cmp::Reverse(*end)));
        let mut open: Vec<Execution> = Vec::new();
        let mut below = Vec::with_capacity(entries.len());
        for (first, _, pc, entry) in entries {
            let is_outside = |execution: &Execution| {
                let copy = inlined.and_then(|inlined| inlined.copy_of(execution));
                let in_copy = |pc| copy.is_none_or(|copy| copy.copy.code.contains(pc));
                execution.end <= first || pc.is_some_and(|pc| !in_copy(pc))
            };
            while open.last().is_some_and(is_outside) {
                open.pop();
            }
            let level = open.len();
            if let TreeEntry::Inlined(execution) = &entry {
                open.push(execution.clone());
            }
            below.push((entry, level));
        }
        Ok((below, more))
    }

    /// Returns the view of an execution of an inlined function.
    fn view_of_inlined(
        &self,
        execution: &Execution,
        inlined: Option<&InlinedCode<'_>>,
        depth: usize,
    ) -> CallView {
        let copy = inlined.and_then(|inlined| inlined.copy_of(execution));
        let declared = copy.and_then(|copy| copy.declared.clone());
        let times = self.session.times();
        let call_timer = CallTimer::new(self.thread, self.forest, Unit::Ticks, times);
        let span = call_timer.span_within(execution.call, execution.first..execution.end);
        let time = self.thread.history.time(execution.first);
        let symbols = self.session.symbols_at(self.thread, execution.first);
        let module = symbols.zip(copy);
        let module = module.and_then(|(symbols, copy)| symbols.module_at(copy.copy.begin));
        let origin = CodeOrigin {
            function: Some(&execution.function),
            file: declared.as_ref().map(|(file, _)| &**file),
            module: module.map(|module| &*module.name),
        };
        let library = origin.library();
        let may_be_rest = "may continue an earlier execution".to_owned();
        CallView {
            call: None,
            depth,
            function: execution.function.to_string(),
            inlined: true,
            library,
            file: declared.as_ref().map(|(file, _)| file.to_string()),
            line: declared.map(|(_, line)| line),
            position: self.thread.position(execution.first).to_string(),
            instructions: execution.end.saturating_sub(execution.first),
            time: time.map(|begin| times.time(begin)),
            duration: span.ok().map(|span| times.duration(span.into())),
            entered: (!execution.is_certain).then_some(may_be_rest),
            left: None,
            current: false,
        }
    }

    /// One call.
    ///
    /// # Errors
    /// When it began in what is not decoded yet.
    pub fn view(&self, id: CallId, depth: usize) -> Result<CallView> {
        let call = self.forest.call(id);
        if self.thread.is_cut_off(&call) {
            return Err(Error::Earlier);
        }
        let name = self.thread.name_of(self.forest, id).ok_or(Error::Earlier)?;
        let history = &self.thread.history;
        let symbols = self.session.symbols_at(self.thread, call.first);
        let function = symbols.and_then(|symbols| symbols.function_at(call.function));
        let row = symbols
            .and_then(|symbols| symbols.line_at(call.function))
            .filter(|row| row.line != 0);
        let module = symbols.and_then(|symbols| symbols.module_at(call.function));
        let declared = function.as_ref().and_then(|function| function.declared.clone());
        let (file, line) = declared.or(row.map(|row| (row.file, row.line))).unzip();
        let times = self.session.times();
        let call_timer = CallTimer::new(self.thread, self.forest, Unit::Ticks, times);
        let origin = CodeOrigin {
            function: function.as_ref().map(|function| &*function.name),
            file: file.as_deref(),
            module: module.map(|module| &*module.name),
        };
        let library = origin.library();
        Ok(CallView {
            call: Some(name.to_string()),
            depth,
            inlined: false,
            library,
            function: function.map_or_else(
                || self.nameless(call.function, call.first),
                |function| function.name.to_string(),
            ),
            file: file.map(|file| file.to_string()),
            line,
            position: self.thread.position(call.first).to_string(),
            instructions: call.end.saturating_sub(call.first),
            time: history.time(call.first).map(|begin| times.time(begin)),
            duration: call_timer.span(id).ok().map(|span| times.duration(span.into())),
            entered: describe_entered(call.entered),
            left: describe_left(call.left),
            current: false,
        })
    }

    fn nameless(&self, at: Avma, index: u64) -> String {
        let symbols = self.session.symbols_at(self.thread, index);
        let module = symbols.and_then(|symbols| symbols.module_at(at));
        match module {
            Some(module) => format!("{at} in {}", source::short(&module.name)),
            None => at.to_string(),
        }
    }

    /// The calls of the functions with these entries, in order.
    ///
    /// # Errors
    /// When canceled.
    pub fn of(&self, entries: &FunctionEntries, watch: &Watch<'_>) -> Result<Cow<'a, [CallId]>> {
        let process = self.session.process(self.thread);
        let is_of_epoch = |at: Avma, epoch: usize| {
            let entry = || {
                let symbols = &process?.epochs().get(epoch)?.symbols;
                symbols.function_at(at).map(|function| function.entry)
            };
            entries.contains(at, epoch) || entry().is_some_and(|entry| entries.contains(entry, epoch))
        };
        let all = self.forest.by_function(watch)?;
        let changing = process.filter(|process| !process.has_one_epoch());
        if let Some(process) = changing {
            let mut calls: Vec<CallId> = Vec::new();
            for (at, of_address) in all {
                let mut known = BTreeMap::new();
                let mut is_of = |id: &CallId| {
                    let version = self.thread.history.version(self.forest.call(*id).first);
                    let epoch = process.epoch_at(version);
                    *known.entry(epoch).or_insert_with(|| is_of_epoch(at, epoch))
                };
                calls.extend(of_address.iter().copied().filter(|id| is_of(id)));
            }
            calls.sort_unstable();
            return Ok(Cow::Owned(calls));
        }
        let is_of = |at: Avma| is_of_epoch(at, 0);
        let mut found = all.filter(|&(at, _)| is_of(at)).map(|(_, calls)| calls);
        let first = found.next().unwrap_or(&[]);
        let Some(second) = found.next() else {
            return Ok(Cow::Borrowed(first));
        };
        let mut calls = [first, second].concat();
        found.for_each(|more| calls.extend(more));
        calls.sort_unstable();
        Ok(Cow::Owned(calls))
    }

    /// Returns the lines that inlined functions were called from: the number of executions, and the
    /// first and last of them.
    fn inlining_lines(
        &self,
        code: &FunctionCode,
        watch: &Watch<'_>,
    ) -> Result<BTreeMap<CallerLine, Executions>> {
        let mut lines = BTreeMap::new();
        let mut of_place: BTreeMap<CopyPlace, Executions> = BTreeMap::new();
        let process = self.session.process(self.thread);
        inlined::each_begin(self.session, self.thread, &code.copies, watch, |copy, first| {
            let version = self.thread.history.version(first);
            let epoch = process.map_or(0, |process| process.epoch_at(version));
            let place = (copy, self.thread.history.pc(first), epoch);
            let known = of_place.entry(place).or_insert((0, first, first));
            *known = (known.0 + 1, known.1.min(first), known.2.max(first));
        })?;
        for ((copy, pc, _), (count, first, last)) in of_place {
            let name = code.copies.get(copy).map(|copy| &copy.name);
            let symbols = self.session.symbols_at(self.thread, first);
            let frames = symbols.zip(pc).map(|(symbols, pc)| symbols.frames_at(pc));
            let frames = frames.unwrap_or_default().into_iter();
            let mut around = frames.skip_while(|frame| !frame.inlined || Some(&frame.function) != name);
            let caller = around.nth(1);
            let location = caller.as_ref().and_then(|frame| frame.location.clone());
            let line = (
                caller.map(|frame| frame.function.to_string()),
                location.as_ref().map(|location| location.file.to_string()),
                location.map(|location| location.line),
            );
            let known = lines.entry(line).or_insert((0, first, last));
            *known = (known.0 + count, known.1.min(first), known.2.max(last));
        }
        Ok(lines)
    }

    /// Returns the callers of functions, by calling line, the most frequent
    /// first.
    ///
    /// # Errors
    ///
    /// If the beginning of the history is not decoded yet; when canceled.
    pub fn callers(&self, code: &FunctionCode, watch: &Watch<'_>) -> Result<Vec<Caller>> {
        // By address and period.
        let mut sites: BTreeMap<(Option<Avma>, usize), (u64, u64, u64)> = BTreeMap::new();
        let process = self.session.process(self.thread);
        let of_function = self.of(&code.entries, watch)?;
        for (number, &id) in of_function.iter().enumerate() {
            if number % OFTEN == 0 {
                watch.report(Stage::Measure, number as u64, of_function.len() as u64)?;
            }
            let call = self.forest.call(id);
            let (pc, index) = match call.entered {
                Entered::Call { site } | Entered::TailCall { site } => (self.thread.history.pc(site), site),
                _ => (None, call.first),
            };
            let version = self.thread.history.version(index);
            let epoch = process.map_or(0, |process| process.epoch_at(version));
            let known = sites.entry((pc, epoch)).or_insert((0, index, index));
            known.0 += 1;
            known.2 = index;
        }
        // A line may have several calls of it.
        let mut lines = self.inlining_lines(code, watch)?;
        for ((pc, epoch), (count, first, last)) in sites {
            let epoch = process.and_then(|process| process.epochs().get(epoch));
            let frames = pc
                .zip(epoch)
                .map(|(pc, epoch)| epoch.symbols.frames_at(pc))
                .unwrap_or_default();
            let frame = frames.into_iter().next();
            let location = frame.as_ref().and_then(|frame| frame.location.clone());
            let line = (
                frame.map(|frame| frame.function.to_string()),
                location.as_ref().map(|location| location.file.to_string()),
                location.map(|location| location.line),
            );
            let known = lines.entry(line).or_insert((0, first, last));
            *known = (known.0 + count, known.1.min(first), known.2.max(last));
        }
        let lines = lines.into_iter();
        let mut callers: Vec<Caller> = lines
            .map(|((function, file, line), (count, first, last))| Caller {
                function,
                file,
                line,
                count,
                first: self.thread.position(first).to_string(),
                last: self.thread.position(last).to_string(),
            })
            .collect();
        callers.sort_by_key(|caller| std::cmp::Reverse(caller.count));
        Ok(callers)
    }
}

fn describe_entered(entered: Entered) -> Option<String> {
    Some(match entered {
        Entered::Call { .. } => return None,
        Entered::TailCall { .. } => "tail call".to_owned(),
        Entered::Signal { .. } => "signal handler".to_owned(),
        Entered::Adopted => "called before history begins".to_owned(),
        Entered::HistoryStart => "history begins inside".to_owned(),
        Entered::AfterGap => "after a gap".to_owned(),
        Entered::Resumed => "resumed on its own stack".to_owned(),
        _ => "entered in an unknown way".to_owned(),
    })
}

fn describe_left(left: Left) -> Option<String> {
    Some(match left {
        Left::Return => return None,
        Left::TailCall => "tail call".to_owned(),
        Left::Unwound => "unwound".to_owned(),
        Left::SignalReturn => "signal return".to_owned(),
        Left::Unknown => "left in an unknown way".to_owned(),
        Left::HistoryEnd => "still running at the end".to_owned(),
        Left::Gap => "cut off by a gap".to_owned(),
    })
}
