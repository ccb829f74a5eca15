//! The writes of an expression as text.

use super::{Paint, Text};
use backtrail_debugger::navigator::WriteView;
use backtrail_debugger::source::short;
use serde::Serialize;

/// The writes of an expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WritesView {
    /// The expression.
    pub expression: String,
    /// The writes, the oldest first.
    pub writes: Vec<WriteView>,
    /// Whether there are older ones.
    pub more: bool,
}

impl WritesView {
    pub(super) fn render(&self, to: &mut Text) {
        let Some(first) = self.writes.first() else {
            to.line(format!("No recorded instruction changes {}.", self.expression));
            return;
        };
        if self.more {
            to.line(to.paint(
                Paint::Faint,
                "Older changes are not shown; `history EXPR N` shows N.",
            ));
        }
        let position = |write: &WriteView| write.hit.position.chars().count();
        let width = self.writes.iter().map(position).max().unwrap_or_default();
        let before = "before";
        to.line(format!(
            "{before:width$}  {} = {}",
            self.expression, first.hit.old
        ));
        let mut thread = None;
        for write in &self.writes {
            let place = write.place.as_ref();
            let function = place.and_then(|place| place.function.as_deref());
            let line = place.and_then(|place| {
                let (file, line) = place.file.as_deref().zip(place.line)?;
                Some(format!(" at {}:{line}", short(file)))
            });
            let named = write
                .name
                .as_deref()
                .filter(|_| thread.is_some_and(|thread| thread != write.thread));
            let of_thread = named
                .map(|name| format!(", thread \"{name}\""))
                .unwrap_or_default();
            thread = Some(write.thread);
            to.line(format!(
                "{:width$}  {} = {}  {}{}{of_thread}",
                write.hit.position,
                self.expression,
                write.hit.new,
                to.paint(Paint::Function, function.unwrap_or("??")),
                to.paint(Paint::Place, line.unwrap_or_default()),
            ));
        }
    }
}
