//! The arguments of frames, for `backtrace` and where a breakpoint stops.

use backtrail_debugger::Result;
use backtrail_debugger::evaluation::selected_frame::{self, known_stack_of_frame};
use backtrail_debugger::navigator::{FrameArguments, Navigator};
use backtrail_debugger::stack::{Argument, StackFrame};
use backtrail_decoder::{Canceled, Watch};
use backtrail_symbolizer::Variable;
use backtrail_values::{EvalContext, ValueFormatter};

/// Adds the arguments to frames from number `from` on.
///
/// `frames` are the innermost frames at the navigator's position, without a hole.
///
/// # Errors
///
/// If the arguments depend on history that is not decoded yet; when canceled.
pub(super) fn fill(
    navigator: &Navigator,
    frames: &mut [StackFrame],
    from: usize,
    watch: &Watch<'_>,
) -> Result<()> {
    if navigator.frame_arguments == FrameArguments::None {
        return Ok(());
    }
    // If the last frame is inlined, its physical frame is not among them.
    let stack = match frames.last() {
        Some(last) if last.inlined => known_stack_of_frame(navigator, frames.len() - 1, watch)?,
        _ => frames.to_vec(),
    };
    let selected = selected_frame::all(navigator, &stack, from, watch);
    for (frame, selected) in frames.iter_mut().skip(from).zip(selected) {
        if watch.is_canceled() {
            return Err(Canceled.into());
        }
        let selected = selected?;
        let eval = EvalContext::new(navigator.symbols()?, &selected, &[]);
        let parameters = eval.scope.as_ref().map(|scope| &scope.parameters);
        frame.arguments = parameters.map(|parameters| {
            let argument = |parameter| argument(&eval, parameter, navigator.frame_arguments);
            parameters.iter().map(argument).collect()
        });
    }
    Ok(())
}

fn argument(eval: &EvalContext<'_>, parameter: &Variable, shown: FrameArguments) -> Argument {
    let mut argument = Argument {
        name: parameter.name.to_string(),
        value: None,
        unknown: None,
    };
    let Some(here) = &eval.here else {
        return argument;
    };
    let value = eval.value_of(parameter, here);
    if shown == FrameArguments::Scalars && !value.ty.is_simple() {
        argument.value = Some("...".to_owned());
        return argument;
    }
    let value = ValueFormatter::new(eval, None).show(&value, 0);
    match value.unknown {
        Some(why) if value.text.starts_with("<unknown") => argument.unknown = Some(why),
        _ => argument.value = Some(value.text),
    }
    argument
}
