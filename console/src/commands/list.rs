//! Source and code: `list`, `disassemble`, `x/i`.

use super::Context;
use crate::output::Output;
use crate::views;
use backtrail_debugger::coverage::counts;
use backtrail_debugger::disassembly::{self, disassemble as disassembled, of_bytes};
use backtrail_debugger::evaluation::memory;
use backtrail_debugger::location::{self, Location};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::Watch;
use backtrail_pt::Avma;
use backtrail_symbolizer::{Function, Symbolizer};
use std::sync::Arc;

/// GDB's number of lines.
const LINES: usize = 10;
/// No more are listed at once.
const MAX_LINES: usize = 10_000;
/// A function is not disassembled further.
const MAX_INSTRUCTIONS: usize = 5000;

/// `list [--counts] [LOCATION|-]`.
pub(super) fn list(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (arguments, counts) = match arguments.strip_prefix("--counts") {
        Some(rest) => (rest.trim(), true),
        None => (arguments, false),
    };
    let mut count = LINES;
    let (file, first) = match (arguments, context.navigator.listed.clone()) {
        (range, _) if range.contains(',') => {
            let (file, first, last) = range_of(context, range)?;
            count = (last.saturating_sub(first) as usize)
                .saturating_add(1)
                .min(MAX_LINES);
            (file, first)
        }
        ("", Some(listed)) => listed,
        ("-", Some((file, next))) => {
            let before = next.saturating_sub(2 * LINES as u32).max(1);
            (file, before)
        }
        ("" | "-", None) => here(context)?,
        _ => at_location(context, arguments)?,
    };
    let current = selected_line(context)?
        .filter(|(at, _)| *at == file)
        .map(|(_, line)| line);
    let mut view = views::source_lines(context.navigator, &file, first, count, current);
    let shown = view.lines.as_ref().map_or(0, Vec::len);
    if shown > 0 {
        (view.executions, view.counted_threads) = executions(context, &file, first, shown, counts)?;
    }
    match &view.lines {
        Some(lines) if lines.is_empty() => {
            return Err(Error::Cannot(format!(
                "line {first} is beyond the end of {file}; `list 1` begins at its start"
            )));
        }
        Some(lines) => context.navigator.listed = Some((file, first.saturating_add(lines.len() as u32))),
        None => {
            return Err(Error::Cannot(format!(
                "cannot find the source file {file}; use `set substitute-path FROM TO` or --symfs DIR"
            )));
        }
    }
    Ok(Output::Source(view))
}

/// `FIRST,LAST`, of which one may be left out: the file, and both lines.
fn range_of(context: &Context<'_>, range: &str) -> Result<(String, u32, u32)> {
    let (first, last) = range.split_once(',').unwrap_or((range, ""));
    let (first, last) = (first.trim(), last.trim());
    let lines = LINES as u32 - 1;
    if first.is_empty() {
        let (file, last) = line_at(context, last)?;
        return Ok((file, last.saturating_sub(lines).max(1), last));
    }
    let (file, from) = line_at(context, first)?;
    let to = match (last, last.parse()) {
        ("", _) => from.saturating_add(lines),
        (_, Ok(line)) => line,
        _ => line_at(context, last)?.1,
    };
    match to < from {
        true => Err(Error::Cannot(format!(
            "{range} is not a range: the first line is after the second"
        ))),
        false => Ok((file, from, to)),
    }
}

/// Returns the execution counts of lines and the number of counted threads, unless they would need
/// history that is not decoded yet. With scheduler locking, the current thread alone counts.
fn executions(
    context: &Context<'_>,
    file: &str,
    first: u32,
    lines: usize,
    asked: bool,
) -> Result<(Option<Vec<Option<u64>>>, usize)> {
    let navigator = &*context.navigator;
    let (current, process) = (navigator.thread()?, navigator.process()?);
    let mut threads = navigator.process_threads()?;
    threads.retain(|thread| !navigator.scheduler_locking || thread.tid == current.tid);
    let is_decoded = threads.iter().all(|thread| thread.is_decoded_at_once());
    if threads.is_empty() || !(asked || is_decoded) {
        return Ok((None, 0));
    }
    let mut sums: Vec<Option<u64>> = vec![None; lines];
    for thread in &threads {
        let coverage = navigator.session().coverage(thread, context.watch)?;
        let of_thread = counts(coverage, process, file, first, lines);
        for (sum, count) in sums.iter_mut().zip(of_thread) {
            *sum = match (*sum, count) {
                (Some(sum), Some(count)) => Some(sum.saturating_add(count)),
                (sum, count) => sum.or(count),
            };
        }
    }
    Ok((Some(sums), threads.len()))
}

