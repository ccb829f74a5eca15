//! Breakpoints: each request says all of its kind that there shall be.

use crate::breakpoint_table::BreakpointKind;
use crate::debuggee::Debuggee;
use crate::failure::{Failure, Result};
use crate::line_numbering::LineNumbering;
use crate::protocol::types::{
    Breakpoint, BreakpointLocation, BreakpointLocationsArguments, BreakpointLocationsResponseBody,
    FunctionBreakpoint, InstructionBreakpoint, SetBreakpointsArguments, SetBreakpointsResponseBody,
    SetFunctionBreakpointsArguments, SetInstructionBreakpointsArguments, Source, SourceBreakpoint,
};
use crate::session::ClientSession;
use backtrail_debugger::breakpoint::{Condition, Hits, Message};
use backtrail_debugger::evaluation::memory;
use backtrail_decoder::Watch;
use backtrail_pt::Avma;
use serde_json::{Value, json};

/// A breakpoint as it is asked for.
struct BreakpointSpec<'a> {
    location: String,
    condition: Option<&'a str>,
    hits: Option<&'a str>,
    message: Option<&'a str>,
    kind: BreakpointKind,
}

/// `setBreakpoints`.
pub fn set_source(
    client: &mut ClientSession,
    arguments: SetBreakpointsArguments,
    watch: &Watch<'_>,
) -> Result<SetBreakpointsResponseBody> {
    let lines = LineNumbering::of(&client.features);
    let debuggee = client.debuggee()?;
    let kind = BreakpointKind::Source(debuggee.sources.key_of(&arguments.source));
    clear(debuggee, &kind);
    let file = debuggee.sources.file_of(&debuggee.navigator, &arguments.source);
    let Some(file) = file else {
        let asked = arguments.breakpoints.unwrap_or_default();
        let refused = asked
            .iter()
            .map(|_| refused("no module has code of this file".to_owned()));
        return Ok(SetBreakpointsResponseBody {
            breakpoints: refused.collect(),
        });
    };
    let old = arguments
        .lines
        .unwrap_or_default()
        .into_iter()
        .map(|line| SourceBreakpoint {
            line,
            ..SourceBreakpoint::default()
        });
    let asked = arguments.breakpoints.unwrap_or_else(|| old.collect());
    let mut breakpoints = Vec::new();
    for one in &asked {
        let Some(line) = lines.read(one.line) else {
            breakpoints.push(refused("the line does not exist".to_owned()));
            continue;
        };
        let set = set(
            debuggee,
            &BreakpointSpec {
                location: format!("{file}:{line}"),
                condition: one.condition.as_deref(),
                hits: one.hit_condition.as_deref(),
                message: one.log_message.as_deref(),
                kind: kind.clone(),
            },
            watch,
        )?;
        let mut answer = answer(set, |breakpoint| {
            breakpoint.line = line_of_stop(debuggee, &file, line, watch).map(|line| lines.write(line));
        });
        answer.source = Some(debuggee.sources.describe(&debuggee.navigator, &file));
        breakpoints.push(answer);
    }
    Ok(SetBreakpointsResponseBody { breakpoints })
}

/// `setFunctionBreakpoints`.
pub fn set_function(
    client: &mut ClientSession,
    arguments: SetFunctionBreakpointsArguments,
    watch: &Watch<'_>,
) -> Result<SetBreakpointsResponseBody> {
    let debuggee = client.debuggee()?;
    clear(debuggee, &BreakpointKind::Function);
    let mut breakpoints = Vec::new();
    for FunctionBreakpoint {
        name,
        condition,
        hit_condition,
        ..
    } in &arguments.breakpoints
    {
        let address = name.trim().strip_prefix('*').map(str::trim);
        if let Some(at) = address.and_then(|address| super::memory::address(address, None))
            && !has_code(debuggee, at, watch)?
        {
            breakpoints.push(refused(format!("there is no code at {at:#x}")));
            continue;
        }
        let spec = BreakpointSpec {
            location: name.clone(),
            condition: condition.as_deref(),
            hits: hit_condition.as_deref(),
            message: None,
            kind: BreakpointKind::Function,
        };
        breakpoints.push(answer(set(debuggee, &spec, watch)?, |_| {}));
    }
    Ok(SetBreakpointsResponseBody { breakpoints })
}

