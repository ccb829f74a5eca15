//! JSON from elsewhere, in memory that is bounded.
//!
//! `serde_json::Value` takes 32 bytes for a value of one character, and more than 600 for an object with one
//! member. So what a document takes is added up while it is read.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// Bytes of memory that a document may take. One of 16 MiB with fields as bundles have them takes about half.
pub(super) const MAX_MEMORY: usize = 256 << 20;

/// An element of an array, which grows by doubling.
const ELEMENT: usize = 2 * size_of::<Value>();
/// A node of a map's tree, which the first member makes.
const NODE: usize = 640;
/// A member of a map, in a tree whose nodes are half empty.
const MEMBER: usize = 2 * (size_of::<Value>() + size_of::<String>());

/// Why a document was refused.
#[derive(Debug)]
pub(super) enum Refused {
    /// It would take more memory than it may.
    Memory,
    /// It is no JSON.
    Syntax(serde_json::Error),
}

/// Parses a document that may take `memory` bytes.
pub(super) fn parse(bytes: &[u8], memory: usize) -> Result<Value, Refused> {
    let left = Cell::new(Some(memory));
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = Bounded(&left).deserialize(&mut deserializer);
    match parsed.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(value) => Ok(value),
        Err(_) if left.get().is_none() => Err(Refused::Memory),
        Err(error) => Err(Refused::Syntax(error)),
    }
}

/// Reads a value out of what is left of the memory; `None` once that was too little.
#[derive(Clone, Copy)]
struct Bounded<'m>(&'m Cell<Option<usize>>);

impl Bounded<'_> {
    fn spend<E: serde::de::Error>(self, amount: usize) -> Result<(), E> {
        let left = self.0.get().and_then(|left| left.checked_sub(amount));
        self.0.set(left);
        left.map(|_| ())
            .ok_or_else(|| E::custom("it takes too much memory"))
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
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
    fn documents_are_read_as_serde_json_reads_them() {
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
                (Err(Refused::Syntax(error)), Err(expected)) => {
                    assert_eq!(error.to_string(), expected.to_string());
                }
                (found, expected) => panic!("{text}: {found:?}, but {expected:?}"),
            }
        }
    }

    #[test]
    fn small_values_that_take_much_memory_are_refused() {
        let many = |value: &str| format!("[{}1]", format!("{value},").repeat(20_000));
        for value in ["1", "[]", r#"{"a":1}"#, r#""""#, r#"{"a":{"a":{}}}"#] {
            let text = many(value);
            assert!(
                matches!(parse(text.as_bytes(), 1 << 20), Err(Refused::Memory)),
                "{value}"
            );
            assert!(parse(text.as_bytes(), MAX_MEMORY).is_ok(), "{value}");
        }
        assert_eq!(parse(b"[1]", ELEMENT).unwrap(), json!([1]));
    }
}
