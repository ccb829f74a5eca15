//! `set …` and `quit`.

use super::Context;
use crate::output::Output;
use backtrail_debugger::disassembly::Flavor;
use backtrail_debugger::navigator::FrameArguments;
use backtrail_debugger::{Error, Result};
use backtrail_values::MAX_ELEMENTS;

pub(super) fn disassembly_flavor(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    context.navigator.flavor = match arguments {
        "att" => Flavor::Att,
        "intel" => Flavor::Intel,
        _ => {
            return Err(Error::Cannot(
                "set disassembly-flavor requires att or intel".to_owned(),
            ));
        }
    };
    Ok(Output::message(format!("The disassembly syntax is {arguments}.")))
}

pub(super) fn substitute_path(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let Some((from, to)) = arguments.split_once(char::is_whitespace) else {
        return Err(Error::Cannot(
            "set substitute-path requires two paths: FROM as recorded, TO on this machine".to_owned(),
        ));
    };
    let (from, to) = (from.trim(), to.trim());
    context
        .navigator
        .sources
        .substitutions
        .retain(|(known, _)| known != from);
    context
        .navigator
        .sources
        .substitutions
        .push((from.to_owned(), to.to_owned()));
    Ok(Output::message(format!(
        "Source files under {from} are searched under {to}."
    )))
}

/// `set print pretty [on|off]`, `set print frame-arguments none|scalars|all`, `set print elements
/// N`.
pub(super) fn print(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let navigator = &mut *context.navigator;
    let said = match words[..] {
        ["pretty"] | ["pretty", "on" | "1"] => {
            navigator.pretty = true;
            "Structures are printed with one line for each member."
        }
        ["pretty", "off" | "0"] => {
            navigator.pretty = false;
            "Values are printed on one line."
        }
        ["frame-arguments", "none"] => {
            navigator.frame_arguments = FrameArguments::None;
            "Frames are printed without arguments."
        }
        ["frame-arguments", "scalars"] => {
            navigator.frame_arguments = FrameArguments::Scalars;
            "Frames are printed with their scalar arguments."
        }
        ["frame-arguments", "all"] => {
            navigator.frame_arguments = FrameArguments::All;
            "Frames are printed with all arguments."
        }
        ["elements", count] => {
            let wanted = match count {
                "unlimited" | "0" => Some(MAX_ELEMENTS),
                count => count.parse().ok(),
            };
            let none = || Error::Cannot(format!("\"{count}\" is not a number of elements"));
            navigator.elements = wanted.ok_or_else(none)?.min(MAX_ELEMENTS);
            return Ok(Output::message(format!(
                "Strings and arrays are printed up to {} elements.",
                navigator.elements
            )));
        }
        _ => {
            return Err(Error::Cannot(
                "of GDB's `set print`, `pretty on|off`, `elements N` and `frame-arguments none|scalars|all` are here; `print/r` shows a \
                 library's type as it is inside"
                    .to_owned(),
            ));
        }
    };
    Ok(Output::message(said))
}

/// `set scheduler-locking on|off|step|replay`: in which threads `continue` stops.
pub(super) fn scheduler_locking(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (locked, said) = match arguments {
        // GDB's `replay` locks while a recording is replayed.
        "on" | "replay" => (true, "`continue` stays in the current thread."),
        "off" | "step" => (
            false,
            "`continue` stops at the next hit in any thread; steps stay in theirs.",
        ),
        _ => {
            return Err(Error::Cannot(
                "set scheduler-locking requires on, off, step or replay".to_owned(),
            ));
        }
    };
    context.navigator.scheduler_locking = locked;
    Ok(Output::message(said))
}

/// `set just-my-code on|off`: whether steps pass over library code.
pub(super) fn just_my_code(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (on, said) = match arguments {
        "" | "on" | "1" | "yes" | "enable" => (true, "Steps and `finish` pass over library code."),
        "off" | "0" | "no" | "disable" => (false, "Steps stop in library code too."),
        _ => return Err(Error::Cannot("set just-my-code requires on or off".to_owned())),
    };
    context.navigator.just_my_code = on;
    Ok(Output::message(said))
}

/// `set pager on|off`: whether long output goes to a pager.
pub(super) fn pager(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (on, said) = match arguments {
        "" | "on" | "1" | "yes" | "enable" => (true, "Output longer than the terminal goes to the pager."),
        "off" | "0" | "no" | "disable" => (false, "Output is printed without a pager."),
        _ => return Err(Error::Cannot("set pager requires on or off".to_owned())),
    };
    context.navigator.pager = on;
    Ok(Output::message(said))
}

/// Settings of GDB that have no effect here: nothing is asked back or cut to a width.
pub(super) fn accepted(_context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    Ok(Output::message(
        "This setting has no effect: nothing is confirmed or cut, and `set pager off` turns the pager off.",
    ))
}

pub(super) fn quit(_context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    Ok(Output::Quit)
}
