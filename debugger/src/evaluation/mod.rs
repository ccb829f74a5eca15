//! Evaluates expressions in the selected frame of a navigator.
//!
//! The registers and memory of the frame come from the core at the crash, and from the executed
//! code before it.

pub(crate) mod conditions;
mod core_source;
mod exact;
pub(crate) mod kernel_data;
pub mod memory;
pub(crate) mod past_memory;
mod recorded_sharing;
mod recovery;
pub mod selected_frame;
mod shared_memory;
pub(crate) mod thread_path;
pub mod variables;
pub(crate) mod watched;

use crate::error::{Error, Result};
use crate::navigator::Navigator;
use backtrail_decoder::Watch;
use backtrail_values::EvalContext;

/// The reason why most values before the crash are unknown.
pub const BEFORE: &str = "the trace records control flow only; values are known at the crash";

/// Calls `look` with the selected frame.
pub fn with_context<T>(
    navigator: &Navigator,
    watch: &Watch<'_>,
    look: impl FnOnce(&EvalContext<'_>) -> Result<T>,
) -> Result<T> {
    let frame = selected_frame::selected(navigator, watch)?;
    let mut context = EvalContext::new(navigator.symbols()?, &frame, &navigator.printed);
    context.elements = navigator.elements;
    let answer = look(&context);
    // A source cannot fail, and reports what it did not read as unknown.
    match watch.is_canceled() {
        true => Err(Error::Canceled),
        false => answer,
    }
}