fn selected_line(context: &Context<'_>) -> Result<Option<(String, u32)>> {
    let selected = context.navigator.selected_frame();
    let stack = context.navigator.stack(selected + 1, context.watch)?;
    let frame = stack.frames.into_iter().nth(selected);
    Ok(frame.and_then(|frame| frame.file.zip(frame.line)))
}

/// The lines around the selected frame's; if it has none, around the nearest caller's that has.
fn here(context: &Context<'_>) -> Result<(String, u32)> {
    let found = context
        .navigator
        .nearest(context.watch, |frame| frame.file.clone().zip(frame.line))?;
    let none = || {
        Error::Cannot(
            "no line is known here; `info sharedlibrary` shows which modules have symbols".to_owned(),
        )
    };
    found.map(|(file, line)| around(file, line)).ok_or_else(none)
}

fn around(file: String, line: u32) -> (String, u32) {
    (file, line.saturating_sub(LINES as u32 / 2).max(1))
}

fn at_location(context: &Context<'_>, arguments: &str) -> Result<(String, u32)> {
    line_at(context, arguments).map(|(file, line)| around(file, line))
}

/// The line that a location means.
fn line_at(context: &Context<'_>, arguments: &str) -> Result<(String, u32)> {
    let navigator = &*context.navigator;
    match Location::parse(arguments)? {
        Location::Line { file: None, line } => here(context).map(|(file, _)| (file, line)),
        Location::Line {
            file: Some(file),
            line,
        } => {
            // The full name, which the finder needs, is that of the nearest code.
            let mut epochs = navigator.process()?.epochs().iter();
            let known = epochs.find_map(|epoch| {
                let found = epoch.symbols.addresses_of_line(&file, line);
                found.into_iter().next()
            });
            Ok((known.map_or(file, |found| found.file.to_string()), line))
        }
        Location::Function(name) => {
            let process = navigator.process()?;
            let epochs = process.epochs().iter();
            let found = epochs.flat_map(|epoch| {
                let functions = epoch.symbols.functions_named(&name).into_iter();
                functions.map(move |function| (&epoch.symbols, function))
            });
            let found: Vec<_> = found.collect();
            let mut epochs = process.epochs().iter();
            let mut inlined = || {
                epochs.find_map(|epoch| {
                    let copies = epoch.symbols.inlined_copies_named(&name).into_iter();
                    copies.filter_map(|copy| copy.declared).next()
                })
            };
            if found.is_empty()
                && let Some((file, line)) = inlined()
            {
                return Ok((file.to_string(), line));
            }
            if found.is_empty() {
                return Err(Error::NoSymbol {
                    modules: process.describe_modules(),
                    name,
                });
            }
            let line = |(symbols, function): &(&Arc<Symbolizer>, Function<Avma>)| {
                let row = symbols.line_at(function.entry);
                let row = row.map(|row| (row.file, row.line));
                function.declared.clone().or(row)
            };
            let (file, line) = found.iter().find_map(line).ok_or_else(|| {
                Error::Cannot(format!(
                    "{name} has no line information; `disassemble {name}` shows its code"
                ))
            })?;
            Ok((file.to_string(), line))
        }
        Location::Address(text) => {
            let version = navigator.version()?;
            let at = location::address(navigator.process()?, Some(version), &text, navigator.pc())?;
            let row = navigator.symbols()?.line_at(at);
            let none = || {
                Error::Cannot(format!(
                    "no line information at {at}; `disassemble {at}` shows its code"
                ))
            };
            row.map(|row| (row.file.to_string(), row.line)).ok_or_else(none)
        }
    }
}

