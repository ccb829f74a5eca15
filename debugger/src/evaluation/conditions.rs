//! Evaluates expressions as conditions.

use super::selected_frame;
use crate::breakpoint::Truth;
use crate::error::Result;
use crate::navigator::Navigator;
use backtrail_decoder::Watch;
use backtrail_pt::Avma;
use backtrail_values::{EvalContext, Failure, Frame, NoSource, parse};

/// Returns whether an expression is true in the selected frame.
///
/// # Errors
///
/// If the expression is invalid there; when canceled.
pub(crate) fn truth(navigator: &Navigator, expression: &str, watch: &Watch<'_>) -> Result<Truth> {
    let frame = selected_frame::selected(navigator, watch)?;
    let context = EvalContext::new(navigator.symbols()?, &frame, &navigator.printed);
    match context.is_true(&parse(expression, &context)?) {
        Ok(truth) => Ok(Truth::Known(truth)),
        Err(Failure::Unavailable(cause)) => Ok(Truth::Unknown(format!("{expression} is {}", cause.text()))),
        Err(Failure::Error(error)) => Err(error.into()),
    }
}

/// Checks that an expression is valid at an address of the current process, whatever its value.
///
/// # Errors
///
/// If the expression is invalid there.
pub(crate) fn check(navigator: &Navigator, at: Option<Avma>, expression: &str) -> Result<()> {
    let process = navigator.process()?;
    let frame = Frame {
        look_up: at,
        pc: at.map(|at| at.0),
        level: 0,
        source: Box::new(NoSource::because("it is evaluated at the breakpoint")),
    };
    // The function at the address may be of a module that was mapped for a time.
    let mut epochs = process.epochs().iter().map(|epoch| &epoch.symbols);
    let has_code = |symbols: &&std::sync::Arc<backtrail_symbolizer::Symbolizer>| {
        at.is_some_and(|at| symbols.function_at(at).is_some())
    };
    let symbols = epochs.rfind(has_code).unwrap_or(&process.symbols);
    let context = EvalContext::new(symbols, &frame, &navigator.printed);
    match context.is_true(&parse(expression, &context)?) {
        Err(Failure::Error(error)) => Err(error.into()),
        Ok(_) | Err(Failure::Unavailable(_)) => Ok(()),
    }
}
