//! The executions of code: `count`, `search`, `first`, `last`, `run-to-call`.

use super::{Context, find, goto};
use crate::output::{FileHit, LineHit, Output, SearchView};
use backtrail_debugger::breakpoint::Hits;
use backtrail_debugger::calls::Calls;
use backtrail_debugger::functions::{self, InlinedFunction};
use backtrail_debugger::inlined;
use backtrail_debugger::lines::CopyCode;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::step::Steps;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::{CallId, PcSet, Watch};
use regex::Regex;
use std::collections::BTreeMap;

/// `search` shows no more of a kind.
const MAX_FOUND: usize = 100;

/// `search` counts the executions of no more inlined copies.
const MAX_COPIES: usize = 5000;

/// `count`: the number of calls of a function, or of executions of other code.
pub(super) fn count(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let navigator = &*context.navigator;
    let thread = navigator.thread()?;
    let process = navigator.process()?;
    // A name between slashes is of functions, and else it may be of a line.
    let code = functions::code(process, arguments);
    let (hits, line) = match (navigator.resolve(arguments, context.watch), &code) {
        (Ok(resolved), _) => (resolved.hits, resolved.nearest),
        (Err(_), Ok(code)) => {
            let epochs = process.epochs().iter().enumerate();
            let of_epoch = |number| {
                let all = code.entries.addresses();
                let here = all.filter(move |entry| code.entries.contains(*entry, number));
                let copies = code.copies.iter().filter(|found| found.epoch == number);
                Hits {
                    addresses: here.collect(),
                    copies: copies.map(|found| found.copy.clone()).collect(),
                    ..Hits::default()
                }
            };
            let epochs = epochs.map(|(number, epoch)| (epoch.from, of_epoch(number)));
            (Hits::over_time(epochs.collect()), None)
        }
        (Err(error), Err(_)) => return Err(error),
    };
    thread.needs_beginning()?;
    let inlined = navigator.with_steps(context.watch, |steps| hits.count_inlined(&steps.lines))?;
    let calls = match code {
        Ok(code) => {
            let all = Calls::of_all(navigator.session(), thread, context.watch)?;
            let calls = all.of(&code.entries, context.watch)?;
            let rests = calls.iter().filter(|&&id| all.forest().call(id).may_be_rest());
            Some((calls.len() as u64 + inlined.0, rests.count() as u64 + inlined.1))
        }
        Err(_) => None,
    };
    let executions = navigator.with_steps(context.watch, |steps| hits.count(&steps.lines))?;
    Ok(Output::Count {
        location: arguments.to_owned(),
        line,
        executions,
        calls: calls.map(|(calls, _)| calls),
        rests: calls.map_or(0, |(_, rests)| rests),
    })
}

pub(super) fn search(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    if arguments.is_empty() {
        return Err(find("search")?.misuse("a regular expression is required"));
    }
    let pattern = functions::regex(arguments)?;
    let navigator = &*context.navigator;
    let (functions, mut more) = called(navigator, &pattern, context.watch)?;
    let (files, lines, more_lines) = executed(navigator, &pattern, context.watch)?;
    more |= more_lines;
    Ok(Output::Search(SearchView {
        pattern: arguments.to_owned(),
        functions,
        files,
        lines,
        more,
    }))
}

/// Functions that match and were called: how often, and the positions of the last call and the
/// first.
type CalledFunctions = Vec<(String, u64, String, String)>;

/// The functions that match, the last called first.
fn called(navigator: &Navigator, pattern: &Regex, watch: &Watch<'_>) -> Result<(CalledFunctions, bool)> {
    let thread = navigator.thread()?;
    let process = navigator.process()?;
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
    let (copies, mut more) = executed_copies(navigator, pattern)?;
    for execution in inlined::executions(navigator.session(), thread, &copies, watch)? {
        let first = execution.first;
        let name = execution.function.to_string();
        let known = found.entry(name).or_insert((0, first, first));
        *known = (known.0 + 1, known.1.min(first), known.2.max(first));
    }
    let mut functions: Vec<(String, (u64, u64, u64))> = found.into_iter().collect();
    functions.sort_by_key(|(_, (_, _, last))| std::cmp::Reverse(*last));
    more |= functions.len() > MAX_FOUND;
    functions.truncate(MAX_FOUND);
    let position = |index| thread.position(index).to_string();
    let functions = functions
        .into_iter()
        .map(|(name, (count, first, last))| (name, count, position(last), position(first)))
        .collect();
    Ok((functions, more))
}

