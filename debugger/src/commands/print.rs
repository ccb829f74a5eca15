//! `print`: registers, and what is not known.

use super::Context;
use crate::disassembly;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::registers;
use backtrail_pt::Avma;

pub(super) fn print(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    // `print/x $pc` is what people type; all values are shown in hexadecimal.
    let name = match arguments.strip_prefix('/') {
        Some(rest) => rest
            .split_once(char::is_whitespace)
            .map_or("", |(_, name)| name)
            .trim(),
        None => arguments,
    };
    if name.is_empty() {
        return Err(Error::Cannot(
            "print takes a register, for example `print $pc`".to_owned(),
        ));
    }
    let value = registers::value(context.navigator, name)?;
    let process = context.navigator.process().ok();
    let symbol = process.and_then(|process| disassembly::symbol(&process.symbols, Avma(value)));
    Ok(Output::Value {
        name: name.to_owned(),
        value,
        symbol,
    })
}
