//! A value as text, with the parts that it is made of.

use super::text::REPEATS;
use super::value::{Unavailable, Value};
use serde::Serialize;
use std::fmt;

/// A value as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FormattedValue {
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// In one line.
    pub text: String,
    /// The address, if the value is in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// The reason why the value or a part of it is unknown; `"optimized out"` if it has no
    /// location.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Before the crash, if the value is unknown: the value of the same expression at the crash, in
    /// the same frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_crash: Option<String>,
    /// Before the crash, what it is known from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// The children.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<FormattedMember>,
    /// Whether a library type is shown as its contents.
    #[serde(skip)]
    pub pretty: bool,
    /// The underlying value.
    #[serde(skip)]
    pub of: UnderlyingValue,
}

impl FormattedValue {
    /// Builds a value of parts; `text` has all of them.
    pub fn with_members(text: String, members: Vec<FormattedMember>) -> Self {
        Self {
            text,
            members,
            ..Self::default()
        }
    }

    /// Builds the text that replaces an unavailable value.
    pub fn unavailable(cause: &Unavailable) -> Self {
        Self {
            unknown: Some(cause.reason()),
            ..text(cause.text())
        }
    }
}

/// The value that is shown, for opening it further. Formatted values that differ only in it are
/// equal.
#[derive(Clone, Default)]
pub struct UnderlyingValue(pub Option<Value>);

impl PartialEq for UnderlyingValue {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for UnderlyingValue {}

impl fmt::Debug for UnderlyingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Whole" } else { "Nothing" })
    }
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FormattedMember {
    /// The name: that of a variable or member, `[0]`, or `<Base>`.
    pub name: String,
    /// The part.
    #[serde(flatten)]
    pub value: FormattedValue,
    /// The number of equal elements in a row.
    #[serde(skip_serializing_if = "is_once")]
    pub repeats: u64,
}

fn is_once(repeats: &u64) -> bool {
    *repeats == 1
}

impl FormattedMember {
    /// Builds a member that occurs once.
    pub fn new(name: impl Into<String>, value: FormattedValue) -> Self {
        Self {
            name: name.into(),
            value,
            repeats: 1,
        }
    }
}

/// Elements in one line; `named`: with their names.
pub fn listed(elements: &[FormattedMember], more: bool, named: bool) -> String {
    let mut parts = Vec::new();
    for element in elements {
        let shown = |after: u64| match named {
            true => format!("{} = {}", number_after(&element.name, after), element.value.text),
            false => element.value.text.clone(),
        };
        if element.repeats >= REPEATS as u64 {
            parts.push(format!("{} <repeats {} times>", shown(0), element.repeats));
        } else {
            parts.extend((0..element.repeats).map(shown));
        }
    }
    let mut text = parts.join(", ");
    if more {
        text.push_str("...");
    }
    text
}

/// Returns the name of the element `after` elements later.
fn number_after(name: &str, after: u64) -> String {
    let number = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match number.and_then(|number| number.parse::<u64>().ok()) {
        Some(number) if after > 0 => format!("[{}]", number.saturating_add(after)),
        _ => name.to_owned(),
    }
}

/// Returns values with the names `[0]`, `[1]` and so on.
pub fn numbered(values: impl IntoIterator<Item = Value>) -> impl Iterator<Item = (String, Value)> {
    (0u64..)
        .zip(values)
        .map(|(number, value)| (format!("[{number}]"), value))
}

/// Text alone.
pub fn text(text: impl Into<String>) -> FormattedValue {
    FormattedValue {
        text: text.into(),
        ..FormattedValue::default()
    }
}