/// `setInstructionBreakpoints`.
pub fn set_instruction(
    client: &mut ClientSession,
    arguments: SetInstructionBreakpointsArguments,
    watch: &Watch<'_>,
) -> Result<SetBreakpointsResponseBody> {
    let debuggee = client.debuggee()?;
    clear(debuggee, &BreakpointKind::Instruction);
    let mut breakpoints = Vec::new();
    for InstructionBreakpoint {
        instruction_reference,
        offset,
        condition,
        hit_condition,
        ..
    } in &arguments.breakpoints
    {
        let Some(at) = super::memory::address(instruction_reference, *offset) else {
            breakpoints.push(refused(format!("\"{instruction_reference}\" is not an address")));
            continue;
        };
        if !has_code(debuggee, at, watch)? {
            breakpoints.push(refused(format!("there is no code at {at:#x}")));
            continue;
        }
        let spec = BreakpointSpec {
            location: format!("*{at:#x}"),
            condition: condition.as_deref(),
            hits: hit_condition.as_deref(),
            message: None,
            kind: BreakpointKind::Instruction,
        };
        let reference = format!("{at:#x}");
        breakpoints.push(answer(set(debuggee, &spec, watch)?, |breakpoint| {
            breakpoint.instruction_reference = Some(reference);
        }));
    }
    Ok(SetBreakpointsResponseBody { breakpoints })
}

/// `setExceptionBreakpoints`: there are none to choose from; the crash stops always.
pub fn set_exception(_: &mut ClientSession, _: Value, _: &Watch<'_>) -> Result<Value> {
    Ok(json!({ "breakpoints": [] }))
}

/// `breakpointLocations`: the lines that have code.
pub fn locations(
    client: &mut ClientSession,
    arguments: BreakpointLocationsArguments,
    watch: &Watch<'_>,
) -> Result<BreakpointLocationsResponseBody> {
    /// The limit of lines in one response.
    const MOST: u32 = 2000;
    let lines = LineNumbering::of(&client.features);
    let debuggee = client.debuggee()?;
    let file = debuggee.sources.file_of(&debuggee.navigator, &arguments.source);
    let first = lines.read(arguments.line).unwrap_or(1);
    let last = arguments
        .end_line
        .and_then(|line| lines.read(line))
        .unwrap_or(first);
    let mut breakpoints = Vec::new();
    for line in first..=last.min(first.saturating_add(MOST)) {
        let stops = |file: &str| {
            line_with_code(debuggee, file, line) == Some(line)
                && line_of_stop(debuggee, file, line, watch) == Some(line)
        };
        if file.as_deref().is_some_and(stops) {
            breakpoints.push(BreakpointLocation {
                line: lines.write(line),
                ..BreakpointLocation::default()
            });
        }
    }
    Ok(BreakpointLocationsResponseBody { breakpoints })
}

/// Returns the line of a breakpoint: the given line, or the next one with code.
pub fn line_with_code(debuggee: &Debuggee, file: &str, line: u32) -> Option<u32> {
    let processes = debuggee.navigator.session().processes().iter();
    let found = processes
        .flat_map(|process| process.epochs())
        .flat_map(|epoch| epoch.symbols.addresses_of_line(file, line));
    found.map(|found| found.line).min()
}

/// Returns the line at which a breakpoint stops: the given one, the next one with code, or the
/// first of a function's body.
pub fn line_of_stop(debuggee: &Debuggee, file: &str, line: u32, watch: &Watch<'_>) -> Option<u32> {
    let location = format!("{file}:{line}");
    let resolved = debuggee.navigator.resolve_everywhere(&location, watch).ok();
    let at = resolved
        .as_ref()
        .and_then(|found| found.hits.values().find_map(Hits::address));
    let stop = at.and_then(|at| {
        let processes = debuggee.navigator.session().processes().iter();
        let epochs = processes.flat_map(|process| process.epochs());
        let frames = epochs.flat_map(|epoch| epoch.symbols.frames_at(at));
        // If there were several modules at the address, the one with the file is wanted.
        let mut stops = frames.filter_map(|frame| frame.location);
        stops.find(|stop| stop.line != 0 && debuggee.navigator.is_same_source(&stop.file, file))
    });
    stop.map(|stop| stop.line)
        .or_else(|| line_with_code(debuggee, file, line))
}

/// Returns whether an address can have code: in a module, or in memory that the program wrote.
fn has_code(debuggee: &mut Debuggee, at: u64, watch: &Watch<'_>) -> Result<bool> {
    let processes = debuggee.navigator.session().processes().iter();
    let mut modules = processes
        .flat_map(|process| process.epochs())
        .filter_map(|epoch| epoch.symbols.module_at(Avma(at)));
    if modules.next().is_some() {
        return Ok(true);
    }
    let here = debuggee.frame(None)?;
    let read = debuggee.look_from(here, watch, |navigator| memory::read(navigator, at, 1, watch))?;
    Ok(!read.bytes.is_empty())
}

