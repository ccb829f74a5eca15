//! Expressions with a format, as `print` and `display` take them.

use backtrail_debugger::{Error, Result};
use backtrail_values::{EvalContext, FormattedValue, Value, ValueFormatter, parse};

/// The letters of `print/F`.
const LETTERS: &str = "xduotacfsz";

/// The one letter of a format that `print` and `display` take; `r` asks for types of libraries as
/// they are inside.
fn letter_of(format: &str) -> Result<(Option<char>, bool)> {
    let raw = format.contains('r');
    let mut letters = format.chars().filter(|letter| *letter != 'r');
    let letter = letters.next();
    let known = letter.is_none_or(|letter| LETTERS.contains(letter));
    if !known || letters.next().is_some() {
        return Err(Error::Cannot(format!(
            "print requires one letter of {LETTERS} after the slash, and optionally r for raw values, not \"{format}\""
        )));
    }
    Ok((letter, raw))
}

/// An expression's value, and how it is shown.
pub(super) fn evaluated(
    eval: &EvalContext<'_>,
    format: &str,
    expression: &str,
) -> Result<(Option<Value>, FormattedValue)> {
    let (letter, raw) = letter_of(format)?;
    let parsed = parse(expression, eval)?;
    let mut formatter = ValueFormatter::new(eval, letter);
    formatter.raw = raw;
    match eval.evaluate(&parsed) {
        Ok(value) => {
            let mut shown = formatter.top(&value);
            shown.origins = eval.source.origins();
            Ok((Some(value), shown))
        }
        Err(failure) => Ok((None, ValueFormatter::failed(failure)?)),
    }
}
