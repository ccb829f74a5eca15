//! The selected frame at the crash, and values there as hints beside those that are unknown before
//! it.

use super::Navigator;
use crate::error::{Error, Result};
use backtrail_decoder::{Left, Watch};
use backtrail_values::FormattedValue;

/// The limit of frames at the crash that are searched.
const MAX_FRAMES: usize = 1000;

impl Navigator {
    /// Adds to each value that is unknown here the value of its expression at the crash, in the
    /// same frame of the same call. `evaluate` returns the value of an expression.
    ///
    /// # Errors
    ///
    /// If the frame depends on history that is not decoded yet; when canceled.
    pub fn add_values_at_crash<'v>(
        &mut self,
        values: impl IntoIterator<Item = (&'v str, &'v mut FormattedValue)>,
        watch: &Watch<'_>,
        evaluate: impl Fn(&Self, &str) -> Result<FormattedValue>,
    ) -> Result<()> {
        let values = values.into_iter();
        let values: Vec<_> = values.filter(|(_, value)| value.unknown.is_some()).collect();
        if values.is_empty() {
            return Ok(());
        }
        let added = self.looking_at_crash(watch, |navigator| {
            for (expression, value) in values {
                match evaluate(navigator, expression) {
                    Ok(then) if then.unknown.is_none() => value.at_crash = Some(then.text),
                    Err(error @ (Error::Canceled | Error::Earlier)) => return Err(error),
                    // The expression may have no value at the crash either.
                    Ok(_) | Err(_) => {}
                }
            }
            Ok(())
        })?;
        added.unwrap_or(Ok(()))
    }

    /// Calls `look` as if standing at the crash with the selected frame selected.
    ///
    /// Returns `None` if the position is the crash, or no core has the thread's state. The call of
    /// the frame must be open at the crash, and have one frame of the same function.
    ///
    /// # Errors
    /// If the frame depends on history that is not decoded yet; when canceled.
    fn looking_at_crash<T>(&mut self, watch: &Watch<'_>, look: impl FnOnce(&Self) -> T) -> Result<Option<T>> {
        let thread = self.thread()?;
        if self.is_at_end() || self.session().end_registers(thread.tid).is_none() {
            return Ok(None);
        }
        let selected = self.selected_frame();
        let frames = self.stack(selected.saturating_add(1), watch)?.frames;
        let Some(frame) = frames.into_iter().nth(selected) else {
            return Ok(None);
        };
        let forest = self.session().forest(thread, watch)?;
        let name = frame.call.as_deref().and_then(|name| name.parse().ok());
        let call = name.and_then(|name| thread.call_named(forest, name).ok()?);
        if call.is_none_or(|call| forest.call(call).left != Left::HistoryEnd) {
            return Ok(None);
        }
        let (tid, end) = (thread.tid, thread.history.len());
        self.visiting(tid, end, |navigator| {
            let frames = navigator.known_stack(MAX_FRAMES, watch)?.frames;
            let mut same = frames
                .iter()
                .filter(|then| then.call == frame.call && then.function == frame.function);
            let (Some(then), None) = (same.next(), same.next()) else {
                return Ok(None);
            };
            navigator.select_frame(then.number, watch)?;
            Ok(Some(look(navigator)))
        })
    }
}
