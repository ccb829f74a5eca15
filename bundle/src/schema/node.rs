//! A position in a JSON document that reports faults there.
//!
//! Decoding continues after a fault, so that `check` can list all of them. A reader uses only the
//! first.

use super::Findings;
use crate::Error;
use serde_json::Value;
use std::fmt;
use std::rc::Rc;

/// A step from one position of a document to the next. It is formatted only for messages.
enum Step {
    Root(String),
    Field(Rc<Step>, String),
    Element(Rc<Step>, usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Field(from, key) => match **from {
                Self::Root(_) => write!(f, "{from}: {key}"),
                _ => write!(f, "{from}.{key}"),
            },
            Self::Element(from, index) => match **from {
                Self::Root(_) => write!(f, "{from}: [{index}]"),
                _ => write!(f, "{from}[{index}]"),
            },
        }
    }
}

/// A JSON value, or its absence, with its path in the document.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    value: Option<&'a Value>,
    place: Rc<Step>,
    findings: &'a Findings,
}

impl<'a> Node<'a> {
    /// Returns the root of the document in the file `name`.
    pub(crate) fn root(value: &'a Value, name: &str, findings: &'a Findings) -> Self {
        Self {
            value: Some(value),
            place: Rc::new(Step::Root(name.to_owned())),
            findings,
        }
    }

    /// Reports a fault at this position.
    pub(crate) fn report(&self, problem: impl ToString) {
        self.findings.add(|| Error::malformed(&self.place, problem));
    }

    /// Reports a fault at this position. The message is formatted only if it will be listed.
    fn report_by(&self, problem: impl FnOnce() -> String) {
        self.findings.add(|| Error::malformed(&self.place, problem()));
    }

    /// Reports an error that states its own position.
    pub(crate) fn report_error(&self, error: Error) {
        self.findings.add(|| match error {
            Error::Malformed { place, problem } => {
                Error::malformed(&self.place, format!("{place}: {problem}"))
            }
            other => other,
        });
    }

    /// Returns whether the value exists. `null` counts as absent, as in LLDB.
    pub(crate) fn exists(&self) -> bool {
        self.present().is_some()
    }

    fn present(&self) -> Option<&'a Value> {
        self.value.filter(|value| !value.is_null())
    }

    /// Returns the member `key` of this object.
    pub(crate) fn field(&self, key: &str) -> Self {
        Self {
            value: self.present().and_then(|value| value.get(key)),
            place: Rc::new(Step::Field(Rc::clone(&self.place), key.to_owned())),
            findings: self.findings,
        }
    }

    /// Returns the value converted by `view`. Reports a fault if it is absent or of another type.
    fn required<T>(&self, kind: &str, view: impl FnOnce(&'a Value) -> Option<T>) -> Option<T> {
        let Some(value) = self.present() else {
            self.report_by(|| format!("{kind} is missing here"));
            return None;
        };
        let seen = view(value);
        if seen.is_none() {
            self.report_by(|| format!("this must be {kind}, not {}", brief(value)));
        }
        seen
    }

    /// Reports a fault if this is not an object.
    pub(crate) fn object(&self) -> Option<()> {
        self.required("an object", |value| value.is_object().then_some(()))
    }

    /// Returns a string.
    pub(crate) fn string(&self) -> Option<String> {
        self.required("a string", |value| value.as_str().map(str::to_owned))
    }

    /// Returns an optional string. Returns `None` after reporting a fault.
    pub(crate) fn optional_string(&self) -> Option<Option<String>> {
        if self.exists() {
            self.string().map(Some)
        } else {
            Some(None)
        }
    }

    /// Returns a truth value.
    pub(crate) fn boolean(&self) -> Option<bool> {
        self.required("true or false", Value::as_bool)
    }

    /// Returns an integer from 0 to `max`.
    pub(crate) fn integer(&self, max: u64) -> Option<u64> {
        let value = self.required("a whole number", Value::as_u64)?;
        if value > max {
            self.report(format!("{value} is too large; the maximum is {max}"));
            return None;
        }
        Some(value)
    }

    /// Returns a 64-bit number. It may be an integer, or a decimal or hexadecimal (`0x`) string, as
    /// in LLDB.
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

    /// Returns a signed 32-bit integer.
    pub(crate) fn signed(&self) -> Option<i32> {
        self.required("a whole number of 32 bits", |value| {
            value.as_i64()?.try_into().ok()
        })
    }

    /// Iterates over the elements of an array. They are built one by one, as there may be millions.
    pub(crate) fn array(&self) -> Option<impl ExactSizeIterator<Item = Self>> {
        let elements = self.required("an array", Value::as_array)?;
        Some(self.elements(elements))
    }

    /// Iterates over the elements of an optional array.
    pub(crate) fn optional_array(&self) -> Option<impl ExactSizeIterator<Item = Self>> {
        if self.exists() {
            let elements = self.required("an array", Value::as_array)?;
            Some(self.elements(elements))
        } else {
            Some(self.elements(&[]))
        }
    }

    /// Iterates over the members of an optional object, with their keys.
    pub(crate) fn optional_members(&self) -> Option<impl Iterator<Item = (String, Self)>> {
        let members = match self.exists() {
            true => Some(self.required("an object", Value::as_object)?),
            false => None,
        };
        let (place, findings) = (Rc::clone(&self.place), self.findings);
        Some(members.into_iter().flatten().map(move |(key, value)| {
            let member = Self {
                value: Some(value),
                place: Rc::new(Step::Field(Rc::clone(&place), key.clone())),
                findings,
            };
            (key.clone(), member)
        }))
    }

    fn elements(&self, elements: &'a [Value]) -> impl ExactSizeIterator<Item = Self> + use<'a> {
        let (place, findings) = (Rc::clone(&self.place), self.findings);
        elements.iter().enumerate().map(move |(index, value)| Self {
            value: Some(value),
            place: Rc::new(Step::Element(Rc::clone(&place), index)),
            findings,
        })
    }
}

/// Returns a short form of the value for a message.
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
    fn faults_beyond_the_limit_are_only_counted() {
        let value = Value::Array(vec![json!(1); 1_000_000]);
        let findings = Findings::default();
        for element in Node::root(&value, "trace.json", &findings).array().unwrap() {
            assert!(element.object().is_none());
        }
        let listed = findings.into_vec();
        assert_eq!(listed.len(), Findings::MAX + 1);
        assert_eq!(
            listed[0].to_string(),
            "trace.json: [0]: this must be an object, not 1"
        );
        assert_eq!(
            listed.last().unwrap().to_string(),
            "this bundle: 999900 more faults are not listed"
        );
    }

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
    fn finding_states_its_position() {
        let value = json!({"a": [{}, {"b": "x"}]});
        let findings = Findings::default();
        let root = Node::root(&value, "trace.json", &findings);
        for element in root.field("a").array().unwrap() {
            element.field("b").integer(9);
        }
        let listed: Vec<String> = findings.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(
            listed,
            [
                "trace.json: a[0].b: a whole number is missing here",
                "trace.json: a[1].b: this must be a whole number, not \"x\""
            ]
        );
    }
}
