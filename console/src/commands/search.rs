//! The executions of code: `search`, `first`, `last`, `run-to-call`.

use super::{Context, find, goto};
use crate::output::{FileHit, LineHit, Output, SearchView};
use backtrail_debugger::calls::Calls;
use backtrail_debugger::functions::{self, InlinedFunction};
use backtrail_debugger::inlined;
use backtrail_debugger::navigator::{HistoryEdge, Navigator};
use backtrail_debugger::session::{Process, Thread};
use backtrail_debugger::{Error, Result};
use backtrail_decoder::{CallId, PcSet, Watch};
use regex::Regex;
use std::collections::{BTreeMap, HashMap};

/// `search` shows no more of a kind.
const MAX_FOUND: usize = 100;

/// `search` counts the executions of no more inlined copies.
const MAX_COPIES: usize = 5000;

pub(super) fn search(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    if arguments.is_empty() {
        return Err(find("search")?.misuse("a regular expression is required"));
    }
    let pattern = functions::regex(arguments)?;
    let navigator = &*context.navigator;
    let mut found = SearchMatches::default();
    let current = navigator.thread()?;
    let others = navigator.session().threads().iter();
    let others = others.filter(|thread| thread.tid != current.tid);
    // Positions are those of the current thread, where it executed something.
    for thread in std::iter::once(current).chain(others) {
        if !thread.history.is_empty() {
            found.add_calls(called(navigator, thread, &pattern, context.watch)?);
            found.add_lines(executed(navigator, thread, &pattern, context.watch)?);
        }
    }
    Ok(Output::Search(found.view(arguments)))
}

/// The matches in all threads.
#[derive(Default)]
struct SearchMatches {
    functions: CalledFunctions,
    /// The places of functions in the list, by name.
    known: HashMap<String, usize>,
    files: BTreeMap<String, FileHit>,
    lines: BTreeMap<(String, u32), LineHit>,
    more: bool,
}

impl SearchMatches {
    fn add_calls(&mut self, (functions, more): (CalledFunctions, bool)) {
        self.more |= more;
        for function in functions {
            let known = self.known.get(&function.0).copied();
            match known.and_then(|at| self.functions.get_mut(at)) {
                Some(known) => known.1 = known.1.saturating_add(function.1),
                None => {
                    self.known.insert(function.0.clone(), self.functions.len());
                    self.functions.push(function);
                }
            }
        }
    }

    /// Adds what a thread executed: the first files and lines in the order of names. So the first
    /// of all threads are complete.
    fn add_lines(&mut self, (files, lines, more): (Vec<FileHit>, Vec<LineHit>, bool)) {
        self.more |= more;
        for file in files {
            let known = self.files.entry(file.file.clone());
            // Threads may have executed the same lines.
            known
                .and_modify(|known| known.lines = known.lines.max(file.lines))
                .or_insert(file);
        }
        for line in lines {
            let known = self.lines.entry((line.file.clone(), line.line));
            known
                .and_modify(|known| known.count = known.count.saturating_add(line.count))
                .or_insert(line);
        }
    }

    fn view(self, pattern: &str) -> SearchView {
        let longest = [self.functions.len(), self.files.len(), self.lines.len()];
        let more = longest.into_iter().any(|length| length > MAX_FOUND);
        SearchView {
            pattern: pattern.to_owned(),
            functions: self.functions.into_iter().take(MAX_FOUND).collect(),
            files: self.files.into_values().take(MAX_FOUND).collect(),
            lines: self.lines.into_values().take(MAX_FOUND).collect(),
            more: self.more || more,
        }
    }
}

/// Functions that match and were called: how often, and the positions of the last call and the
/// first.
type CalledFunctions = Vec<(String, u64, String, String)>;

