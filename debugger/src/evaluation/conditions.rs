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
    let process = navigator.process()?;
    let context = EvalContext::new(&process.symbols, &frame, &navigator.printed);
    match context.is_true(&parse(expression, &context)?) {
        Ok(truth) => Ok(Truth::Known(truth)),
        Err(Failure::Gap(gap)) => Ok(Truth::Unknown(format!("{expression} is {}", gap.text()))),
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
    let context = EvalContext::new(&process.symbols, &frame, &navigator.printed);
    match context.is_true(&parse(expression, &context)?) {
        Err(Failure::Error(error)) => Err(error.into()),
        Ok(_) | Err(Failure::Gap(_)) => Ok(()),
    }
}