/// `disassemble [/smr]`, with FUNCTION, ADDRESS or `FROM,TO`: without, the function of the selected
/// frame.
pub(super) fn disassemble(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (letters, arguments) = super::format_argument::format_of(arguments);
    if let Some(letter) = letters.chars().find(|letter| !"smr".contains(*letter)) {
        return Err(Error::Cannot(format!(
            "disassemble takes /s for source lines and /r for bytes, not /{letter}"
        )));
    }
    let raw = letters.contains('r');
    let (function, mut lines) = code_of(context, arguments)?;
    if letters.contains(['s', 'm']) {
        with_sources(context.navigator, &mut lines)?;
    }
    Ok(Output::Disassembly { function, lines, raw })
}

/// Puts each line before its code.
fn with_sources(navigator: &Navigator, lines: &mut [disassembly::DisassembledLine]) -> Result<()> {
    let symbols = navigator.symbols()?;
    let mut before = None;
    for line in lines {
        let row = symbols.line_at(Avma(line.address)).filter(|row| row.line != 0);
        let place = row.map(|row| (row.file.to_string(), row.line));
        if place != before
            && let Some((file, first)) = place.clone()
        {
            line.source = Some(views::source_lines(navigator, &file, first, 1, Some(first)));
        }
        before = place;
    }
    Ok(())
}

/// The code that is asked for, and its function's name.
fn code_of(
    context: &Context<'_>,
    arguments: &str,
) -> Result<(Option<String>, Vec<disassembly::DisassembledLine>)> {
    let navigator = &*context.navigator;
    let process = navigator.process()?;
    let version = navigator.version()?;
    let selected = navigator.selected_frame();
    let frame = navigator
        .stack(selected + 1, context.watch)?
        .frames
        .into_iter()
        .nth(selected);
    let pc = frame.and_then(|frame| frame.pc).map(Avma).or(navigator.pc());
    let address = |text: &str| {
        let text = text.trim().trim_start_matches('*');
        location::address(process, Some(version), text, pc)
    };
    if let Some((from, to)) = arguments.split_once(',') {
        let from = address(from)?;
        let to = match to.trim().strip_prefix('+') {
            Some(length) => from + address(length)?.0,
            None => address(to)?,
        };
        if to <= from {
            return Err(Error::Cannot(format!(
                "{from},{to} is not a range: the first address must be below the second"
            )));
        }
        let lines = disassembled(process, version, from..to, MAX_INSTRUCTIONS, navigator.flavor, pc);
        return Ok((None, lines));
    }
    let unknown =
        || Error::Cannot("the position of the thread is unknown; use FUNCTION or FROM,TO".to_owned());
    let at = if arguments.is_empty() {
        pc.ok_or_else(unknown)?
    } else {
        address(arguments)?
    };
    let Some(function) = process.symbols_at(version).function_at(at) else {
        return Err(Error::Cannot(format!(
            "no function contains {at}; `x/10i {at}` shows the code there"
        )));
    };
    let lines = disassembled(
        process,
        version,
        function.range.clone(),
        MAX_INSTRUCTIONS,
        navigator.flavor,
        pc,
    );
    Ok((Some(function.name.to_string()), lines))
}

/// `x/NI LOCATION`, of what is no expression.
pub(super) fn examine(navigator: &Navigator, arguments: &str, watch: &Watch<'_>) -> Result<Output> {
    let (format, place) = super::format_argument::format_of(arguments);
    let count = format
        .strip_suffix('i')
        .and_then(|count| count.parse().ok())
        .unwrap_or(1);
    let at = location::address(
        navigator.process()?,
        Some(navigator.version()?),
        place.trim_start_matches('*'),
        navigator.pc(),
    )?;
    instructions(navigator, at.0, count, watch)
}

/// Returns the first `count` instructions at an address.
pub(super) fn instructions(navigator: &Navigator, at: u64, count: u64, watch: &Watch<'_>) -> Result<Output> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(MAX_INSTRUCTIONS);
    let process = navigator.process()?;
    let end = Avma(at.saturating_add(count as u64 * 15));
    let version = navigator.version()?;
    let (flavor, pc) = (navigator.flavor, navigator.pc());
    let mut lines = disassembled(process, version, Avma(at)..end, count, flavor, pc);
    if lines.is_empty() {
        // Memory that was never executable is read too.
        let read = memory::read(navigator, at, count as u64 * 15, watch)?;
        lines = of_bytes(process, version, Avma(at), &read.bytes, count, flavor, pc);
    }
    Ok(Output::Disassembly {
        function: None,
        lines,
        raw: false,
    })
}