/// The functions that match and that a thread called, the last called first.
fn called(
    navigator: &Navigator,
    thread: &Thread,
    pattern: &Regex,
    watch: &Watch<'_>,
) -> Result<(CalledFunctions, bool)> {
    let Some(process) = navigator.session().process(thread) else {
        return Ok((Vec::new(), false));
    };
    let calls = Calls::of_all(navigator.session(), thread, watch)?;
    let mut found: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    let epoch_of = |call: &CallId| {
        let first = calls.forest().call(*call).first;
        process.epoch_at(thread.history.version(first))
    };
    // The calls of an address are in order of time, and so are the periods.
    let by_function = calls.forest().by_function(watch)?;
    let by_epoch = by_function.flat_map(|(at, of_address)| {
        let runs = of_address.chunk_by(|one, next| epoch_of(one) == epoch_of(next));
        runs.map(move |run| (at, run))
    });
    for (at, of_function) in by_epoch {
        let ([first, ..], [.., last]) = (of_function, of_function) else {
            continue;
        };
        let epoch = process.epochs().get(epoch_of(first));
        let function = epoch.and_then(|epoch| epoch.symbols.function_at(at));
        let Some(function) = function.filter(|function| pattern.is_match(&function.name)) else {
            continue;
        };
        let [first, last] = [first, last].map(|&call| calls.forest().call(call).first);
        let known = found.entry(function.name.to_string()).or_insert((0, first, last));
        *known = (
            known.0 + of_function.len() as u64,
            known.1.min(first),
            known.2.max(last),
        );
    }
    let (copies, more) = executed_copies(process, thread, pattern);
    let mut of_copy = vec![None; copies.len()];
    inlined::each_begin(navigator.session(), thread, &copies, watch, |copy, first| {
        if let Some(known) = of_copy.get_mut(copy) {
            let (count, earliest, latest) = known.unwrap_or((0, first, first));
            *known = Some((count + 1, first.min(earliest), first.max(latest)));
        }
    })?;
    for (copy, executions) in copies.iter().zip(of_copy) {
        let Some((count, first, last)): Option<(u64, u64, u64)> = executions else {
            continue;
        };
        let known = found.entry(copy.name.to_string()).or_insert((0, first, last));
        *known = (known.0 + count, known.1.min(first), known.2.max(last));
    }
    let mut functions: Vec<(String, (u64, u64, u64))> = found.into_iter().collect();
    functions.sort_by_key(|(_, (_, _, last))| std::cmp::Reverse(*last));
    let position = |index| thread.position(index).to_string();
    let functions = functions
        .into_iter()
        .map(|(name, (count, first, last))| (name, count, position(last), position(first)))
        .collect();
    Ok((functions, more))
}

/// Returns the inlined copies of matching functions that the thread executed, and whether there are
/// more.
fn executed_copies(process: &Process, thread: &Thread, pattern: &Regex) -> (Vec<InlinedFunction>, bool) {
    let mut copies = Vec::new();
    let mut tested: usize = 0;
    for (epoch, modules) in process.epochs().iter().enumerate() {
        for copy in modules.symbols.inlined_copies_matching(pattern) {
            if tested >= MAX_COPIES {
                return (copies, true);
            }
            tested += 1;
            let copy = InlinedFunction::new(copy, epoch);
            if thread.history.next_at(0, &copy.copy.code).is_some() {
                copies.push(copy);
            }
        }
    }
    (copies, false)
}

