//! A place in a JSON document that reports what is wrong there.
//!
//! Reading goes on after a wrong field, so that `check` can tell all of them; a reader takes the
//! first.

use crate::Error;
use serde_json::Value;
use std::cell::RefCell;

/// Everything found wrong in one document.
///
/// After [`Self::MAX`] it is enough: a file that is wrong everywhere must not fill the memory.
#[derive(Debug, Default)]
pub(crate) struct Findings(RefCell<Vec<Error>>);

impl Findings {
    const MAX: usize = 1000;

    pub(crate) fn add(&self, error: Error) {
        let mut list = self.0.borrow_mut();
        if list.len() < Self::MAX {
            list.push(error);
        }
    }

    pub(crate) fn into_vec(self) -> Vec<Error> {
        self.0.into_inner()
    }
}

/// A value, or the absence of one, with its path in the document.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    value: Option<&'a Value>,
    path: String,
    findings: &'a Findings,
}

impl<'a> Node<'a> {
    /// The root of the document that stands in the file `name`.
    pub(crate) fn root(value: &'a Value, name: &str, findings: &'a Findings) -> Self {
        Self {
            value: Some(value),
            path: format!("{name}:"),
            findings,
        }
    }

    /// Reports that this place is wrong.
    pub(crate) fn report(&self, problem: impl ToString) {
        self.findings
            .add(Error::malformed(self.path.trim_end_matches(':'), problem));
    }

    /// Reports an error that names its own place.
    pub(crate) fn report_error(&self, error: Error) {
        self.findings.add(match error {
            Error::Malformed { place, problem } => {
                Error::malformed(self.path.trim_end_matches(':'), format!("{place}: {problem}"))
            }
            other => other,
        });
    }

    /// Whether there is a value; `null` counts as none, as in LLDB.
    pub(crate) fn exists(&self) -> bool {
        self.present().is_some()
    }

    fn present(&self) -> Option<&'a Value> {
        self.value.filter(|value| !value.is_null())
    }

    /// The member `key` of this object.
    pub(crate) fn field(&self, key: &str) -> Self {
        let joint = if self.path.ends_with(':') { " " } else { "." };
        Self {
            value: self.present().and_then(|value| value.get(key)),
            path: format!("{}{joint}{key}", self.path),
            findings: self.findings,
        }
    }

    /// The value as seen through `view`, reported when there is none or another kind.
    fn required<T>(&self, kind: &str, view: impl FnOnce(&'a Value) -> Option<T>) -> Option<T> {
        let Some(value) = self.present() else {
            self.report(format!("{kind} is missing here"));
            return None;
        };
        let seen = view(value);
        if seen.is_none() {
            self.report(format!("this must be {kind}, not {}", brief(value)));
        }
        seen
    }

    /// Reports when this is no object.
    pub(crate) fn object(&self) -> Option<()> {
        self.required("an object", |value| value.is_object().then_some(()))
    }

    /// A string.
    pub(crate) fn string(&self) -> Option<String> {
        self.required("a string", |value| value.as_str().map(str::to_owned))
    }

    /// A string that may be absent. `None`: wrong, and reported.
    pub(crate) fn optional_string(&self) -> Option<Option<String>> {
        if self.exists() {
            self.string().map(Some)
        } else {
            Some(None)
        }
    }

    /// An integer from 0 to `max`.
    pub(crate) fn integer(&self, max: u64) -> Option<u64> {
        let value = self.required("a whole number", Value::as_u64)?;
        if value > max {
            self.report(format!("{value} is too large, at most {max} can be"));
            return None;
        }
        Some(value)
    }

    /// A 64-bit number: an integer, or a string in decimal or in hexadecimal with `0x`, as LLDB
    /// reads addresses.
    pub(crate) fn number(&self) -> Option<u64> {
        self.required("a whole number, or a string of one", |value| match value {
            Value::String(text) => match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
                Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
                Some(_) => None,
                None if text.starts_with('+') => None,
                None => text.parse().ok(),
            },
            other => other.as_u64(),
        })
    }

    /// A signed 32-bit integer.
    pub(crate) fn signed(&self) -> Option<i32> {
        self.required("a whole number of 32 bits", |value| {
            value.as_i64()?.try_into().ok()
        })
    }

    /// The elements of an array.
    pub(crate) fn array(&self) -> Option<Vec<Self>> {
        let elements = self.required("an array", Value::as_array)?;
        let element = |(index, value)| Self {
            value: Some(value),
            path: format!("{}[{index}]", self.path),
            findings: self.findings,
        };
        Some(elements.iter().enumerate().map(element).collect())
    }

    /// The elements of an array; none when it is absent.
    pub(crate) fn optional_array(&self) -> Option<Vec<Self>> {
        if self.exists() {
            self.array()
        } else {
            Some(Vec::new())
        }
    }
}

/// The value in few characters, for a message.
fn brief(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_read_as_lldb_reads_them() {
        let cases = [
            (json!(4_194_304), Some(4_194_304)),
            (json!("4194304"), Some(4_194_304)),
            (json!("0x400000"), Some(0x40_0000)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!("18446744073709551616"), None),
            (json!("0x"), None),
            (json!("+1"), None),
            (json!("0x+1"), None),
            (json!(-1), None),
            (json!(1.5), None),
            (json!([1]), None),
        ];
        for (value, expected) in cases {
            let findings = Findings::default();
            assert_eq!(Node::root(&value, "t", &findings).number(), expected, "{value}");
            assert_eq!(findings.into_vec().len(), usize::from(expected.is_none()));
        }
    }

    #[test]
    fn a_finding_names_its_place() {
        let value = json!({"a": [{}, {"b": "x"}]});
        let findings = Findings::default();
        let root = Node::root(&value, "trace.json", &findings);
        for element in root.field("a").array().unwrap() {
            element.field("b").integer(9);
        }
        let told: Vec<String> = findings.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "trace.json: a[0].b: a whole number is missing here",
                "trace.json: a[1].b: this must be a whole number, not \"x\""
            ]
        );
    }
}
