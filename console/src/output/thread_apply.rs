//! What several commands answered.

use super::{Output, Paint, Text};
use serde::Serialize;

/// What one of several commands answered.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadAnswer {
    /// In which thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// As it was given; empty for the move that the others follow.
    pub command: String,
    /// What it failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it answered.
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
