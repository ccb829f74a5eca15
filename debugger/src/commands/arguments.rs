//! The arguments of frames, for `backtrace` and where a breakpoint stops.

use crate::error::Result;
use crate::navigator::{FrameArguments, Navigator};
use crate::stack::{Argument, StackFrame};
use crate::values::{Scene, SelectedFrame, Shower};
use backtrail_decoder::Watch;
use backtrail_symbolizer::Variable;

/// Fills in the arguments of frames: the innermost ones where the navigator stands, without a hole.
///
/// # Errors
/// When canceled, or when older history has to be decoded for them.
pub(super) fn fill(navigator: &Navigator, frames: &mut [StackFrame], watch: &Watch<'_>) -> Result<()> {
    if navigator.frame_arguments == FrameArguments::None {
        return Ok(());
    }
    let process = navigator.process()?;
    let stack = frames.to_vec();
    for (number, frame) in frames.iter_mut().enumerate() {
        let selected = SelectedFrame::in_stack(navigator, &stack, number, watch)?;
        let scene = Scene::new(&process.symbols, &selected, &[]);
        let parameters = scene.scope.as_ref().map(|scope| &scope.parameters);
        frame.arguments = parameters.map(|parameters| {
            let argument = |parameter| argument(&scene, parameter, navigator.frame_arguments);
            parameters.iter().map(argument).collect()
        });
    }
    Ok(())
}

fn argument(scene: &Scene<'_>, parameter: &Variable, shown: FrameArguments) -> Argument {
    let mut argument = Argument {
        name: parameter.name.to_string(),
        value: None,
        unknown: None,
    };
    let Some(here) = &scene.here else {
        return argument;
    };
    let value = scene.value_of(parameter, here);
    if shown == FrameArguments::Scalars && !value.ty.is_simple() {
        argument.value = Some("...".to_owned());
        return argument;
    }
    let value = Shower::new(scene, None).show(&value, 0);
    match value.unknown {
        Some(why) if value.text.starts_with("<unknown") => argument.unknown = Some(why),
        _ => argument.value = Some(value.text),
    }
    argument
}