/// The files that match and had a line run in a thread, and the lines that ran and whose text
/// matches.
fn executed(
    navigator: &Navigator,
    thread: &Thread,
    pattern: &Regex,
    watch: &Watch<'_>,
) -> Result<(Vec<FileHit>, Vec<LineHit>, bool)> {
    let coverage = navigator.session().coverage(thread, watch)?;
    let mut by_name: Vec<_> = coverage.files().collect();
    by_name.sort_unstable_by_key(|(file, _)| *file);
    let (mut files, mut lines, mut more) = (Vec::new(), Vec::new(), false);
    for (file, counts) in by_name {
        if watch.is_canceled() {
            return Err(Error::Canceled);
        }
        if pattern.is_match(file) {
            more |= files.len() >= MAX_FOUND;
            files.push(FileHit {
                file: file.to_string(),
                lines: counts.len() as u64,
            });
        }
        let texts = navigator.sources.lines(file, 1, usize::MAX).unwrap_or_default();
        for (line, text) in (1u32..).zip(texts) {
            // A line that is not in the bundle cannot match.
            let text = text.filter(|text| pattern.is_match(text));
            let Some((count, text)) = counts.get(&line).zip(text) else {
                continue;
            };
            if lines.len() >= MAX_FOUND {
                more = true;
                break;
            }
            let starts: PcSet = count.starts.iter().copied().collect();
            let len = thread.history.len();
            let ends = thread
                .history
                .next_at(0, &starts)
                .zip(thread.history.prev_at(len, &starts));
            let Some((first, last)) = ends else { continue };
            lines.push(LineHit {
                file: file.to_string(),
                line,
                text,
                count: count.count,
                first: thread.position(first).to_string(),
                last: thread.position(last).to_string(),
            });
        }
    }
    files.truncate(MAX_FOUND);
    Ok((files, lines, more))
}

pub(super) fn first(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    go_to_hit(context, arguments, HistoryEdge::Start)
}

pub(super) fn last(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    go_to_hit(context, arguments, HistoryEdge::End)
}

/// Moves to where a location was executed first or last, in any thread.
fn go_to_hit(context: &mut Context<'_>, arguments: &str, edge: HistoryEdge) -> Result<Output> {
    let navigator = &*context.navigator;
    let hits = navigator.resolve(arguments, context.watch)?.hits;
    let found = navigator.outermost_hit(&hits, edge, context.watch)?;
    let Some(to) = found else {
        let problem = format!("{arguments} did not run in {}", searched(navigator)?);
        return Err(Error::Cannot(problem));
    };
    let stop = context.navigator.go_to(to)?;
    goto::moved_to_thread(context, stop)
}

/// Names the history that was searched.
fn searched(navigator: &Navigator) -> Result<String> {
    let tid = navigator.thread()?.tid;
    let threads = navigator.process_threads()?;
    Ok(match navigator.searched_threads()?.len() < threads.len() {
        false if threads.len() > 1 => "the history of any thread".to_owned(),
        false => format!("the history of thread {tid}"),
        true if navigator.scheduler_locking => {
            format!("the history of thread {tid}; `set scheduler-locking off` searches all threads")
        }
        true => "the history of the threads that have time stamps; `thread` goes to another one, and \
                 `set scheduler-locking on` keeps to it"
            .to_owned(),
    })
}

/// `run-to-call N of FUNCTION`: to where the Nth call in the history begins.
pub(super) fn run_to_call(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let misuse = |problem: &str| find("run-to-call").map(|command| command.misuse(problem));
    let Some((number, function)) = arguments.split_once(char::is_whitespace) else {
        return Err(misuse("a number and a function are required")?);
    };
    let function = function.trim();
    let function = function.strip_prefix("of ").unwrap_or(function).trim();
    let number = number
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_sub(1));
    let Some(number) = number else {
        return Err(misuse("calls are counted from 1")?);
    };
    let navigator = &*context.navigator;
    let code = functions::code(navigator.process()?, function)?;
    let mut of_function = Vec::new();
    for thread in navigator.searched_threads()? {
        let calls = Calls::of_all(navigator.session(), thread, context.watch)?;
        let called = calls.of(&code.entries, context.watch)?;
        let called = called.iter().map(|&call| calls.forest().call(call).first);
        of_function.extend(called.map(|first| (thread.tid, first)));
        inlined::each_begin(
            navigator.session(),
            thread,
            &code.copies,
            context.watch,
            |_, first| {
                of_function.push((thread.tid, first));
            },
        )?;
    }
    let in_order = navigator.in_time_order(&of_function)?;
    let Some(&to) = in_order.get(number) else {
        let problem = format!(
            "{function} was called {} times in {}",
            in_order.len(),
            searched(navigator)?
        );
        return Err(Error::Cannot(problem));
    };
    let stop = context.navigator.go_to(to)?;
    goto::moved_to_thread(context, stop)
}
