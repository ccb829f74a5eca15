//! Values at the crash, as hints beside those that are unknown before it.

use super::Context;
use super::evaluate::evaluated;
use backtrail_debugger::evaluation::with_context;
use backtrail_debugger::{Error, Result};
use backtrail_values::FormattedValue;

/// Adds to each value that is unknown here what its expression had at the crash, in the same frame
/// of the same call.
///
/// # Errors
/// If the frame depends on history that is not decoded yet; when canceled.
pub(super) fn add_hints<'v>(
    context: &mut Context<'_>,
    format: &str,
    values: impl IntoIterator<Item = (&'v str, &'v mut FormattedValue)>,
) -> Result<()> {
    let unknown = |(_, value): &(&str, &mut FormattedValue)| value.unknown.is_some();
    let values: Vec<_> = values.into_iter().filter(unknown).collect();
    if values.is_empty() {
        return Ok(());
    }
    let watch = context.watch;
    let added = context.navigator.looking_at_crash(watch, |navigator| {
        for (expression, value) in values {
            let then = with_context(navigator, watch, |eval| evaluated(eval, format, expression));
            match then {
                Ok((Some(_), then)) if then.unknown.is_none() => value.at_crash = Some(then.text),
                Err(error @ (Error::Canceled | Error::Earlier)) => return Err(error),
                // The expression may have no value at the crash either.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    })?;
    added.unwrap_or(Ok(()))
}
