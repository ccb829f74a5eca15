//! Evaluates expressions in the selected frame of a navigator.
//!
//! The registers and memory of the frame come from the core at the crash, and from the executed code before it.

pub(crate) mod conditions;
mod core_source;
pub mod memory;
mod recovery;
pub mod selected_frame;
pub mod variables;

use crate::error::Result;
use crate::navigator::Navigator;
use backtrail_decoder::Watch;
use backtrail_values::Scene;

/// Calls `look` with the selected frame.
pub fn with_scene<T>(
    navigator: &Navigator,
    watch: &Watch<'_>,
    look: impl FnOnce(&Scene<'_>) -> Result<T>,
) -> Result<T> {
    let frame = selected_frame::selected(navigator, watch)?;
    let process = navigator.process()?;
    let mut scene = Scene::new(&process.symbols, &frame, &navigator.printed);
    scene.elements = navigator.elements;
    look(&scene)
}
