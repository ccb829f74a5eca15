//! Converts the schema generator's output to the schema that is checked in.

use crate::Failure;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The namespace that all declarations stand in.
const NAMESPACE: &str = "DebugProtocol.";
/// Represents every other string in an enum.
const ANY_OTHER: &str = "*";
/// The only numbers of the protocol that need not be whole, all of that name.
const FRACTION: &str = "percentage";

/// Converts `'a' | string` to an enum that keeps the known strings. The schema generator drops
/// them.
pub fn close_enums(declarations: &str) -> String {
    declarations.replace("' | string", &format!("' | '{ANY_OTHER}'"))
}

/// Puts names without their namespace and integers where they belong, and sorts all keys.
///
/// An enum that takes any other string becomes a string with examples.
pub fn reduce(made: &Value, origin: &str) -> Result<Value, Failure> {
    let definitions = made["definitions"]
        .as_object()
        .ok_or("the schema has no definitions")?;
    let definitions: BTreeMap<&str, Value> = definitions
        .iter()
        .map(|(name, definition)| (name.trim_start_matches(NAMESPACE), reduced(definition, "")))
        .collect();
    Ok(serde_json::json!({
        "$comment": origin,
        "$schema": made["$schema"],
        "definitions": definitions,
    }))
}

/// `name`: of the property whose schema it is.
fn reduced(schema: &Value, name: &str) -> Value {
    match schema {
        Value::Object(fields) => Value::Object(reduced_object(fields, name)),
        Value::Array(items) => items.iter().map(|item| reduced(item, name)).collect(),
        Value::String(text) if text == "number" && name != FRACTION => "integer".into(),
        Value::String(text) => text.replace(&format!("/{NAMESPACE}"), "/").into(),
        other => other.clone(),
    }
}

fn reduced_object(fields: &Map<String, Value>, name: &str) -> Map<String, Value> {
    let mut sorted: BTreeMap<String, Value> = BTreeMap::new();
    for (key, value) in fields {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => properties
                .iter()
                .map(|(name, property)| (name.clone(), reduced(property, name)))
                .collect::<BTreeMap<_, _>>()
                .into_iter()
                .collect(),
            ("enum" | "required", value) => value.clone(),
            _ => reduced(value, name),
        };
        sorted.insert(key.clone(), value);
    }
    let known = sorted.get("enum").and_then(Value::as_array).cloned();
    if let Some(mut known) = known.filter(|known| known.iter().any(|value| value == ANY_OTHER)) {
        known.retain(|value| value != ANY_OTHER);
        sorted.remove("enum");
        sorted.insert("examples".to_owned(), known.into());
    }
    sorted.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn open_enum_keeps_unknown_strings() {
        assert_eq!(
            close_enums("reason: 'step' | 'goto' | string; id: number | string;"),
            "reason: 'step' | 'goto' | '*'; id: number | string;"
        );
        let made = json!({"$schema": "s", "definitions": {"DebugProtocol.A": {
            "type": "object",
            "properties": {
                "reason": {"type": "string", "enum": ["step", "goto", "*"]},
                "group": {"type": "string", "enum": ["start", "end"]},
                "type": {"type": ["number", "string"]},
                "percentage": {"type": "number"},
                "all": {"type": "array", "items": {"$ref": "#/definitions/DebugProtocol.B"}},
            },
            "required": ["reason", "number"],
        }}});
        let expected = json!({"$comment": "from b", "$schema": "s", "definitions": {"A": {
            "type": "object",
            "properties": {
                "reason": {"type": "string", "examples": ["step", "goto"]},
                "group": {"type": "string", "enum": ["start", "end"]},
                "type": {"type": ["integer", "string"]},
                "percentage": {"type": "number"},
                "all": {"type": "array", "items": {"$ref": "#/definitions/B"}},
            },
            "required": ["reason", "number"],
        }}});
        assert_eq!(reduce(&made, "from b").unwrap(), expected);
    }
}
