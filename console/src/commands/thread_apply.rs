//! Commands that run others: `thread apply`, and the commands of breakpoints.

use super::{Command, Context, Group, execute_one, find, parse};
use crate::output::{Output, ThreadAnswer};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::thread_at_time::thread_at_time;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::Watch;
use backtrail_pt::Tid;

/// The limit of answers, because the commands of a breakpoint can continue to other breakpoints.
const MAX_ANSWERS: usize = 10_000;

/// `thread apply all|TID… COMMAND`: runs a command that looks in several threads, where they were
/// at this time.
pub(super) fn thread_apply(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let misuse = |problem: &str| find("thread").map(|command| command.misuse(problem));
    let mut rest = arguments.trim();
    let mut tids: Vec<Tid> = Vec::new();
    let mut all = false;
    while let Some((word, following)) = rest.split_once(char::is_whitespace) {
        match word {
            "all" => all = true,
            word if is_number(word) => tids.push(thread_of(context, word)?),
            _ => break,
        }
        rest = following.trim_start();
    }
    if !all && tids.is_empty() {
        return Err(misuse("thread apply requires threads, or all, and a command")?);
    }
    let (command, of_command) = parse(rest)?;
    if !looks(command) {
        return Err(Error::Cannot(format!(
            "thread apply runs commands that do not move, like backtrace; {} moves or changes settings",
            command.name
        )));
    }
    let navigator = &mut *context.navigator;
    if all {
        tids = navigator
            .session()
            .threads()
            .iter()
            .map(|thread| thread.tid)
            .collect();
    }
    let (here, index) = (navigator.position().tid(), navigator.index());
    let mut answers = Vec::new();
    for tid in tids {
        let session = navigator.session();
        let there = thread_at_time(session, session.thread(here)?, index, session.thread(tid)?)?;
        let mut answer = ThreadAnswer {
            thread: Some(tid.0),
            command: rest.to_owned(),
            error: None,
            result: None,
        };
        let done = match there.index() {
            None => Err(Error::Cannot("its position at this time is unknown".to_owned())),
            Some(index) => navigator.visiting(tid, index, |navigator| {
                let mut context = Context {
                    navigator,
                    watch: context.watch,
                };
                (command.run)(&mut context, of_command)
            }),
        };
        match done {
            Err(Error::Canceled) => return Err(Error::Canceled),
            Err(Error::Earlier) => return Err(Error::Earlier),
            Err(error) => answer.error = Some(error.to_string()),
            Ok(output) => answer.result = Some(Box::new(output)),
        }
        answers.push(answer);
    }
    Ok(Output::Several { answers })
}

fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix('t').unwrap_or(word);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a command changes nothing.
fn looks(command: &Command) -> bool {
    let by_group = matches!(command.group, Group::Looking | Group::Flow | Group::Latency);
    by_group && !matches!(command.name, "frame" | "up" | "down")
        || matches!(command.name, "when" | "info gaps" | "info sharedlibrary")
}

/// `commands [N]`: what follows, up to `end`, is done where breakpoint N stops a move.
pub(super) fn commands(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let breakpoints = &mut context.navigator.breakpoints;
    let number = match arguments.parse() {
        Ok(number) => Some(number),
        Err(_) if arguments.is_empty() => breakpoints.last(),
        Err(_) => None,
    };
    let none = || {
        Error::Cannot(format!(
            "\"{arguments}\" is not a breakpoint number; `info breakpoints` lists them"
        ))
    };
    let number = number.ok_or_else(none)?;
    breakpoints.get_mut(number)?.commands.clear();
    breakpoints.taking_commands = Some(number);
    Ok(Output::Several { answers: Vec::new() })
}

/// A line typed after `commands`; says whether it was one.
pub(super) fn take(navigator: &mut Navigator, line: &str) -> Result<bool> {
    let breakpoints = &mut navigator.breakpoints;
    let Some(number) = breakpoints.taking_commands else {
        return Ok(false);
    };
    if line == "end" {
        breakpoints.taking_commands = None;
        return Ok(true);
    }
    match parse(line) {
        _ if line == "silent" => {}
        Ok((command, _)) if !matches!(command.name, "commands" | "quit") => {}
        Ok((command, _)) => {
            return Err(Error::Cannot(format!(
                "{} cannot be a command of a breakpoint",
                command.name
            )));
        }
        Err(error) => return Err(error.into()),
    }
    let breakpoint = breakpoints.get_mut(number)?;
    breakpoint.commands.push(line.to_owned());
    Ok(true)
}

/// Does the commands of the breakpoint at which a move ended, and of those at which they do; `stop`
/// is the move's answer.
///
/// # Errors
/// When canceled.
pub(super) fn follow(navigator: &mut Navigator, stop: Output, watch: &Watch<'_>) -> Result<Output> {
    let mut due = std::mem::take(&mut navigator.breakpoints.due).into_iter();
    let mut answers = Vec::new();
    let mut last = Some(stop);
    let push = |answers: &mut Vec<ThreadAnswer>, command: &str, result: Result<Output>| -> Result<()> {
        let (result, error) = match result {
            Err(Error::Canceled) => return Err(Error::Canceled),
            Err(error) => (None, Some(error.to_string())),
            Ok(output) => (Some(Box::new(output)), None),
        };
        answers.push(ThreadAnswer {
            thread: None,
            command: command.to_owned(),
            error,
            result,
        });
        Ok(())
    };
    let mut moved_by = String::new();
    while let Some(command) = due.next() {
        if command == "silent" && last.take().is_some() {
            continue;
        }
        if let Some(stop) = last.take() {
            push(&mut answers, &moved_by, Ok(stop))?;
        }
        if answers.len() >= MAX_ANSWERS {
            let error = Error::Cannot(format!("ended after {MAX_ANSWERS} answers"));
            push(&mut answers, &command, Err(error))?;
            return Ok(Output::Several { answers });
        }
        let result = execute_one(navigator, &command, watch);
        match result {
            // At another breakpoint, that breakpoint's commands run, as in GDB.
            Ok(Output::Stop(stop)) => {
                due = std::mem::take(&mut navigator.breakpoints.due).into_iter();
                last = Some(Output::Stop(stop));
                moved_by = command;
            }
            result => push(&mut answers, &command, result)?,
        }
    }
    match last {
        Some(stop) if answers.is_empty() => Ok(stop),
        Some(stop) => {
            push(&mut answers, &moved_by, Ok(stop))?;
            Ok(Output::Several { answers })
        }
        None => Ok(Output::Several { answers }),
    }
}

/// A thread by its id; a number that is none's counts the threads from 1, in the order of `info
/// threads`, as GDB's do.
pub(super) fn thread_of(context: &Context<'_>, text: &str) -> Result<Tid> {
    let none = || Error::NoThread(text.to_owned());
    let number: u32 = text.trim_start_matches('t').parse().map_err(|_| none())?;
    let session = context.navigator.session();
    if session.thread(Tid(number)).is_ok() {
        return Ok(Tid(number));
    }
    let at = (number as usize).checked_sub(1).ok_or_else(none)?;
    session
        .threads()
        .get(at)
        .map(|thread| thread.tid)
        .ok_or_else(none)
}
