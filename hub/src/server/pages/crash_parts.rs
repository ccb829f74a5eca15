//! The sections of an analyzed crash.

use super::text::{bytes, file_name, nanoseconds, number, shown, shown_to, utc};
use crate::analysis::{
    Access, Analysis, Cause, ExecutedLine, LastCall, SourceCheck, SourceView, SymbolState,
};
use backtrail_debugger::signal;
use backtrail_report::CrashReport;
use maud::{Markup, html};

/// The size of the first page, which Linux does not map for programs.
const FIRST_PAGE: u64 = 4096;

/// Returns the signal of a report in words.
pub(super) fn signal_in_words(report: &CrashReport) -> String {
    let name = signal::name(report.signal);
    let address = report
        .fault_address
        .map(|address| format!(" at address {address:#x}"));
    format!(
        "{name} ({}){}",
        signal::meaning(report.signal),
        address.unwrap_or_default()
    )
}

/// Returns the cause of a crash in one or two sentences.
#[must_use]
pub fn cause_in_words(cause: &Cause) -> String {
    if let Some(message) = &cause.message {
        return shown_to(message, 500);
    }
    let Some(address) = cause.fault_address.filter(|_| matches!(cause.signal, 7 | 11)) else {
        return match (&cause.meaning, cause.signal) {
            (Some(meaning), _) => format!("{}: {meaning}.", cause.name),
            (None, _) => format!("{}.", cause.description),
        };
    };
    let did = match cause.access {
        Some(Access::Read) => "The thread read from",
        Some(Access::Write) => "The thread wrote to",
        Some(Access::ReadWrite) => "The thread changed memory at",
        Some(Access::Execute) => "The thread jumped to",
        None => "The thread used",
    };
    let meaning = match (cause.signal, cause.code) {
        (11, 1) => ", where no memory is mapped".to_owned(),
        (11, 2) => ", where the mapping does not permit that".to_owned(),
        _ => cause
            .meaning
            .as_deref()
            .map(|meaning| format!(": {meaning}"))
            .unwrap_or_default(),
    };
    let null = match address {
        0 => " It is the null pointer.",
        1..FIRST_PAGE => " The address is a small offset from the null pointer.",
        _ => "",
    };
    format!("{did} address {address:#x}{meaning}.{null}")
}

/// Returns the cause with the source around it.
pub(super) fn cause(analysis: &Analysis) -> Markup {
    let cause = &analysis.cause;
    html! {
        section class="panel cause" {
            h2 { "Cause" }
            p class="why" { (cause_in_words(cause)) }
            @if let Some(handler) = &cause.handler {
                p { "The crash is in a signal handler. "
                    @if let Some(interrupted) = &handler.interrupted { "The signal interrupted " code { (shown_to(interrupted, 200)) } " at " }
                    @else { "The signal arrived at " }
                    (position(&handler.position)) "." }
            }
            @match &analysis.source { Some(source) => (source_lines(source)), None => { p class="none" { "No line is known." } } }
        }
    }
}

fn source_lines(source: &SourceView) -> Markup {
    html! {
        p class="file" {
            code title=(shown(&source.file)) { (shown_to(&source.file, 300)) ":" (source.current) }
            @match source.bundled {
                Some(SourceCheck::Verified) => { " " span class="tag" title="The debug information has the MD5 of this text" { "from the bundle, verified" } }
                Some(SourceCheck::Unverified) => { " " span class="tag" title="The debug information has no MD5 of this file" { "from the bundle" } }
                None => {}
            }
        }
        @match &source.lines {
            None => { p class="none" { "The text of the file is not in the bundle, and no source server has it." } },
            Some(lines) => {
                div class="scroll source" tabindex="0" role="region" aria-label="Source" {
                    table { tbody {
                        @for (at, line) in lines.iter().enumerate().take(100) {
                            @let number = source.first.saturating_add(u32::try_from(at).unwrap_or(u32::MAX));
                            @let ran = source.executions.get(at).copied().flatten();
                            tr class=(if number == source.current { "hit" } else if ran == Some(0) { "cold" } else { "" }) {
                                td class="ran" title=[ran.map(|count| format!("executed {count} times"))] { @if let Some(count) = ran { @if count > 0 { (times(count)) } } }
                                td class="nr" { (number) }
                                td class="text" { (shown_to(line, 400)) }
                            }
                        }
                    } }
                }
            },
        }
    }
}

/// Returns a number of executions in few characters.
fn times(count: u64) -> String {
    match count {
        0..=999 => format!("{count}×"),
        1000..=999_999 => format!("{}k×", count / 1000),
        _ => format!("{}M×", count / 1_000_000),
    }
}

/// Returns a link to a position of the history on this page.
fn position(position: &str) -> Markup {
    html! { a class="pos" href={ "#" (shown_to(position, 64)) } title="Reverse debug from here" { (shown_to(position, 64)) } }
}

