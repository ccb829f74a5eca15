//! `set …` and `quit`.

use super::Context;
use crate::disassembly::Flavor;
use crate::error::{Error, Result};
use crate::output::Output;

pub(super) fn disassembly_flavor(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    context.navigator.flavor = match arguments {
        "att" => Flavor::Att,
        "intel" => Flavor::Intel,
        _ => {
            return Err(Error::Cannot(
                "set disassembly-flavor takes att or intel".to_owned(),
            ));
        }
    };
    Ok(Output::message(format!("Disassembly is in {arguments} syntax.")))
}

pub(super) fn substitute_path(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let Some((from, to)) = arguments.split_once(char::is_whitespace) else {
        return Err(Error::Cannot(
            "set substitute-path takes two paths: FROM as recorded, TO as on this machine".to_owned(),
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
        "Source files below {from} are looked for below {to}."
    )))
}

/// `set print pretty [on|off]`.
pub(super) fn print(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let pretty = match words[..] {
        ["pretty"] | ["pretty", "on" | "1"] => true,
        ["pretty", "off" | "0"] => false,
        _ => {
            return Err(Error::Cannot(
                "of GDB's `set print`, `pretty on` and `pretty off` are here; `print/r` shows a library's type as it is inside"
                    .to_owned(),
            ));
        }
    };
    context.navigator.pretty = pretty;
    Ok(Output::message(match pretty {
        true => "Each member of a value stands in a line of its own.",
        false => "Values stand in one line.",
    }))
}

/// Settings of GDB that have no effect here: nothing is paged, asked back or cut to a width.
pub(super) fn accepted(_context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    Ok(Output::message(
        "Nothing is paged, asked back or cut to a width here, so this changes nothing.",
    ))
}

pub(super) fn quit(_context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    Ok(Output::Quit)
}