/// Returns the inlined copies of matching functions that the thread executed, and whether there are
/// more.
fn executed_copies(navigator: &Navigator, pattern: &Regex) -> Result<(Vec<InlinedFunction>, bool)> {
    let thread = navigator.thread()?;
    let mut copies = Vec::new();
    let mut tested: usize = 0;
    for (epoch, modules) in navigator.process()?.epochs().iter().enumerate() {
        for copy in modules.symbols.inlined_copies_matching(pattern) {
            if tested >= MAX_COPIES {
                return Ok((copies, true));
            }
            tested += 1;
            let code = PcSet::from_ranges(copy.ranges);
            if thread.history.next_at(0, &code).is_none() {
                continue;
            }
            let begin = copy.begin;
            copies.push(InlinedFunction {
                name: copy.name,
                copy: CopyCode { code, begin },
                epoch,
            });
        }
    }
    Ok((copies, false))
}

/// The files that match and had a line run, and the lines that ran and whose text matches.
fn executed(
    navigator: &Navigator,
    pattern: &Regex,
    watch: &Watch<'_>,
) -> Result<(Vec<FileHit>, Vec<LineHit>, bool)> {
    let thread = navigator.thread()?;
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
            let Some(count) = counts.get(&line).filter(|_| pattern.is_match(&text)) else {
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
    context.navigator.thread()?.needs_beginning()?;
    go_to_hit(context, arguments, |hits, steps| {
        hits.next(&steps.lines, 0, u64::MAX)
    })
}

pub(super) fn last(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    go_to_hit(context, arguments, |hits, steps| {
        hits.previous(&steps.lines, steps.lines.history.len(), 0)
    })
}

/// Moves to where a location was executed.
fn go_to_hit(
    context: &mut Context<'_>,
    arguments: &str,
    find: impl FnOnce(&Hits, &Steps<'_>) -> Result<Option<u64>>,
) -> Result<Output> {
    let navigator = &*context.navigator;
    let thread = navigator.thread()?;
    let hits = navigator.resolve(arguments, context.watch)?.hits;
    let index = navigator.with_steps(context.watch, |steps| find(&hits, steps))?;
    // The beginning of the history determines whether its first instruction is a hit.
    if index.is_none_or(|index| index == 0) {
        thread.needs_beginning()?;
    }
    let never = || {
        Error::Cannot(format!(
            "{arguments} did not run in the history of thread {}",
            thread.tid
        ))
    };
    let to = thread.position(index.ok_or_else(never)?);
    let stop = context.navigator.go_to(to)?;
    goto::moved(context, stop)
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
    let thread = navigator.thread()?;
    let code = functions::code(navigator.process()?, function)?;
    let calls = Calls::of_all(navigator.session(), thread, context.watch)?;
    let called = calls.of(&code.entries, context.watch)?;
    let called = called.iter().map(|&call| calls.forest().call(call).first);
    let inlined = inlined::executions(navigator.session(), thread, &code.copies, context.watch)?;
    let mut of_function: Vec<u64> = called
        .chain(inlined.iter().map(|execution| execution.first))
        .collect();
    of_function.sort_unstable();
    let fewer = || {
        Error::Cannot(format!(
            "{function} was called {} times in the history of thread {}",
            of_function.len(),
            thread.tid
        ))
    };
    let &first = of_function.get(number).ok_or_else(fewer)?;
    let to = thread.position(first);
    let stop = context.navigator.go_to(to)?;
    goto::moved(context, stop)
}
