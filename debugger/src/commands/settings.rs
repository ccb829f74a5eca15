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

pub(super) fn quit(_context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    Ok(Output::Quit)
}