/// Returns the last lines, newest last.
pub(super) fn last_lines(analysis: &Analysis) -> Markup {
    let deepest = analysis.lines.iter().map(|line| line.depth).max().unwrap_or(0);
    html! {
        section class="panel" {
            h2 { "Last lines before the crash" }
            @if analysis.lines.is_empty() { p class="none" { "The crashed thread has no history with lines." } }
            @else {
                @if let Some(before) = &analysis.before_lines { p class="dim" { "Before: " (shown_to(before, 200)) } }
                div class="scroll tall" id="last-lines" tabindex="0" role="region" aria-label="Last lines, arrow keys choose one" {
                    ol class="trace" { @for line in &analysis.lines { (executed(line, deepest)) } }
                }
                p class="crashed" { "✕ " (shown(&analysis.cause.description)) (crashed_at(analysis)) }
            }
        }
    }
}

/// Returns the innermost function and its line.
fn crashed_at(analysis: &Analysis) -> Markup {
    let frame = analysis.crashed.frames.first().map(|frame| &frame.frame);
    html! {
        @if let Some(function) = frame.and_then(|frame| frame.function.as_deref()) {
            " in " code { (shown_to(function, 200)) }
            @if let Some((file, line)) = frame.and_then(|frame| frame.file.as_deref().zip(frame.line)) {
                span class="place" { (file_name(file)) ":" (line) }
            }
        }
    }
}

fn executed(line: &ExecutedLine, deepest: usize) -> Markup {
    let indent = indent(line.depth, deepest);
    html! {
        @if let Some(function) = &line.function {
            li class={ "enter d" (indent) } {
                code { (shown_to(function, 300)) }
                @if line.inlined { span class="tag" { "inlined" } }
                span class="place" { @if let Some(file) = &line.file { (file_name(file)) } }
            }
        }
        li class={ "ran d" (indent) } {
            a class="row" href={ "#" (shown_to(&line.position, 64)) } title={ "Reverse debug from " (shown_to(&line.position, 64)) } {
                span class="nr" { @match line.line { Some(number) => (number), None => "?" } }
                code { (shown_to(line.text.as_deref().map_or("", str::trim), 300)) }
                @if let Some(count) = line.count.filter(|&count| count > 1) { span class="dim" title={ "executed " (count) " times in the history" } { (times(count)) } }
            }
        }
    }
}

/// Returns the indentation of a depth, from 0 to 11.
fn indent(depth: usize, deepest: usize) -> usize {
    match deepest {
        0..=11 => depth,
        // Of deep histories only the innermost levels are indented.
        _ => (depth + 11).saturating_sub(deepest),
    }
    .min(11)
}

/// Returns the last calls, newest last.
pub(super) fn last_calls(analysis: &Analysis) -> Markup {
    let deepest = analysis.calls.iter().map(|call| call.depth).max().unwrap_or(0);
    html! {
        section class="panel" {
            h2 { "Last calls" }
            @if analysis.calls.is_empty() { p class="none" { "The crashed thread has no history with calls." } }
            @else {
                div class="scroll tall" id="last-calls" tabindex="0" role="region" aria-label="Last calls, arrow keys choose one" {
                    ol class="trace" { @for call in &analysis.calls { (called(call, deepest)) } }
                }
            }
        }
    }
}

fn called(call: &LastCall, deepest: usize) -> Markup {
    html! {
        li class={ "call d" (indent(call.depth, deepest)) } {
            a class="row" href={ "#" (shown_to(&call.position, 64)) } title={ "Reverse debug from " (shown_to(&call.position, 64)) } {
                code { (shown_to(&call.function, 300)) }
                @if call.inlined { span class="tag" { "inlined" } }
                @if let Some(left) = &call.left { span class="tag" { (shown_to(left, 60)) } }
                span class="place" {
                    @if let Some(file) = &call.file { (file_name(file)) @if let Some(line) = call.line { ":" (line) } }
                    // A duration without a lower bound says little.
                    @if let Some(duration) = call.duration.as_ref().filter(|duration| !duration.starts_with('<')) {
                        " " span class="dim" { (shown_to(duration, 40)) }
                    }
                }
            }
        }
    }
}

/// Returns the timeline, which a script draws.
pub(super) fn timeline(analysis: &Analysis, id: &str) -> Markup {
    html! {
        @if !analysis.timelines.is_empty() {
            section class="panel timeline" {
                div class="bar-of-buttons" {
                    h2 { "Timeline" }
                    button type="button" class="button" id="timeline-in" { "Zoom in" }
                    button type="button" class="button" id="timeline-out" { "Zoom out" }
                    button type="button" class="button" id="timeline-here" { "Crash" }
                    button type="button" class="button" id="timeline-fit" { "All" }
                }
                div id="stage" data-source={ "/c/" (id) "/timeline" } {
                    canvas id="canvas" tabindex="0" role="application" aria-label="Timeline of threads and calls" aria-describedby="help" {}
                    div id="notice" role="status" { "The timeline needs JavaScript." }
                    div id="tip" aria-hidden="true" hidden {}
                }
                div id="legend" {}
                p id="help" class="spoken" { "Arrow keys choose a call, Enter selects its position. Plus and minus zoom, Shift with the arrow keys pans, 0 shows all, H shows the crash." }
                div id="spoken" class="spoken" role="status" aria-live="polite" {}
            }
        }
    }
}

