//! The answers of several commands.

use super::{Output, Paint, Text};
use serde::Serialize;

/// The answer of one of several commands.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadAnswer {
    /// In which thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// As it was given; empty for the move that the others follow.
    pub command: String,
    /// The error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The output, if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<Output>>,
}

pub(super) fn render(answers: &[ThreadAnswer], to: &mut Text) {
    for answer in answers {
        if let Some(thread) = answer.thread {
            to.line(to.paint(Paint::Place, format!("Thread {thread}:")));
        }
        if let Some(error) = &answer.error {
            to.line(error);
        }
        if let Some(result) = &answer.result {
            result.render(to);
        }
    }
}
