//! From the schema to Rust: a struct for each object, an enum for each set of strings.

use super::names;
use crate::Failure;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const HEAD: &str = "
// tidy: long because it is generated, like a table.
#![allow(missing_docs)]

use super::lenient::{self, IntegerOrString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
";
const DERIVED: &str = "#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]";
const DERIVED_OF_ENUM: &str = "#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]";

/// All types of the schema, in the order of their names.
pub fn types(schema: &Value) -> Result<String, Failure> {
    let mut made = Made::default();
    let definitions = object(&schema["definitions"])?;
    for (name, definition) in definitions {
        made.definition(name, definition)
            .map_err(|error| format!("{name}: {error}"))?;
    }
    let origin = schema["$comment"]
        .as_str()
        .ok_or("the schema has no source address")?
        .replace('\n', "\n//! ");
    let mut text = format!(
        "//! {origin}\n//! The types are generated from that schema: do not change them here.\n{HEAD}"
    );
    for item in made.items.values() {
        text.push('\n');
        text.push_str(item);
    }
    Ok(text)
}

/// Rust items by name.
#[derive(Default)]
struct Made {
    items: BTreeMap<String, String>,
}

impl Made {
    fn definition(&mut self, name: &str, definition: &Value) -> Result<(), Failure> {
        let is_message = ["Request", "Response", "Event", "ProtocolMessage"]
            .iter()
            .any(|kind| name.ends_with(kind));
        if !is_message {
            if let Some(known) = strings(definition) {
                return self.string_enum(name, &format!("`{name}`"), known);
            }
            return self.structure(name, &format!("`{name}`"), definition);
        }
        // Envelopes are written by hand: only what is in them is generated.
        let properties = object(&definition["properties"])?;
        for part in ["body", "arguments"] {
            match properties.get(part) {
                Some(inside) if inside.get("properties").is_some() => {
                    let title = format!("{name}{}", names::variant(part));
                    self.structure(&title, &format!("`{name}.{part}`"), inside)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn structure(&mut self, name: &str, origin: &str, schema: &Value) -> Result<(), Failure> {
        if schema["type"] != "object" {
            return Err("is neither an object nor an enumeration of strings".to_owned());
        }
        let none = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        let mut text =
            format!("/// {origin} of the protocol.\n{DERIVED}\n#[serde(rename_all = \"camelCase\")]\n");
        let _ = writeln!(text, "pub struct {name} {{");
        for (property, schema) in properties {
            let is_optional = !required.iter().any(|name| name == property);
            let kind = self.kind(name, property, schema)?;
            text.push_str(&field(property, &kind, is_optional));
        }
        text.push_str("}\n");
        self.add(name, text)
    }

    /// Strings other than the known ones are kept as they are.
    fn string_enum(&mut self, name: &str, origin: &str, known: &[Value]) -> Result<(), Failure> {
        let mut text = format!("/// {origin} of the protocol.\n{DERIVED_OF_ENUM}\npub enum {name} {{\n");
        for (at, value) in known.iter().enumerate() {
            let value = value.as_str().ok_or("an enum has a value that is not a string")?;
            if at == 0 {
                text.push_str("#[default]\n");
            }
            let _ = writeln!(text, "#[serde(rename = {value:?})]\n{},", names::variant(value));
        }
        text.push_str("#[serde(untagged)]\nOther(String),\n}\n");
        self.add(name, text)
    }

    /// The type of a property of `owner`.
    fn kind(&mut self, owner: &str, property: &str, schema: &Value) -> Result<String, Failure> {
        if let Some(reference) = schema["$ref"].as_str() {
            return Ok(reference.trim_start_matches("#/definitions/").to_owned());
        }
        if let Some(known) = strings(schema) {
            let owner_name = owner.trim_end_matches("Body").trim_end_matches("Arguments");
            let name = format!("{owner_name}{}", names::variant(property));
            self.string_enum(&name, &format!("`{property}` in [`{owner}`]"), known)?;
            return Ok(name);
        }
        Ok(match &schema["type"] {
            Value::String(name) => match name.as_str() {
                "string" => "String".to_owned(),
                "integer" => "i64".to_owned(),
                "number" => "f64".to_owned(),
                "boolean" => "bool".to_owned(),
                "array" => format!("Vec<{}>", self.kind(owner, property, &schema["items"])?),
                "object" if schema.get("properties").is_some() => {
                    return Err(format!("{property} has nested properties"));
                }
                "object" => match schema.get("additionalProperties") {
                    Some(values) => format!("BTreeMap<String, {}>", self.kind(owner, property, values)?),
                    None => "Value".to_owned(),
                },
                _ => return Err(format!("{property} has an unknown type: {name}")),
            },
            Value::Array(names) if *names == ["integer", "string"] => "IntegerOrString".to_owned(),
            Value::Array(names) if *names == ["string", "null"] => "Option<String>".to_owned(),
            Value::Null => "Value".to_owned(),
            other => return Err(format!("{property} has unknown types: {other}")),
        })
    }

    fn add(&mut self, name: &str, text: String) -> Result<(), Failure> {
        match self.items.insert(name.to_owned(), text) {
            None => Ok(()),
            Some(_) => Err(format!("the type {name} exists twice")),
        }
    }
}

/// A field with what serde must know of it.
fn field(property: &str, kind: &str, is_optional: bool) -> String {
    let name = names::field(property);
    let mut serde = Vec::new();
    if names::camel(&name) != property {
        serde.push(format!("rename = {property:?}"));
    }
    if is_optional {
        serde.push("default, skip_serializing_if = \"Option::is_none\"".to_owned());
    }
    if kind.contains("i64") {
        serde.push("deserialize_with = \"lenient::read\"".to_owned());
    }
    let mut text = String::new();
    if !serde.is_empty() {
        let _ = writeln!(text, "#[serde({})]", serde.join(", "));
    }
    let kind = if is_optional {
        format!("Option<{kind}>")
    } else {
        kind.to_owned()
    };
    let _ = writeln!(text, "pub {name}: {kind},");
    text
}

/// The strings that a schema names, if it is one of a set of strings, closed or open.
fn strings(schema: &Value) -> Option<&[Value]> {
    let known = schema.get("enum").or_else(|| schema.get("examples"))?;
    known
        .as_array()
        .filter(|_| schema["type"] == "string")
        .map(Vec::as_slice)
}

fn object(value: &Value) -> Result<&Map<String, Value>, Failure> {
    value
        .as_object()
        .ok_or_else(|| "the schema has no object where one is wanted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn generated(definitions: Value) -> Result<String, Failure> {
        types(&json!({"$comment": "Made by us.", "definitions": definitions}))
    }

    #[test]
    fn objects_become_structs_and_string_sets_enums() {
        let text = generated(json!({"StoppedEvent": {"type": "object", "properties": {
            "event": {"type": "string"},
            "body": {"type": "object", "required": ["reason"], "properties": {
                "reason": {"type": "string", "examples": ["data breakpoint", "step"]},
                "threadId": {"type": "integer"},
            }},
        }}}))
        .unwrap();
        let expected = [
            "//! Made by us.",
            "/// `reason` in [`StoppedEventBody`] of the protocol.",
            "pub enum StoppedEventReason {\n#[default]\n#[serde(rename = \"data breakpoint\")]\nDataBreakpoint,\n\
             #[serde(rename = \"step\")]\nStep,\n#[serde(untagged)]\nOther(String),\n}",
            "/// `StoppedEvent.body` of the protocol.",
            "pub struct StoppedEventBody {\npub reason: StoppedEventReason,\n\
             #[serde(default, skip_serializing_if = \"Option::is_none\", deserialize_with = \"lenient::read\")]\n\
             pub thread_id: Option<i64>,\n}",
        ];
        for part in expected {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
        assert!(!text.contains("event:"), "{text}");
    }

    #[test]
    fn schema_without_a_rust_type_is_refused() {
        for (definition, expected) in [
            (json!({"type": "array"}), "A: is neither an object"),
            (
                json!({"type": "object", "properties": {"b": {"type": "object", "properties": {}}}}),
                "A: b has nested properties",
            ),
            (
                json!({"type": "object", "properties": {"b": {"type": ["boolean", "null"]}}}),
                "A: b has unknown types",
            ),
        ] {
            let error = generated(json!({"A": definition})).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
