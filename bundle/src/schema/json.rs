//! Parses untrusted JSON with bounded memory.
//!
//! `serde_json::Value` takes 32 bytes for a value of one character, and more than 600 for an object
//! with one member. The parser therefore adds up the memory of a document while it reads it.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// The most memory of a document in bytes. A typical description of 16 MiB takes about half.
pub(super) const MAX_MEMORY: usize = 256 << 20;

/// The cost of an array element; arrays grow by doubling.
const ELEMENT: usize = 2 * size_of::<Value>();
/// The cost of a map's tree node, which the first member allocates.
const NODE: usize = 640;
/// The cost of a map member, in a tree whose nodes are half empty.
const MEMBER: usize = 2 * (size_of::<Value>() + size_of::<String>());

/// The reason why a document was refused.
#[derive(Debug)]
pub(super) enum ParseError {
    /// The document would exceed the memory limit.
    Memory,
    /// The document is not valid JSON.
    Syntax(serde_json::Error),
}

/// Parses a document with a limit of `memory` bytes.
pub(super) fn parse(bytes: &[u8], memory: usize) -> Result<Value, ParseError> {
    let left = Cell::new(Some(memory));
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = BoundedValue(&left).deserialize(&mut deserializer);
    match parsed.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(value) => Ok(value),
        Err(_) if left.get().is_none() => Err(ParseError::Memory),
        Err(error) => Err(ParseError::Syntax(error)),
    }
}

/// Deserializes a value within the remaining memory, which becomes `None` once it is exceeded.
#[derive(Clone, Copy)]
struct BoundedValue<'m>(&'m Cell<Option<usize>>);

impl BoundedValue<'_> {
    fn spend<E: serde::de::Error>(self, amount: usize) -> Result<(), E> {
        let left = self.0.get().and_then(|left| left.checked_sub(amount));
        self.0.set(left);
        left.map(|_| ())
            .ok_or_else(|| E::custom("it takes too much memory"))
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.spend(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            self.spend(ELEMENT)?;
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            self.spend(if map.is_empty() { NODE } else { MEMBER })?;
            self.spend(key.len())?;
            map.insert(key, members.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bounded_parser_agrees_with_serde_json() {
        let text = r#"{"a": [1, -2, 1.5, 1e400, true, null, "x\u00e9\n", {}, []], "b": {"c": 18446744073709551615}, "a": 2}"#;
        for text in [
            text,
            "[1, 2",
            "",
            "1 2",
            r#"{"a" 1}"#,
            "nul",
            &"[".repeat(200),
            "[1e30]",
            " 7 ",
        ] {
            let expected: Result<Value, _> = serde_json::from_str(text);
            match (parse(text.as_bytes(), MAX_MEMORY), expected) {
                (Ok(value), Ok(expected)) => assert_eq!(value, expected),
                (Err(ParseError::Syntax(error)), Err(expected)) => {
                    assert_eq!(error.to_string(), expected.to_string());
                }
                (found, expected) => panic!("{text}: {found:?}, but {expected:?}"),
            }
        }
    }

    #[test]
    fn small_documents_with_large_memory_are_refused() {
        let many = |value: &str| format!("[{}1]", format!("{value},").repeat(20_000));
        for value in ["1", "[]", r#"{"a":1}"#, r#""""#, r#"{"a":{"a":{}}}"#] {
            let text = many(value);
            assert!(
                matches!(parse(text.as_bytes(), 1 << 20), Err(ParseError::Memory)),
                "{value}"
            );
            assert!(parse(text.as_bytes(), MAX_MEMORY).is_ok(), "{value}");
        }
        assert_eq!(parse(b"[1]", ELEMENT).unwrap(), json!([1]));
    }
}