/// Returns the gaps of the history.
pub(super) fn gaps(analysis: &Analysis) -> Markup {
    let count = analysis.gaps.len() + analysis.more_gaps;
    html! {
        section class="panel" {
            h2 { "Gaps in the history" @if count > 0 { " " span class="dim" { (number(count as u64)) } } }
            @if count == 0 { p class="none" { "The decoded history of the crashed thread is complete." } }
            @else {
                details open[count <= 6] {
                    summary { "Newest gaps" }
                    ul class="plain" { @for gap in analysis.gaps.iter().rev().take(50) { li { "before " (position(&gap.position)) ": " (shown_to(&gap.cause, 300)) } } }
                    @if count > 50 { p class="dim" { "and " (number(count as u64 - 50)) " older gaps" } }
                }
            }
        }
    }
}

/// Returns the modules with their symbols.
pub(super) fn modules(analysis: &Analysis) -> Markup {
    let lacking = analysis
        .modules
        .iter()
        .filter(|module| module.symbols != SymbolState::DebugInformation)
        .count();
    html! {
        section class="panel" {
            h2 { "Modules " span class="dim" { (analysis.modules.len()) } }
            @match lacking {
                0 => {},
                1 => { p class="dim" { "One module has no debug information." } },
                _ => { p class="dim" { (lacking) " modules have no debug information." } },
            }
            div class="scroll" tabindex="0" role="region" aria-label="Modules" {
                table class="list modules" {
                    thead { tr { th scope="col" { "Module" } th scope="col" { "Symbols" } th scope="col" { "Build id" } th scope="col" { "Address" } } }
                    tbody {
                        @for module in analysis.modules.iter().take(400) {
                            tr {
                                td { b { (file_name(&module.path)) } div class="dim path" { (shown_to(&module.path, 300)) } }
                                td {
                                    @match module.symbols {
                                        SymbolState::DebugInformation => { span class="state ok" { "debug information" } },
                                        SymbolState::SymbolTable => { span class="state wait" { "symbol table" } },
                                        SymbolState::None => { span class="state bad" { "no symbols" } },
                                        SymbolState::NoFile => { span class="state bad" { "file not in the bundle" } },
                                    }
                                    @if let Some(problem) = &module.problem { div class="dim" { (shown_to(problem, 200)) } }
                                }
                                td { @match &module.build_id { Some(id) => { code class="id" { (shown_to(id, 128)) } }, None => { span class="dim" { "none" } } } }
                                td { code { (format!("{:#x}", module.start)) } }
                            }
                        }
                    }
                }
            }
            @if analysis.modules.len() > 400 { p class="dim" { "and " (analysis.modules.len() - 400) " more modules" } }
        }
    }
}

/// Returns how the snapshot was taken.
pub(super) fn snapshot(analysis: &Analysis) -> Markup {
    let snapshot = &analysis.snapshot;
    let fact = |name: &str, value: Option<String>| {
        html! { @if let Some(value) = value { div { dt { (name) } dd { (value) } } } }
    };
    let seconds = |seconds: u64| {
        utc(i64::try_from(seconds)
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000))
    };
    let text = |text: &Option<String>| text.as_deref().map(|text| shown_to(text, 300));
    html! {
        section class="panel" {
            h2 { "How the snapshot was taken" }
            dl class="facts tight" {
                (fact("Trace", Some(shown_to(&snapshot.source, 40))))
                (fact("Made by", text(&snapshot.created_by)))
                (fact("Made at", snapshot.created_at.map(seconds)))
                (fact("Trigger", text(&snapshot.trigger)))
                (fact("Probe", text(&snapshot.probe)))
                (fact("Signal to event", snapshot.crash_to_reader.map(nanoseconds)))
                (fact("Signal to trace paused", snapshot.crash_to_stop.map(nanoseconds)))
                (fact("Signal to memory read", snapshot.crash_to_held.map(nanoseconds)))
                (fact("Process held for", snapshot.held.map(nanoseconds)))
                (fact("Trace", snapshot.history.map(bytes)))
                (fact("Overwritten", snapshot.overwritten.map(bytes)))
                (fact("Instructions decoded", Some(number(analysis.crashed.instructions))))
                (fact("Kernel", text(&snapshot.kernel)))
                (fact("Processor", text(&snapshot.cpu)))
            }
            @if let Some(words) = analysis.command_line.as_ref().filter(|words| !words.is_empty()) {
                p { span class="dim" { "Command line " } code { (shown_to(&words.join(" "), 1000)) } }
            }
            @let told = || snapshot.missing.iter().chain(&analysis.notes);
            @if told().next().is_some() {
                details { summary { "Notes " span class="dim" { (told().count()) } }
                    ul class="plain" { @for note in told().take(100) { li { (shown_to(note, 600)) } } }
                }
            }
        }
    }
}
