//! Breakpoints.

use super::Context;
use super::thread_apply::thread_of;
use crate::output::{BreakpointView, Output};
use backtrail_debugger::breakpoint::{Breakpoint, ResolvedLocation};
use backtrail_debugger::functions::regex;
use backtrail_debugger::location::{self, AskedFrame};
use backtrail_debugger::{Error, Result};
use backtrail_pt::Tid;
use std::collections::BTreeMap;

/// `rbreak` sets no more at once.
const MAX_RBREAK: usize = 1000;

pub(super) fn view(breakpoint: &Breakpoint) -> BreakpointView {
    BreakpointView {
        number: breakpoint.number,
        location: breakpoint.location.clone(),
        places: breakpoint.places.clone(),
        thread: breakpoint.thread.map(|tid| tid.0),
        watches: breakpoint
            .watchpoint
            .as_ref()
            .map(|watchpoint| watchpoint.kind.title()),
        temporary: breakpoint.temporary,
        enabled: breakpoint.enabled,
        condition: breakpoint.condition.as_ref().map(ToString::to_string),
        undecided: breakpoint.undecided.clone(),
        ignore: breakpoint.ignore,
        hits: breakpoint.count,
        commands: breakpoint.commands.clone(),
    }
}

fn set(context: &mut Context<'_>, arguments: &str, temporary: bool) -> Result<Output> {
    let (location, condition) = match (arguments.split_once(" if "), arguments.strip_suffix(" if")) {
        (Some((location, condition)), _) => (location.trim(), Some(condition)),
        (None, Some(location)) => (location.trim(), Some("")),
        (None, None) => (arguments, None),
    };
    let (location, thread) = only_thread(context, location)?;
    let location = if location.is_empty() { "*$pc" } else { location };
    let navigator = &mut *context.navigator;
    let number = navigator.set_breakpoint(location, condition, thread, temporary, context.watch)?;
    Ok(Output::Breakpoint {
        breakpoint: view(navigator.breakpoints.get_mut(number)?),
    })
}

/// Splits `LOCATION thread N`, as GDB writes it.
fn only_thread<'t>(context: &Context<'_>, text: &'t str) -> Result<(&'t str, Option<Tid>)> {
    let mut words = text.rsplitn(3, char::is_whitespace);
    let (Some(number), Some("thread")) = (words.next(), words.next()) else {
        return Ok((text, None));
    };
    let tid = thread_of(context, number)?;
    Ok((words.next().unwrap_or_default().trim(), Some(tid)))
}

pub(super) fn set_breakpoint(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    set(context, arguments, false)
}

pub(super) fn set_temporary(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    set(context, arguments, true)
}

pub(super) fn rbreak(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let pattern = regex(arguments)?;
    let mut found = Vec::new();
    for process in context.navigator.session().processes() {
        let mut functions = process.functions_in_all(|symbols| symbols.functions_matching(&pattern));
        functions.truncate(MAX_RBREAK + 1);
        found.extend(
            location::functions(process, &functions)
                .into_iter()
                .zip(functions)
                .map(|((hits, place), function)| {
                    (
                        function.name.to_string(),
                        place,
                        BTreeMap::from([(process.pid, hits)]),
                    )
                }),
        );
    }
    if found.is_empty() || found.len() > MAX_RBREAK {
        let problem = if found.is_empty() {
            "no function matches"
        } else {
            "more than 1000 functions match"
        };
        return Err(Error::Cannot(format!(
            "{problem} \"{arguments}\"; try `info functions {arguments}`"
        )));
    }
    let mut breakpoints = Vec::new();
    for (name, place, hits) in found {
        let found = ResolvedLocation {
            hits,
            places: vec![place],
            asked: AskedFrame::Function(name.clone()),
        };
        let number = context.navigator.breakpoints.add(name, found, false);
        breakpoints.push(view(context.navigator.breakpoints.get_mut(number)?));
    }
    Ok(Output::Breakpoints { breakpoints })
}

fn breakpoint_number(text: &str) -> Result<u32> {
    let number = text.trim().parse();
    number.map_err(|_| {
        Error::Cannot(format!(
            "\"{text}\" is not a breakpoint number; `info breakpoints` lists them"
        ))
    })
}

pub(super) fn delete(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let arguments = arguments.strip_prefix("breakpoints").unwrap_or(arguments).trim();
    if arguments.is_empty() {
        context.navigator.breakpoints.clear();
        return Ok(Output::message("Deleted all breakpoints."));
    }
    for number in arguments.split_whitespace() {
        context.navigator.breakpoints.delete(breakpoint_number(number)?)?;
    }
    Ok(Output::message(format!("Deleted {arguments}.")))
}

/// `disable N…` and `enable N…`; without N, all.
fn switch(context: &mut Context<'_>, arguments: &str, enabled: bool) -> Result<Output> {
    let breakpoints = &mut context.navigator.breakpoints;
    let arguments = arguments.strip_prefix("breakpoints").unwrap_or(arguments);
    let mut numbers: Vec<u32> = breakpoints.all().iter().map(|all| all.number).collect();
    if !arguments.is_empty() {
        let named = arguments.split_whitespace().map(breakpoint_number);
        numbers = named.collect::<Result<_>>()?;
    }
    for &number in &numbers {
        breakpoints.get_mut(number)?;
    }
    let mut views = Vec::new();
    for number in numbers {
        let breakpoint = breakpoints.get_mut(number)?;
        breakpoint.enabled = enabled;
        views.push(view(breakpoint));
    }
    Ok(Output::Breakpoints { breakpoints: views })
}

pub(super) fn disable(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    switch(context, arguments, false)
}

pub(super) fn enable(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    switch(context, arguments, true)
}

pub(super) fn condition(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (number, text) = arguments
        .split_once(char::is_whitespace)
        .unwrap_or((arguments, ""));
    let number = breakpoint_number(number)?;
    let condition = if text.trim().is_empty() {
        None
    } else {
        let hits = context.navigator.breakpoints.get_mut(number)?.hits.clone();
        Some(context.navigator.condition(text, &hits)?)
    };
    let breakpoint = context.navigator.breakpoints.get_mut(number)?;
    breakpoint.condition = condition;
    breakpoint.undecided = None;
    Ok(Output::Breakpoint {
        breakpoint: view(breakpoint),
    })
}

pub(super) fn ignore(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (number, count) = arguments
        .split_once(char::is_whitespace)
        .unwrap_or((arguments, "0"));
    let count = super::number(count.trim(), 0)?;
    let breakpoint = context
        .navigator
        .breakpoints
        .get_mut(breakpoint_number(number)?)?;
    breakpoint.ignore = count;
    Ok(Output::Breakpoint {
        breakpoint: view(breakpoint),
    })
}

pub(super) fn info(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let breakpoints = context.navigator.breakpoints.all().iter().map(view).collect();
    Ok(Output::Breakpoints { breakpoints })
}