/// Deletes all that the client set on a kind of thing.
pub(super) fn clear(debuggee: &mut Debuggee, kind: &BreakpointKind) {
    for number in debuggee.breakpoints.numbers_of(kind) {
        debuggee.breakpoints.remove(number);
        // The user may have deleted it in the console.
        let _ = debuggee.navigator.breakpoints.delete(number);
    }
}

/// Sets one; why not, where it cannot be.
fn set(
    debuggee: &mut Debuggee,
    spec: &BreakpointSpec<'_>,
    watch: &Watch<'_>,
) -> Result<std::result::Result<u32, String>> {
    let set = try_set(debuggee, spec, watch);
    match set {
        Ok(number) => {
            debuggee.breakpoints.insert(number, spec.kind.clone());
            Ok(Ok(number))
        }
        Err(failure) if failure.is_cancelled() => Err(failure),
        Err(failure) => Ok(Err(failure.to_string())),
    }
}

fn try_set(debuggee: &mut Debuggee, spec: &BreakpointSpec<'_>, watch: &Watch<'_>) -> Result<u32> {
    let hits = spec.hits.map(hit_condition).transpose()?;
    let among = hits.as_deref().map(Condition::parse).transpose()?;
    let condition = spec.condition.filter(|condition| !condition.trim().is_empty());
    let message = spec.message.filter(|message| !message.is_empty());
    let message = message.map(Message::parse).transpose()?;
    let number = debuggee.navigator.with_earlier(watch, |navigator| {
        navigator.set_breakpoint(&spec.location, condition, None, false, watch)
    })?;
    let breakpoint = debuggee.navigator.breakpoints.get_mut(number)?;
    (breakpoint.message, breakpoint.among) = (message, among);
    Ok(number)
}

/// The client's way of saying which hits count, as a condition: a number alone is that hit; `> 3`,
/// `% 5`.
pub(super) fn hit_condition(text: &str) -> Result<String> {
    let text = text.trim();
    let operator = ["==", ">=", "<=", "!=", ">", "<", "%"]
        .into_iter()
        .find(|operator| text.starts_with(operator));
    let number = text.strip_prefix(operator.unwrap_or("")).unwrap_or(text).trim();
    let never = operator == Some("%") && number.bytes().all(|byte| byte == b'0');
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) || never {
        return Err(Failure::Cannot(format!(
            "\"{text}\" is not a hit count; use one like 3, > 3 or % 3"
        )));
    }
    Ok(format!("hits {} {number}", operator.unwrap_or("==")))
}

pub(super) fn answer(
    set: std::result::Result<u32, String>,
    more: impl FnOnce(&mut Breakpoint),
) -> Breakpoint {
    match set {
        Ok(number) => {
            let mut breakpoint = Breakpoint {
                id: Some(i64::from(number)),
                verified: true,
                ..Breakpoint::default()
            };
            more(&mut breakpoint);
            breakpoint
        }
        Err(why) => refused(why),
    }
}

pub(super) fn refused(why: String) -> Breakpoint {
    Breakpoint {
        verified: false,
        message: Some(why),
        ..Breakpoint::default()
    }
}

/// Reports breakpoints that were set or deleted in the console to the client.
pub fn follow_console(client: &mut ClientSession, before: &[u32]) {
    let Some(debuggee) = &mut client.debuggee else {
        return;
    };
    let now: Vec<(u32, String)> = debuggee
        .navigator
        .breakpoints
        .all()
        .iter()
        .map(|breakpoint| (breakpoint.number, breakpoint.location.clone()))
        .collect();
    let changed = |number: u32, message: Option<String>| Breakpoint {
        id: Some(i64::from(number)),
        verified: true,
        message,
        ..Breakpoint::default()
    };
    for &gone in before
        .iter()
        .filter(|number| now.iter().all(|(known, _)| known != *number))
    {
        debuggee.breakpoints.remove(gone);
        let body = json!({ "reason": "removed", "breakpoint": changed(gone, None) });
        client.outbox.event("breakpoint", body);
    }
    for (new, location) in now.iter().filter(|(number, _)| !before.contains(number)) {
        let body = json!({ "reason": "new", "breakpoint": changed(*new, Some(location.clone())) });
        client.outbox.event("breakpoint", body);
    }
}

/// A source of which the client said no more than the path.
#[must_use]
pub fn by_path(path: &str) -> Source {
    Source {
        path: Some(path.to_owned()),
        ..Source::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_as_clients_say_it() {
        let read = |text| hit_condition(text).ok();
        assert_eq!(read("3").as_deref(), Some("hits == 3"));
        assert_eq!(read(" >= 3 ").as_deref(), Some("hits >= 3"));
        assert_eq!(read("%2").as_deref(), Some("hits % 2"));
        for wrong in ["", "x", "> ", "-3", "3 4", "% 0"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
