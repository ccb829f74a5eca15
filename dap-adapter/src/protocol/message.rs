//! The envelopes: requests that come in, responses and events that go out.

use serde::Serialize;
use serde_json::Value;

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The client's number for it.
    pub seq: i64,
    /// The command.
    pub command: String,
    /// With what; an empty object where none are given.
    pub arguments: Value,
}

/// A received message.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// A request.
    Request(Request),
    /// A response or an event, of which we asked for none.
    Other,
    /// An invalid message: the reason, and its number, if it has one.
    Bad(String, Option<i64>),
}

impl Incoming {
    /// Reads a message.
    #[must_use]
    pub fn read(message: Value) -> Self {
        let Value::Object(mut fields) = message else {
            return Self::Bad("a message must be a JSON object".to_owned(), None);
        };
        let seq = fields.get("seq").and_then(whole);
        match fields.get("type").and_then(Value::as_str) {
            Some("response" | "event") => return Self::Other,
            Some("request") | None => {}
            Some(other) => return Self::Bad(format!("unknown message type \"{other}\""), seq),
        }
        let Some(Value::String(command)) = fields.remove("command") else {
            return Self::Bad("a request must have a command".to_owned(), seq);
        };
        let arguments = fields
            .remove("arguments")
            .filter(|arguments| !arguments.is_null());
        Self::Request(Request {
            seq: seq.unwrap_or(0),
            command,
            arguments: arguments.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
        })
    }
}

fn whole(number: &Value) -> Option<i64> {
    let by_float = || {
        number
            .as_f64()
            .filter(|float| float.fract() == 0.0)
            .map(|float| float as i64)
    };
    number.as_i64().or_else(by_float)
}

/// A message to send, without its number.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Outgoing {
    /// The answer to a request.
    Response(Response),
    /// Something happened.
    Event(Event),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    /// The number of the request.
    pub request_seq: i64,
    /// Whether the request succeeded.
    pub success: bool,
    /// The command of the request.
    pub command: String,
    /// A word or sentence about a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The answer itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Which.
    pub event: String,
    /// With what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_needs_a_command_and_nothing_else() {
        let read = |message| match Incoming::read(message) {
            Incoming::Request(request) => Some((request.seq, request.command, request.arguments)),
            _ => None,
        };
        let whole =
            json!({"seq": 3.0, "type": "request", "command": "next", "arguments": {"a": 1}, "more": 2});
        assert_eq!(read(whole), Some((3, "next".to_owned(), json!({"a": 1}))));
        let bare = json!({"command": "threads", "arguments": null});
        assert_eq!(read(bare), Some((0, "threads".to_owned(), json!({}))));
        for other in [
            json!({"type": "response", "command": "next"}),
            json!({"type": "request", "seq": 1}),
            json!({"type": "dance", "command": "next"}),
            json!([1]),
            json!({"command": 7}),
        ] {
            assert_eq!(read(other.clone()), None, "{other}");
        }
    }

    #[test]
    fn envelopes_are_written_as_the_protocol_has_them() {
        let event = Outgoing::Event(Event {
            event: "stopped".to_owned(),
            body: Some(json!({"reason": "step"})),
        });
        assert_eq!(
            serde_json::to_value(event).unwrap(),
            json!({"type": "event", "event": "stopped", "body": {"reason": "step"}})
        );
    }
}
