//! The writes of an expression as text.

use super::{Paint, Text};
use backtrail_debugger::navigator::{WritePlace, WriteView};
use backtrail_debugger::origin::ValueOrigin;
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
                to.paint(Paint::Function, write.place.function.as_deref().unwrap_or("??")),
                to.paint(Paint::Place, place_of(&write.place)),
            ));
        }
    }
}

/// Returns ` at FILE:LINE`, if known.
fn place_of(place: &WritePlace) -> String {
    let line = place.file.as_deref().zip(place.line);
    line.map(|(file, line)| format!(" at {}:{line}", short(file)))
        .unwrap_or_default()
}

pub(super) fn render_origin(origin: &ValueOrigin, to: &mut Text) {
    to.lines(format!("{} = {}", origin.expression, origin.value));
    let width = |text: fn(&backtrail_debugger::origin::OriginStep) -> String| {
        origin.steps.iter().map(|step| text(step).chars().count()).max()
    };
    let position = width(|step| step.position.clone()).unwrap_or_default();
    let instruction = width(|step| step.instruction.replace('\t', " ")).unwrap_or_default();
    for step in &origin.steps {
        let value = step
            .value
            .map(|value| format!(" = {value:#x}"))
            .unwrap_or_default();
        to.line(format!(
            "{:position$}  {:instruction$}  {}{value}  {}{}",
            step.position,
            step.instruction.replace('\t', " "),
            step.to,
            to.paint(Paint::Function, step.place.function.as_deref().unwrap_or("??")),
            to.paint(Paint::Place, place_of(&step.place)),
        ));
    }
    let end = match origin.is_complete {
        true => format!("Origin: {}.", origin.end),
        false => format!("The origin is unknown: {}.", origin.end),
    };
    to.line(end);
}
