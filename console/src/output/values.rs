//! Values, variables, types and memory as text.

use super::{Paint, Text};
use backtrail_debugger::evaluation::BEFORE;
use backtrail_values::{FormattedMember, FormattedValue};
use serde::Serialize;
use std::borrow::Cow;

/// A line of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryLine {
    /// The address of the first value.
    pub address: u64,
    /// The address with the symbol there.
    #[serde(skip)]
    pub label: String,
    /// The formatted values.
    pub values: Vec<String>,
    /// The reason why some values are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// An expression that is displayed, and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedValue {
    /// Its number.
    pub number: u32,
    /// The format letters after the slash, or nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub format: String,
    /// The expression.
    pub expression: String,
    /// Its value; the lines that `x` shows, where the format asks for memory.
    pub value: FormattedValue,
    /// The value.
    #[serde(skip)]
    pub memory: bool,
}

pub(super) fn render_value(number: Option<usize>, expression: &str, value: &FormattedValue, to: &mut Text) {
    match number {
        Some(number) => to.lines(format!("${number} = {}", value.text)),
        None => to.lines(format!("{expression} = {}", value.text)),
    }
    render_origins(value, to);
}

/// Writes the origins of a value before the crash, or what it was at the crash.
fn render_origins(value: &FormattedValue, to: &mut Text) {
    if let Some(then) = &value.at_crash {
        to.line(to.paint(Paint::Faint, format!("    <at the crash: {then}>")));
    }
    for origin in &value.origins {
        to.line(to.paint(Paint::Faint, format!("    <{origin}>")));
    }
}

pub(super) fn render_variables(variables: &[FormattedMember], none: &str, to: &mut Text) {
    if variables.is_empty() {
        to.line(none);
    }
    let mut reasons = false;
    for variable in variables {
        let text = without_reasons(&variable.value.text);
        reasons |= matches!(text, Cow::Owned(_));
        match &variable.value.at_crash {
            Some(then) if text == UNKNOWN && !then.contains('\n') => {
                let hint = to.paint(Paint::Faint, format!("<at the crash: {then}>"));
                to.line(format!("{} = {text}  {hint}", variable.name));
            }
            _ => {
                to.lines(format!("{} = {text}", variable.name));
                render_origins(&variable.value, to);
            }
        }
    }
    if reasons {
        to.line(to.paint(Paint::Faint, "?: unknown before the crash; `print NAME` says why"));
    }
}

/// A value in a list that is unknown before the crash.
const UNKNOWN: &str = "?";

/// Returns a value without the reason that nearly all unknown values before the crash have. It is
/// longer than most values. Other reasons stay.
fn without_reasons(text: &str) -> Cow<'_, str> {
    let reason = format!("<unknown: {BEFORE}>");
    match text.contains(&reason) {
        true => Cow::Owned(text.replace(&reason, UNKNOWN)),
        false => Cow::Borrowed(text),
    }
}

pub(super) fn render_type(text: &str, to: &mut Text) {
    for (number, line) in text.lines().enumerate() {
        match number {
            0 => to.line(format!("type = {line}")),
            _ => to.line(line),
        }
    }
}

pub(super) fn render_memory(lines: &[MemoryLine], to: &mut Text) {
    for line in lines {
        to.line(format!("{}\t{}", line.label, line.values.join("\t")));
    }
}

pub(super) fn render_displays(displays: &[NamedValue], to: &mut Text) {
    if displays.is_empty() {
        to.line("Nothing is displayed; `display EXPRESSION` shows a value after each move.");
    }
    for display in displays {
        if display.memory {
            to.line(format!(
                "{}: x/{} {}",
                display.number, display.format, display.expression
            ));
            display.value.text.lines().for_each(|line| to.line(line));
            continue;
        }
        let format = match display.format.as_str() {
            "" => String::new(),
            letters => format!("/{letters} "),
        };
        to.lines(format!(
            "{}: {format}{} = {}",
            display.number, display.expression, display.value.text
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_usual_reason_is_left_out() {
        let usual = format!("<unknown: {BEFORE}>");
        let partial = format!("{{a = {usual}, b = 2, c = {usual}}}");
        for (text, short) in [
            ("7", "7"),
            ("<optimized out>", "<optimized out>"),
            ("<unknown: not supported>", "<unknown: not supported>"),
            (&*usual, "?"),
            (&*partial, "{a = ?, b = 2, c = ?}"),
        ] {
            assert_eq!(without_reasons(text), short);
        }
    }
}
