//! Sanitizes all outgoing messages, so that text of traces is shown as text.
//!
//! Editors show strings in terminals, which obey control characters. They also show sentences as
//! Markdown or as notifications, in which VS Code follows links, including links to its commands.

use backtrail_console::output::{is_invisible, unlinked, visible_lines};
use serde_json::Value;
use std::borrow::Cow;

/// The members that are sentences of ours: messages of failures and breakpoints, of progress, and
/// what a stop says of itself.
const SENTENCES: [&str; 5] = ["message", "format", "title", "description", "text"];

/// The members that have several lines: what commands print, stacks of crashes, and values.
const LINES: [&str; 5] = ["output", "result", "stackTrace", "value", "text"];

/// Returns whether the response to a request contains the text of a file for an editor.
const SOURCE: &str = "source";

/// Makes the body of an answer harmless.
pub fn answer(command: &str, body: &mut Value) {
    if command != SOURCE || body.get("error").is_some() {
        cleaned(body, false);
    }
}

/// Makes the body of an event harmless.
pub fn event(body: &mut Value) {
    cleaned(body, true);
}

/// Makes a sentence harmless.
pub fn sentence(text: &str) -> String {
    unlinked(&line(text)).into_owned()
}

/// Text on one line, tabs among it.
pub fn line(text: &str) -> Cow<'_, str> {
    let is_bad = |char: char| is_invisible(char) && char != '\t';
    match text.contains(is_bad) {
        true => Cow::Owned(text.replace(is_bad, "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

/// `is_event`: what is called `text` and `description` are sentences in events, and times,
/// instructions and the like in answers.
fn cleaned(value: &mut Value, is_event: bool) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = line(text) {
                *text = clean;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| cleaned(value, is_event)),
        Value::Object(members) => {
            let sentences = SENTENCES.get(..if is_event { 5 } else { 3 }).unwrap_or_default();
            for (name, value) in members {
                match value {
                    Value::String(text) if sentences.contains(&name.as_str()) => *text = sentence(text),
                    Value::String(text) if LINES.contains(&name.as_str()) => {
                        if let Cow::Owned(clean) = visible_lines(text) {
                            *text = clean;
                        }
                    }
                    value => cleaned(value, is_event),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LINK: &str = "[Click](command:a.b)\u{1b}]0;t\u{7}";

    #[test]
    fn sentences_have_no_links_and_nothing_has_control_characters() {
        let mut body = json!({"error": {"format": LINK}, "breakpoints": [{"message": LINK}], "value": LINK});
        answer("source", &mut body);
        let clean = "[Click] (command:a.b)\u{fffd}]0;t\u{fffd}";
        let value = "[Click](command:a.b)\u{fffd}]0;t\u{fffd}";
        assert_eq!(
            body,
            json!({"error": {"format": clean}, "breakpoints": [{"message": clean}], "value": value})
        );
        let mut body = json!({"text": LINK, "title": LINK, "output": "a\n\tb\r", "name": "a\nb"});
        event(&mut body);
        assert_eq!(
            body,
            json!({"text": clean, "title": clean, "output": "a\n\tb\u{fffd}", "name": "a\u{fffd}b"})
        );
    }

    #[test]
    fn stacks_of_crashes_keep_their_lines() {
        let mut body = json!({"details": {"stackTrace": "#0 f\n#1 \u{1b}g\n", "message": "a\nb"}});
        answer("exceptionInfo", &mut body);
        let details = json!({"stackTrace": "#0 f\n#1 \u{fffd}g\n", "message": "a\u{fffd}b"});
        assert_eq!(body, json!({ "details": details }));
    }

    #[test]
    fn source_files_are_given_as_they_are() {
        let mut body = json!({"content": "a\u{c}\r\n[x](y)"});
        let before = body.clone();
        answer("source", &mut body);
        assert_eq!(body, before);
    }
}
